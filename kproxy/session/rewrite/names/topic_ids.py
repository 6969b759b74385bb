"""Ids that no topic has, sent in place of topic ids that a client may not use, and their way back.

Strategy. Every id that Kafka makes is a random UUID, of version 4 (RFC 9562); every disguise has 11 for its version.
The other 124 bits of an id of version 4 are permuted under a key that this process has made up, so the way back needs
no memory: an answer in a fetch session may name an id that was asked for many requests before. Ids of other versions do
not fit in as well: theirs are hashes under the same key, remembered for the connection. A client has neither the key
nor a disguise, since answers are reversed; so it cannot aim at an id, not even at one of a broker with ids of version
11.

Topic ids of tenants: an id of a foreign topic must reach nothing.

Strategy. kproxy collects the names of ids from every answer of the cluster that contains both, and asks for unknown
ones (see `session/cluster.py`). Only zeros, which mean "none", and an id that is known to be that of a visible topic
leave as they are. Every other one is sent in disguise, as an id that no topic has, so the broker itself answers
UNKNOWN_TOPIC_ID, in whatever way the API does that, and in the answer the client finds what it sent.

An answer that names a foreign topic by its id alone contains the disguise instead: the topic is not revealed.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass
from hashlib import blake2b
from secrets import token_bytes
from typing import Any

from kproxy.protocol.breath import each
from kproxy.protocol.edit import Edits
from kproxy.protocol.primitives import Buffer
from kproxy.protocol.scan.walk import Hits, Walk, read_string
from kproxy.protocol.table import layout
from kproxy.protocol.table.api_keys import (
    CREATE_TOPICS,
    DESCRIBE_TOPIC_PARTITIONS,
    FETCH,
    METADATA,
    OFFSET_COMMIT,
    PRODUCE,
    SHARE_ACKNOWLEDGE,
    SHARE_FETCH,
    TXN_OFFSET_COMMIT,
)
from kproxy.protocol.table.layout import Struct
from kproxy.rules.names.composed import NameMap, NameMaps
from kproxy.session.rewrite.context import (
    ASKED_IDS,
    DISGUISES,
    MAX_ASKED_AT_ONCE,
    MAX_ASKED_IDS,
    MAX_DISGUISES,
    MAX_IDS,
    TOPIC_IDS,
    Context,
    recall,
    remember,
)
from kproxy.session.rewrite.response_cache import Apply

VERSION_BYTE = 6
RANDOM, OURS = 4, 11  # versions of UUIDs: those of Kafka, and those of disguises
KEY = token_bytes(32)
HALF = (1 << 62) - 1
LOW_BITS = 76  # after the version
LOW = (1 << LOW_BITS) - 1
ROUNDS = tuple(KEY + bytes((number,)) for number in range(4))
"""Keys of the rounds. Four make a Feistel network a strong pseudorandom permutation (Luby and Rackoff)."""


def version_of(topic_id: bytes) -> int:
    """Return the version of the UUID, 0 to 15."""
    return topic_id[VERSION_BYTE] >> 4


def disguise(topic_id: bytes, context: Context) -> bytes:
    """Return the id to send in place of one that the client may not use: the same one each time."""
    if version_of(topic_id) == RANDOM:
        return joined(permuted(without_version(topic_id)), OURS)
    hidden = joined(int.from_bytes(blake2b(topic_id, key=KEY, digest_size=16).digest(), "big") >> 4, OURS)
    remember(recall(context.memory, DISGUISES), hidden, topic_id, MAX_DISGUISES)
    return hidden


def undisguised(topic_id: bytes, context: Context) -> bytes:
    """Return the id that the client has sent, given the one sent in its place. Other ids are returned unchanged."""
    if version_of(topic_id) != OURS:
        return topic_id
    kept: bytes | None = recall(context.memory, DISGUISES).get(topic_id)
    return joined(restored(without_version(topic_id)), RANDOM) if kept is None else kept


def without_version(topic_id: bytes) -> int:
    """Return the 124 bits of an id that are not its version."""
    number = int.from_bytes(topic_id, "big")
    return number >> (LOW_BITS + 4) << LOW_BITS | number & LOW


def joined(bits: int, version: int) -> bytes:
    return (bits >> LOW_BITS << (LOW_BITS + 4) | version << LOW_BITS | bits & LOW).to_bytes(16, "big")


def permuted(bits: int) -> int:
    """Return another number of 124 bits, a different one for each."""
    left, right = bits >> 62, bits & HALF
    for key in ROUNDS:
        left, right = right, left ^ keyed(key, right)
    return left << 62 | right


def restored(bits: int) -> int:
    """Return the number that `permuted` has made this one from."""
    left, right = bits >> 62, bits & HALF
    for key in reversed(ROUNDS):
        left, right = right ^ keyed(key, left), left
    return left << 62 | right


def keyed(key: bytes, half: int) -> int:
    """Return 62 bits that cannot be derived without the key."""
    return int.from_bytes(blake2b(key + half.to_bytes(8, "big"), digest_size=8).digest(), "big") & HALF


ZERO = bytes(16)
LISTED_AFTER = 1.0
"""Seconds that a list of all topics counts as complete, so made-up ids cause at most one lookup a second."""
NOT_THERE_FOR = 10.0
"""Seconds until an id unknown to the broker may be asked for again on its connection."""
ANSWERS_BY_ID = {PRODUCE: 13, FETCH: 13, OFFSET_COMMIT: 10, TXN_OFFSET_COMMIT: 6, SHARE_FETCH: 0, SHARE_ACKNOWLEDGE: 0}
"""Answers of high traffic with topic ids as the only names (of topics, groups or transactional ids), by API, with the
first such version. They name no id that was not sent in a request of the same connection."""
DISGUISED = "topic_ids_disguised"
"""In the memory of a connection: it has sent such an id, so that answers have to be looked at."""


def learn(cluster_memory: MutableMapping[str, Any], topic_id: bytes, name: bytes) -> None:
    """Remember which topic an id belongs to. A topic that is created again has a new id, so a known id keeps its
    name."""
    known = recall(cluster_memory, TOPIC_IDS)
    if topic_id != ZERO and known.get(topic_id, name) == name:
        remember(known, topic_id, name, MAX_IDS)


def is_visible(name: bytes, names: NameMap) -> bool:
    """Return True for the broker's name of a topic that clients with these names can reach."""
    return names.space.can_exist(name) and names.to_client(name) is not None


