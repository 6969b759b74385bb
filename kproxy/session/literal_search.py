"""Prefilters of frames: the names in their bytes select the candidate rules, before anything is decoded.

Strategy. A rule lists the literals of frames that name its entities (`rules/select/match.py`). `LiteralSearch` searches
a frame for all of them at once. For topics that a frame gives by their ids alone, a walk finds the ids, and the search
uses their names. It may have false positives, but no false negatives: frames that are too long, ids without a known
name and malformed messages are left to the decoder.

`NamePrefilter` needs fewer false positives, for requests. A walk reads only the fields that rules are indexed by
(`RuleIndex`), and the index has the rules for each name. Rules that select by names elsewhere in requests, or that
redact responses, use the literal search. If names are not sufficient, the request is decoded as usual: in fetch
sessions, which are tracked, and for topic ids without a known name.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any
from uuid import UUID

from kproxy.base.cooperative import FEW, yielding
from kproxy.base.errors import DecodeError
from kproxy.protocol import Message, decode_request
from kproxy.protocol.framing import known_body_start
from kproxy.protocol.primitives import Buffer
from kproxy.protocol.scan.walk import Hits, Walk, walk
from kproxy.protocol.table import layout, schema
from kproxy.protocol.table.api_keys import (
    CONSUMER_GROUP_HEARTBEAT,
    DESCRIBE_TOPIC_PARTITIONS,
    FETCH,
    SHARE_ACKNOWLEDGE,
    SHARE_FETCH,
    SHARE_GROUP_HEARTBEAT,
)
from kproxy.protocol.table.layout import ZERO_UUID
from kproxy.protocol.table.shapes import Shape, shape
from kproxy.rules.entity import SPECIAL, ValueReader, number_reader, sightings, what
from kproxy.rules.exchange import ConnectionView
from kproxy.rules.kinds.base.rule import Direction
from kproxy.rules.select.frame_match import OF_ENTITY, asks_all, can_ask_all
from kproxy.rules.select.match import search
from kproxy.rules.select.mentions import TOPICS, loose, parent
from kproxy.session.cluster import Cluster
from kproxy.session.compiled_rule import Numbers, RuleIndex
from kproxy.session.fetch_sessions import SESSIONS_SINCE
from kproxy.session.partition_session import CLOSING

if TYPE_CHECKING:
    from kproxy.session.frame import RequestView

LONGEST = 1 << 20
"""Bytes of a frame that are searched in one go, which takes about a millisecond."""
ID, NAME = TOPICS[1], TOPICS[0]
BY_ID = frozenset((CONSUMER_GROUP_HEARTBEAT, SHARE_GROUP_HEARTBEAT))
"""APIs whose responses assign topics by id."""
JOINING = 0  # member epoch of a member that joins
LENGTH = 2
"""Bytes in front of a name at most; a null or empty one has no others."""


class LiteralSearch:
    """Byte search in frames of one (api, version, direction), over the rules of a connection."""

    __slots__ = ("holds", "ids", "meanings", "version")

    def __init__(self, key: int, version: int, direction: Direction, literals: Iterable[bytes]) -> None:
        self.holds = search(frozenset(literals))
        self.version = schema.load(key).header_version(direction, version)
        self.ids = id_walk(key, version, direction)
        slots = {slot.path: slot for slot in layout.body(key, version, direction).everywhere()}
        marks = () if self.ids is None else self.ids.marks
        self.meanings = [slots[mark.path].kind if mark.what == "value" else None for mark in marks]

    def may_name(self, cluster: Cluster, buf: Buffer, start: int, end: int, direction: Direction) -> bool:
        """Return True if the frame buf[start:end], without its size, may name entities that one of the rules
        selects."""
        if end - start > LONGEST or self.holds(bytes(buf[start:end])):
            return True
        return self.ids is not None and self.may_name_by_id(self.ids, cluster, buf, start, end, direction)

    def may_name_by_id(
        self, ids: Walk, cluster: Cluster, buf: Buffer, start: int, end: int, direction: Direction
    ) -> bool:
        """Return True if a topic that the frame gives by its id may be selected."""
        body = known_body_start(buf, start, end, self.version, direction)
        hits: Hits = []
        try:
            if body is None:
                return True
            ids.run(buf, body, end, hits)
        except DecodeError:
            return True
        for number, begin, stop in yielding(hits):
            meaning = self.meanings[number]
            if meaning == NAME:
                if stop - begin <= LENGTH:
                    return True  # only the id is given
                continue
            if meaning != ID or buf[begin:stop] == ZERO_UUID.bytes:
                continue
            name = cluster.topic_of(UUID(bytes=bytes(buf[begin:stop])))
            if name is None or self.holds(name.encode("utf-8", "surrogateescape")):
                return True
        return False


@cache
def id_walk(key: int, version: int, direction: Direction) -> Walk | None:
    """Return a walk over the relevant topic ids of a message; None: there are none. In a response, ids next to a name
    do not count, but nullable names do. Fields requested by the client do not count, unless it can request all."""
    slots = [slot for slot in layout.body(key, version, direction).everywhere() if slot.kind in TOPICS]
    paths = {slot.path for slot in slots if slot.kind == "topic_id"}
    if direction == "response":
        beside = {parent(slot.path): slot for slot in slots if slot.kind == "topic_name" and not slot.array}
        wanted = paths if can_ask_all(key, version) else paths & loose(key, version, direction)
        paths = {path for path in wanted if parent(path) not in beside}
        paths |= {beside[parent(path)].path for path in wanted - paths if beside[parent(path)].nullable}
    return walk(key, version, direction, frozenset(paths)) if paths else None


SHARED = frozenset((SHARE_FETCH, SHARE_ACKNOWLEDGE))
NO_SESSION = {"session_id": 0, "session_epoch": CLOSING}
"""Fields of a Fetch that belongs to no session (KIP-227)."""


class NamePrefilter:
    """Prefilter of one (api, version) by names, over the index of its rules."""

    __slots__ = ("frames", "general", "index", "joins", "lacking", "lists", "scan", "scanned", "seen", "walk")

    def __init__(self, key: int, version: int, index: RuleIndex, scanned: Numbers) -> None:
        self.index, self.general = index, index.general - scanned
        self.scanned, self.lists, self.joins = scanned, can_ask_all(key, version), key in BY_ID
        self.scan: LiteralSearch | None = None
        if scanned:
            letters = chain.from_iterable(index.parts[number].letters or () for number in scanned)
            self.scan = LiteralSearch(key, version, "request", letters)
        self.frames = tuple((name, field) for name, field in index.fields.items() if name not in OF_ENTITY)
        self.lacking: frozenset[str] = frozenset()  # fields whose absence is significant
        self.walk: Walk | None = None
        self.seen: tuple[tuple[str, ValueReader] | None, ...] = ()
        if index.fields.keys() & set(OF_ENTITY):
            self.look_for(shape(key, version))

    def look_for(self, form: Shape) -> None:
        """Compile the walk that reads the fields with names of entities."""
        key, version, fields = form.api.key, form.version, self.index.fields
        slots = {slot.path: slot for slot in layout.body(key, version, "request").everywhere()}
        wanted = {*fields, "topic_id"} if "topic" in fields else {*fields}
        places: dict[str, tuple[str, ValueReader]] = {}
        for path, seen in sightings(form, slots):
            if seen.role not in wanted:
                continue
            assert seen.read is not None, f"{path} of {form.api.name} is a name"
            places[path] = seen.role, seen.read
            if seen.level > 0:  # an entity of a level around this one has no such name, whatever others have
                self.general |= fields["topic" if seen.role == "topic_id" else seen.role].lenient
        if key == FETCH and version >= SESSIONS_SINCE:
            places |= {path: (path, number_reader(slots[path].type)) for path in NO_SESSION}
        self.walk = walk(key, version, "request", frozenset(places))
        self.seen = tuple(
            places[mark.path] if mark.what == what(slots[mark.path]) else None for mark in self.walk.marks
        )
        self.lacking = frozenset(name for name in OF_ENTITY if name in fields and fields[name].lenient)

    def candidates(self, frame: RequestView, view: ConnectionView, cluster: Cluster) -> frozenset[int] | None:
        """Return the numbers of the rules that can apply to the complete request. None: names are not sufficient.
        Without any, its response may still mention names forbidden by rules that screen responses.

        Raises DecodeError.
        """
        found: Numbers | None = self.general
        if self.walk is not None or self.frames:
            found = self.named(frame, view, cluster)
        if self.scan is None or found is None:
            return found
        may_name = self.scan.may_name(cluster, frame.buf, frame.start + 4, frame.end, "request")
        if found or may_name or self.matters(frame):
            return found | self.scanned
        return found

    def matters(self, frame: RequestView) -> bool:
        """Return True if rules apply to the request though it names nothing: it requests all, or joins."""
        if not (self.lists or self.joins):
            return False
        request = decode_request(frame.content(), trailing=True)
        return asks_all(request) or (self.joins and joins(request))

    def named(self, frame: RequestView, view: ConnectionView, cluster: Cluster) -> Numbers | None:
        """Return the rules that the index finds, without those found by literals; None: names are not sufficient."""
        found = self.general
        for name, field in self.frames:
            found |= field.about(frame.client_id if name == "client_id" else getattr(view, NAMES[name]))
        if self.walk is None:
            return found
        buf, body = frame.buf, frame.body
        if body is None:
            return None
        hits: Hits = []
        self.walk.run(buf, body, frame.end, hits)
        lacking, fields, seen = self.lacking, self.index.fields, self.seen
        for number, start, stop in hits if len(hits) < FEW else yielding(hits):
            one = seen[number]
            if one is None:
                continue
            role, read = one
            value: Any = read(buf, start, stop)
            if role == "topic_id":
                role = "topic"
                if value == ZERO_UUID:  # it has a name, or none at all
                    value = None
                elif (value := cluster.topic_of(value)) is None:
                    return None
            elif role in NO_SESSION:
                if value != NO_SESSION[role]:
                    return None
                continue
            if value is not None:
                if role in lacking:
                    lacking -= {role}
                found |= fields[role].about(value)
            else:
                found |= fields[role].lenient
        for name in lacking:
            found |= fields[name].lenient
        return found


NAMES = {"principal": "principal", "client_software": "software"}


def name_prefilter(key: int, version: int, index: RuleIndex) -> NamePrefilter | None:
    """Return the NamePrefilter of this API and version; None: names are not sufficient."""
    if key in SHARED or version not in schema.load(key).versions:
        return None
    scanned = frozenset[int]() if key == DESCRIBE_TOPIC_PARTITIONS else index.scanned
    if len(index.general - scanned) == len(index.parts):
        return None
    form = shape(key, version)
    roles = {role for keys in (form.top, *(level.keys for level in form.request)) for role, _ in keys}
    return None if roles & SPECIAL else NamePrefilter(key, version, index, scanned)


def joins(request: Message) -> bool:
    """Return True if a heartbeat of an API of `BY_ID` comes from a member that joins its group."""
    return bool(request.body["member_epoch"] == JOINING)
