"""Topic ids of clients that live in a part of the cluster: an id of somebody else's topic must reach nothing.

Strategy. kproxy knows the names of ids from every answer of the cluster that tells them, and asks for them when it does
not (see `core/topics.py`). A request's id that belongs to no visible topic is sent with four bits turned over: the
version of a random UUID (RFC 9562), which is 4 in every id that Kafka makes, becomes 11. No topic has such an id, so
the broker itself answers UNKNOWN_TOPIC_ID, in whatever way the API does that, and in the answer the bits are turned
back. Nothing has to be remembered for that, which matters in fetch sessions: there an answer may name an id that was
asked for many requests before.

An id of zeros means "none" and passes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping
from dataclasses import dataclass
from typing import Any

from kproxy.core.rewrite import Apply, Buffer, Context, Hits
from kproxy.rules.all_names import Names
from kproxy.rules.names import NameMap
from kproxy.wire import layout
from kproxy.wire.edit import Edits
from kproxy.wire.layout import Struct
from kproxy.wire.walk import Walk, read_string

from .remembered import ASKED_IDS, MAX_ASKED_IDS, MAX_IDS, TOPIC_IDS, recall, remember

ZERO = bytes(16)
VERSION_BYTE = 6
FLIP, OURS = 0xF0, 0xB0
ANSWERS_BY_ID = {0: 13, 1: 13, 8: 10, 28: 6, 78: 0, 79: 0}
"""Answers of high traffic in which nothing but ids names topics, groups or transactional ids, by API and from which
version on."""
DISGUISED = "topic_ids_disguised"
"""In the memory of a connection: it has sent such an id in a Fetch, so that answers have to be looked at."""


def flipped(topic_id: bytes) -> bytes:
    """The id with its version turned over; twice gives the id back."""
    return topic_id[:VERSION_BYTE] + bytes((topic_id[VERSION_BYTE] ^ FLIP,)) + topic_id[VERSION_BYTE + 1 :]


def id_paths(struct: Struct) -> frozenset[str]:
    """The topic ids of a layout."""
    return frozenset(slot.path for slot in struct.everywhere() if slot.kind == "topic_id")


def learn(cluster_memory: MutableMapping[str, Any], topic_id: bytes, name: bytes) -> None:
    """Remember which topic an id belongs to; a topic that is made anew has a new one."""
    if topic_id != ZERO:
        remember(recall(cluster_memory, TOPIC_IDS), topic_id, name, MAX_IDS)


@dataclass(frozen=True, slots=True)
class VisibleIds:
    """The ids of a request."""

    paths: frozenset[str]
    names: NameMap

    @property
    def wanted(self) -> frozenset[str]:
        return self.paths

    def bind(self, walk: Walk) -> Apply:
        marks = {number for number, mark in enumerate(walk.marks) if mark.what == "value" and mark.path in self.paths}

        def apply(buf: Buffer, hits: Hits, edits: Edits, context: Context) -> None:
            spans = [(start, end) for mark, start, end in hits if mark in marks]
            ids = [bytes(buf[start:end]) for start, end in spans]
            if self.ask(ids, context):
                return
            for (start, end), topic_id in zip(spans, ids, strict=True):
                if not self.known(topic_id, context):
                    edits.replace(start, end, flipped(topic_id))
                    context.count("topic_ids_unreachable")
                    context.memory[DISGUISED] = True

        return apply

    def known(self, topic_id: bytes, context: Context) -> bool:
        """Whether it may pass, by what is known now."""
        if is_nobodys(topic_id):
            return True
        name = recall(context.cluster_memory, TOPIC_IDS).get(topic_id)
        return name is not None and self.names.to_client(name) is not None

    def ask(self, topic_ids: Iterable[bytes], context: Context) -> bool:
        """Have the broker asked for ids that are not known yet: once for each, again when its last answer is old."""
        known, asked = recall(context.cluster_memory, TOPIC_IDS), recall(context.memory, ASKED_IDS)
        old = context.known_topics is None
        unknown = {one for one in topic_ids if one not in known and (old or one not in asked) and not is_nobodys(one)}
        for topic_id in unknown:
            remember(asked, topic_id, None, MAX_ASKED_IDS)
        context.topics_wanted = context.topics_wanted or bool(unknown)
        return bool(unknown)


def is_nobodys(topic_id: bytes) -> bool:
    """No topic has such an id: it says that there is none."""
    return topic_id == ZERO


@dataclass(frozen=True, slots=True)
class GivenBackIds:
    """The ids of a response: those in disguise become what the client sent.

    A broker that makes ids of its own kind may have one that looks like ours: it is known, then, and stays.
    """

    paths: frozenset[str]

    @property
    def wanted(self) -> frozenset[str]:
        return self.paths

    def bind(self, walk: Walk) -> Apply:
        marks = {number for number, mark in enumerate(walk.marks) if mark.what == "value" and mark.path in self.paths}

        def apply(buf: Buffer, hits: Hits, edits: Edits, context: Context) -> None:
            for mark, start, end in hits:
                if mark in marks and buf[start + VERSION_BYTE] & 0xF0 == OURS:
                    topic_id = bytes(buf[start:end])
                    if topic_id not in recall(context.cluster_memory, TOPIC_IDS):
                        edits.replace(start, end, flipped(topic_id))

        return apply


@dataclass(frozen=True, slots=True)
class LearntIds:
    """What a response tells of names and ids that belong together, both fields of one element, the broker's names."""

    array: str
    compact: bool

    @property
    def wanted(self) -> frozenset[str]:
        return frozenset((f"{self.array}.name", f"{self.array}.topic_id"))

    def bind(self, walk: Walk) -> Apply:
        name_mark, id_mark = (walk.find("value", f"{self.array}.{field}") for field in ("name", "topic_id"))

        def apply(buf: Buffer, hits: Hits, edits: Edits, context: Context) -> None:
            name: bytes | None = None
            for mark, start, end in hits:
                if mark == name_mark:
                    name = read_string(buf, start, end, self.compact)
                elif mark == id_mark and name:
                    learn(context.cluster_memory, bytes(buf[start:end]), name)

        return apply


def telling(key: int, struct: Struct) -> Iterator[LearntIds]:
    """Metadata, CreateTopics and DescribeTopicPartitions answers tell names with ids, from some version on."""
    if key in (3, 19, 75) and "topics[].topic_id" in id_paths(struct):
        yield LearntIds("topics[]", struct.flexible)


def by_id(key: int, version: int, names: Names) -> bool:
    """Whether the only names of this response are topic ids, to be looked at once the client has sent a foreign one.

    Not where an answer tells ids that kproxy is to learn.
    """
    struct = layout.body(key, version, "response")
    isolates = names.topics is not None and names.topics.isolates
    return isolates and bool(id_paths(struct)) and key in ANSWERS_BY_ID and version >= ANSWERS_BY_ID[key]