@dataclass(frozen=True, slots=True)
class VisibleIds:
    """Rewrite of the topic ids of a request: those that the client must not reach are disguised.

    `listed`: their names come from a list of all topics; brokers without a lookup by id accept requests of this
    API.
    """

    paths: frozenset[str]
    names: NameMap
    listed: bool = False

    @property
    def wanted(self) -> frozenset[str]:
        return self.paths

    def bind(self, walk: Walk) -> Apply:
        marks = {number for number, mark in enumerate(walk.marks) if mark.what == "value" and mark.path in self.paths}

        def apply(buf: Buffer, hits: Hits, edits: Edits, context: Context) -> None:
            found = [(start, end, bytes(buf[start:end])) for mark, start, end in hits if mark in marks]
            if self.ask(found, context):
                return
            for start, end, topic_id in each(found):
                if not self.known(topic_id, context):
                    edits.replace(start, end, disguise(topic_id, context))
                    context.count("topic_ids_unreachable")
                    context.memory[DISGUISED] = True

        return apply

    def known(self, topic_id: bytes, context: Context) -> bool:
        """Return True if the id may pass, judged by the names of ids that are known now."""
        if is_nobodys(topic_id):
            return True
        name = recall(context.cluster_memory, TOPIC_IDS).get(topic_id)
        return name is not None and is_visible(name, self.names)

    def ask(self, found: list[tuple[int, int, bytes]], context: Context) -> bool:
        """Have the broker asked for ids that are not known yet: once for a request, and not for those that it did not
        know a moment ago. `found`: start, end and id of each place. Return True if the request has to wait for the
        answer."""
        known = recall(context.cluster_memory, TOPIC_IDS)
        unknown = {one for _, _, one in each(found) if one not in known and not is_nobodys(one)}
        if not unknown or context.has_asked:
            return False
        if self.listed:
            context.topics_wanted = context.listed_before(LISTED_AFTER)
            return context.topics_wanted
        asked, since = recall(context.memory, ASKED_IDS), context.now - NOT_THERE_FOR
        for topic_id in each(unknown):
            if asked.get(topic_id, since) <= since:
                if len(context.ids_wanted) == MAX_ASKED_AT_ONCE:
                    break
                context.ids_wanted.add(topic_id)
                remember(asked, topic_id, context.now, MAX_ASKED_IDS)
        return bool(context.ids_wanted)


