"""Table of the rewrites of names for each message, and the rewriter of messages with one topic.

Strategy. `name_rewrite` combines the rewrites of the other modules for one message. Most Produce requests, and most
responses to Produce and Fetch, have one topic; `SingleTopicRewriter` changes them without holding the frame. Their
names precede their records. Once the names have arrived, the new length is known, and the rest passes as it streams in.
Messages with several topics, with a hidden topic, or with a topic id of unknown owner need the entire frame.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from kproxy.base.bounded_map import BoundedMap
from kproxy.protocol.edit import Edits
from kproxy.protocol.framing import body_start, plain_head, single_topic
from kproxy.protocol.primitives import Buffer
from kproxy.protocol.scan.walk import Hits, Walk, read_string, write_string
from kproxy.protocol.table import api_keys, layout, schema
from kproxy.protocol.table.api_keys import (
    CREATE_TOPICS,
    DELETE_ACLS,
    DELETE_TOPICS,
    DESCRIBE_TOPIC_PARTITIONS,
    ELECT_LEADERS,
    FETCH,
    FIND_COORDINATOR,
    LIST_TRANSACTIONS,
    METADATA,
    PRODUCE,
)
from kproxy.protocol.table.layout import Struct
from kproxy.rules.names.composed import NameMap, NameMaps
from kproxy.rules.names.layer import GROUP, TOPIC, TRANSACTIONAL_ID
from kproxy.session.rewrite.context import Context, NeedsLookup
from kproxy.session.rewrite.rewriter import Apply, Rewrite, Splice, Splicer

from . import groups, resources
from .metadata import AllTopicsRequest, CursorName, TopicAnswers
from .regex import DescribedRegex, HeartbeatRegex, MatchingOnly, PatternAside, TopologyRegexes
from .tenant_denials import (
    MESSAGES_FROM,
    SESSIONS_FROM,
    NamedOnly,
    NoOtherNames,
    NotAllPartitions,
    OwnSessions,
    RefusedDeletions,
    RefusedElection,
)
from .topic_ids import GivenBackIds, VisibleIds, telling
from .translator import CoordinatorKeys, NameTranslator, PlainNames, Translators, name_paths, name_translators

NULL_NAMES_FROM = 12  # Metadata: topics can be requested by id from here on, and names in answers may be null
PATTERN_FROM = 2  # ListTransactions: a pattern over transactional ids
CURSORS = {"request": "cursor.topic_name", "response": "next_cursor.topic_name"}


@dataclass(frozen=True)
class NameRewrite:
    """Rewrite of all names in one message, made of parts; those that may have to wait for the broker come first."""

    parts: tuple[Rewrite, ...]

    @cached_property
    def wanted(self) -> frozenset[str]:
        return frozenset[str]().union(*(part.wanted for part in self.parts))

    def bind(self, walk: Walk) -> Apply:
        applies = [part.bind(walk) for part in self.parts]
        if len(applies) == 1:
            return applies[0]

        def apply(buf: Buffer, hits: Hits, edits: Edits, context: Context) -> NeedsLookup | None:
            for each in applies:
                needed = each(buf, hits, edits, context)
                if needed is not None:
                    return needed
            return None

        return apply


def name_rewrite(key: int, version: int, direction: str, names: NameMaps) -> NameRewrite | None:
    """Return the rewrite of this message. None: it carries no names that rules are about. Raises KeyError for an API or
    version that the table lacks."""
    struct = layout.body(key, version, direction)
    translators = name_translators(names, direction)
    parts: list[Rewrite] = [*id_parts(key, version, struct, names, direction)]
    special = [
        *regex_parts(key, struct, translators, names, direction),
        *topic_parts(key, version, struct, translators),
    ]
    parts += special
    parts += coordinator_parts(key, version, struct, translators, direction)
    parts += refusals(key, version, struct, translators, direction)
    taken = {path for part in special for path in part.wanted}
    plain = {path: one for path, one in name_paths(struct, translators).items() if not is_taken(path, one, taken)}
    if plain:
        parts.append(PlainNames(plain, struct.flexible))
    if (key, direction) in groups.GROUP_FIELDS and TOPIC in translators:
        parts.append(groups.GroupBytes(key, translators[TOPIC], struct.flexible))
    place = resources.RESOURCE_PLACES.get((key, direction))
    if place is not None and place.concerns(translators):
        parts.append(resources.ResourceNames(place, translators, struct.flexible))
    return NameRewrite(tuple(parts)) if parts else None


def is_taken(path: str, translator: NameTranslator, taken: set[str]) -> bool:
    """Return True if a special part already deals with this topic name; other names are only read by special parts."""
    return translator.space is TOPIC and path in taken


def id_parts(key: int, version: int, struct: Struct, names: NameMaps, direction: str) -> Iterator[Rewrite]:
    """Yield the rewrites of topic ids and fetch sessions, if foreign topics must be unreachable."""
    if names.topics is None or not names.topics.isolates:
        return
    paths = struct.paths("topic_id")
    if paths and direction == "request":
        yield VisibleIds(paths, names.topics, listed=key == DELETE_TOPICS)
    elif paths:
        yield from telling(key, struct)
        yield GivenBackIds(paths, names.topics)
    if key == FETCH and direction == "request" and version >= SESSIONS_FROM:
        yield OwnSessions()


def regex_parts(
    key: int, struct: Struct, translators: Translators, names: NameMaps, direction: str
) -> Iterator[Rewrite]:
    """Yield the rewrites of the patterns over topics in this message."""
    patterns = [slot.path for slot in struct.everywhere() if slot.kind == "topic_regex"]
    if not patterns or names.topics is None:
        return
    match key, direction:
        case api_keys.CONSUMER_GROUP_HEARTBEAT, "request":
            yield HeartbeatRegex(names.topics, names.groups)
        case api_keys.CONSUMER_GROUP_DESCRIBE, "response":
            yield DescribedRegex(names.topics)
        case _:
            for path in patterns:
                yield TopologyRegexes(translators[TOPIC], path)


def topic_parts(key: int, version: int, struct: Struct, translators: Translators) -> Iterator[Rewrite]:
    """Yield the rewrites of the two APIs that answer which topics there are."""
    translator = translators.get(TOPIC)
    if translator is None or key not in (METADATA, DESCRIBE_TOPIC_PARTITIONS):
        return
    if translator.direction == "response":
        yield TopicAnswers(struct, translator, by_id=key == METADATA and version >= NULL_NAMES_FROM)
    elif key == METADATA:
        yield AllTopicsRequest(version, struct.flexible)
    if key == DESCRIBE_TOPIC_PARTITIONS:
        yield CursorName(CURSORS[translator.direction], translator)


def coordinator_parts(
    key: int, version: int, struct: Struct, translators: Translators, direction: str
) -> Iterator[Rewrite]:
    """Yield the rewrites of coordinators' keys, and of patterns over transactional ids."""
    if key == FIND_COORDINATOR and (GROUP in translators or TRANSACTIONAL_ID in translators):
        keys = CoordinatorKeys(translators, direction, struct.flexible)
        if any(slot.path in keys.wanted for slot in struct.everywhere()):
            yield keys
    if key == LIST_TRANSACTIONS and version >= PATTERN_FROM and TRANSACTIONAL_ID in translators:
        yield PatternAside() if direction == "request" else MatchingOnly(translators[TRANSACTIONAL_ID])