def is_nobodys(topic_id: bytes) -> bool:
    """Return True for the zero id, which means "no topic"."""
    return topic_id == ZERO


@dataclass(frozen=True, slots=True)
class GivenBackIds:
    """Rewrite of the topic ids of a response: disguises become what the client sent, ids of others become disguises.

    A broker that makes ids of its own kind may have one that looks like a disguise: it is known, then, and stays.
    """

    paths: frozenset[str]
    names: NameMap

    @property
    def wanted(self) -> frozenset[str]:
        return self.paths

    def bind(self, walk: Walk) -> Apply:
        marks = {number for number, mark in enumerate(walk.marks) if mark.what == "value" and mark.path in self.paths}

        def apply(buf: Buffer, hits: Hits, edits: Edits, context: Context) -> None:
            known = recall(context.cluster_memory, TOPIC_IDS)
            for mark, start, end in hits:
                if mark in marks:
                    topic_id = bytes(buf[start:end])
                    name = known.get(topic_id)
                    if name is None:
                        if version_of(topic_id) == OURS:
                            edits.replace(start, end, undisguised(topic_id, context))
                    elif not is_visible(name, self.names):
                        edits.replace(start, end, disguise(topic_id, context))
                        context.count("topic_ids_hidden")

        return apply


@dataclass(frozen=True, slots=True)
class LearntIds:
    """Reader of the names and ids in a response that belong together, both fields of one element, the broker's names.

    An element with an error may only repeat the request, so nothing is learned from it.
    """

    array: str
    compact: bool

    @property
    def wanted(self) -> frozenset[str]:
        return frozenset((self.array, *(f"{self.array}.{field}" for field in ("error_code", "name", "topic_id"))))

    def bind(self, walk: Walk) -> Apply:
        code_mark, name_mark, id_mark = (
            walk.find("value", f"{self.array}.{field}") for field in ("error_code", "name", "topic_id")
        )
        element_mark = walk.find("element", self.array)

        def apply(buf: Buffer, hits: Hits, edits: Edits, context: Context) -> None:
            code, name, topic_id = b"", None, ZERO
            for mark, start, end in hits:
                if mark == code_mark:
                    code = bytes(buf[start:end])
                elif mark == name_mark:
                    name = read_string(buf, start, end, self.compact)
                elif mark == id_mark:
                    topic_id = bytes(buf[start:end])
                elif mark == element_mark and name and not any(code):
                    learn(context.cluster_memory, topic_id, name)

        return apply


def telling(key: int, struct: Struct) -> Iterator[LearntIds]:
    """Yield the reader of Metadata, CreateTopics and DescribeTopicPartitions responses, which have names and ids
    together from some version on."""
    if key in (METADATA, CREATE_TOPICS, DESCRIBE_TOPIC_PARTITIONS) and "topics[].topic_id" in struct.paths("topic_id"):
        yield LearntIds("topics[]", struct.flexible)


def by_id(key: int, version: int, names: NameMaps) -> bool:
    """Return True if this response's only names are topic ids, to be looked at once the client has sent a foreign one.

    False if kproxy has to learn ids from the response.
    """
    struct = layout.body(key, version, "response")
    isolates = names.topics is not None and names.topics.isolates
    return isolates and bool(struct.paths("topic_id")) and key in ANSWERS_BY_ID and version >= ANSWERS_BY_ID[key]