def refusals(key: int, version: int, struct: Struct, translators: Translators, direction: str) -> Iterator[Rewrite]:
    """Yield the rewrites that refuse a tenant's requests that also act on others."""
    isolated = {space for space, translator in translators.items() if translator.names.isolates}
    if key == ELECT_LEADERS and TOPIC in isolated:
        if direction == "request":
            yield NotAllPartitions(struct.flexible)
        elif version >= 1:
            yield RefusedElection()
    if key == DELETE_ACLS and isolated:
        yield NamedOnly(translators, struct.flexible) if direction == "request" else RefusedDeletions(struct.flexible)
    if key == CREATE_TOPICS and version >= MESSAGES_FROM and TOPIC in isolated and direction == "response":
        yield NoOtherNames(struct.flexible)


BY_ID_FROM = 13  # Produce and Fetch name topics by id from this version on (KIP-516)

MOST_KNOWN, LONGEST_KNOWN = 1000, 256
"""Maximum number of remembered heads, and maximum bytes of a remembered name; topics have at most 249."""
REQUEST_HEAD, RESPONSE_HEAD = 14, 8
"""Bytes up to the client id, including its length, and up to the end of a response's header, without tags."""


class KnownHead(NamedTuple):
    """Number of topics, which is one, and name of the topic, `length` bytes: `written` are the bytes on the other side,
    the same if `changes` is false."""

    length: int
    written: bytes
    changes: bool


class SingleTopicRewriter:
    """Rewriter of the only topic of a message; `splice` returns the position of the name and its replacement.

    `leading` spells the string in front, the transactional id of a Produce request; `topics` is None when topics have
    the same names on both sides, or are given by ids that need no check. `known`: heads that were met, in frames that
    begin with `front`, as nearly all do: they have nothing optional there. The name's length is `name_at` bytes
    after that beginning, and the number of topics `count_at` bytes; bytes between them, such as time-outs and session
    ids, do not matter.
    """

    __slots__ = (
        "compact", "count_at", "direction", "find", "front", "header_version", "known", "leading", "name_at", "topic",
        "visible",
    )  # fmt: skip

    def __init__(self, key: int, version: int, direction: str, topics: NameMap | None, leading: NameMap | None) -> None:
        self.direction = direction
        self.find = single_topic(key, version, direction)
        self.header_version = schema.load(key).header_version(direction, version)
        self.compact = layout.body(key, version, direction).flexible
        by_id = version >= BY_ID_FROM
        self.leading = None if leading is None else NameTranslator(leading, direction)
        self.topic = None if topics is None or by_id else NameTranslator(topics, direction)
        self.visible = VisibleIds(frozenset(), topics) if topics is not None and by_id else None
        plain = plain_head(key, version, direction)
        self.front, self.count_at, self.name_at = plain.front, plain.count_at, plain.size - plain.width
        self.known = BoundedMap[bytes, KnownHead](MOST_KNOWN)

    def splice(self, buf: Buffer, pos: int, end: int, context: Context) -> Splice | None:
        """Return (start, stop, bytes) for the frame with its size at `pos`; buf[pos:end] has arrived.

        None: the name is not all here, or there are more of them, or the topic is hidden.
        """
        at = self.head_start(buf, pos)
        met = self.met_before(buf, at, end)
        if met is not None:
            stop, head = met
            self.count(context, int(head.changes))
            return stop - head.length, stop, head.written
        body = body_start(buf, pos + 4, end, self.header_version, self.direction)
        spans = None if body is None else self.find(buf, body, end)
        if spans is None:
            return None
        *strings, (start, stop) = spans
        if self.visible is not None and not self.visible.known(bytes(buf[start:stop]), context):
            return None
        name = bytes(buf[start:stop])
        if self.topic is not None:
            other = self.other(buf, start, stop, self.topic, context)
            if other is None:
                return None
            name = other
        if self.leading is None or not strings or read_string(buf, *strings[0], self.compact) is None:
            self.remember(buf, at, (start, stop), name)
            return start, stop, name
        first, after = strings[0]
        leading = self.other(buf, first, after, self.leading, context)
        return None if leading is None else (first, stop, leading + bytes(buf[after:start]) + name)

    def head_start(self, buf: Buffer, pos: int) -> int:
        """Return the position in the frame at `pos` where its bytes stop depending on the client; it may be after the
        buffered bytes."""
        if self.direction == "response":
            return pos + RESPONSE_HEAD
        at = pos + REQUEST_HEAD
        length = int.from_bytes(buf[at - 2 : at], "big", signed=True)
        return at + max(length, 0)

    def met_before(self, buf: Buffer, at: int, end: int) -> tuple[int, KnownHead] | None:
        """Return the end of the head of the frame that begins at `at`, and its form on the other side; None: it was not
        met before, or it ends after `end`, which is not past the frame's end.

        A remembered head was read to its end, and its meaning does not depend on later bytes.
        """
        start = at + self.name_at
        if start + 2 > end or buf[at : at + len(self.front)] != self.front:
            return None
        stop = start + (buf[start] if self.compact else 2 + (buf[start] << 8 | buf[start + 1]))
        if stop > end:
            return None
        head = self.known.get(bytes(buf[at + self.count_at : stop]))
        return None if head is None else (stop, head)

    def remember(self, buf: Buffer, at: int, name: tuple[int, int], other: bytes) -> None:
        """Remember how the head of the frame that begins at `at` is written on the other side, unless something in
        front of it is optional, the name is long or counted each time, or it takes too much memory."""
        start, stop = name
        if self.topic is None or start != at + self.name_at or stop - start > LONGEST_KNOWN:
            return
        old = read_string(buf, start, stop, self.compact)
        if old is None or self.topic.escapes(old) or (self.compact and buf[start] != stop - start):
            return
        count, as_it_is = bytes(buf[at + self.count_at : start]), bytes(buf[start:stop])
        head = count + as_it_is
        self.known[head] = KnownHead(len(head), count + other, other != as_it_is)

    def count(self, context: Context, n: int) -> None:
        if n:
            assert self.topic is not None
            context.rewrote(self.topic.space.changed, n)

    def other(self, buf: Buffer, start: int, stop: int, translator: NameTranslator, context: Context) -> bytes | None:
        """Return the encoded name of the other side. None: it is hidden."""
        old = read_string(buf, start, stop, self.compact)
        new = None if old is None else translator.translate(old, context)
        if new is None:
            return None if old is not None else bytes(buf[start:stop])
        if new != old:
            context.rewrote(translator.space.changed)
        return write_string(new, self.compact)


def known_heads(splicer: Splicer | None) -> SingleTopicRewriter | None:
    """Return the splicer if it remembers heads: it is one of topics that are given by name."""
    return splicer if isinstance(splicer, SingleTopicRewriter) and splicer.topic is not None else None


def single_topic_rewriter(key: int, version: int, direction: str, names: NameMaps) -> SingleTopicRewriter | None:
    """Return the rewriter of these messages. None: entire messages of this kind are needed."""
    if (key, direction) not in {(PRODUCE, "request"), (PRODUCE, "response"), (FETCH, "response")}:
        return None
    if direction == "response":
        ids = version >= BY_ID_FROM
        return None if ids or names.topics is None else SingleTopicRewriter(key, version, direction, names.topics, None)
    topics = names.topics if version < BY_ID_FROM or (names.topics and names.topics.isolates) else None
    leading = names.transactional_ids if version >= 3 else None
    return None if topics is leading is None else SingleTopicRewriter(key, version, direction, topics, leading)
