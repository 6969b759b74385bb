"""A quick test whether a frame can name what rules forbid, before anything of it is read.

Strategy. A rule says which bytes a frame holds if it names what the rule selects (`rules/select/match.py`), and
the frame is searched for all of them at once. Topics that a frame gives by their ids alone are found by a walk, and
their names searched instead. The test may hold for a frame that names nothing of the kind, never the other way round:
a frame too long, an id that nobody has named and bytes that are no such message are left to who reads them.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from uuid import UUID

from kproxy.base.errors import DecodeError
from kproxy.protocol.breath import each
from kproxy.protocol.framing import known_body_start
from kproxy.protocol.primitives import Buffer
from kproxy.protocol.scan.walk import Hits, Walk, walk
from kproxy.protocol.table import layout, schema
from kproxy.protocol.table.layout import ZERO_UUID
from kproxy.rules.kinds.base.rule import Direction
from kproxy.rules.select.frame_match import can_ask_all
from kproxy.rules.select.match import search
from kproxy.rules.select.mentions import TOPICS, loose, parent
from kproxy.session.cluster import Cluster

LONGEST = 1 << 20
"""Bytes of a frame that are searched in one go, which takes about a millisecond."""
ID, NAME = TOPICS[1], TOPICS[0]
LENGTH = 2
"""Bytes in front of a name at most; a null or empty one has no others."""


class NameScan:
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
        """Return True if the frame buf[start:end], without its size, may name what one of the rules selects."""
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
        for number, begin, stop in each(hits):
            meaning = self.meanings[number]
            if meaning == NAME:
                if stop - begin <= LENGTH:
                    return True  # only the id is said
                continue
            if meaning != ID or buf[begin:stop] == ZERO_UUID.bytes:
                continue
            name = cluster.topic_of(UUID(bytes=bytes(buf[begin:stop])))
            if name is None or self.holds(name.encode("utf-8", "surrogateescape")):
                return True
        return False


@cache
def id_walk(key: int, version: int, direction: Direction) -> Walk | None:
    """Return a walk over the topic ids of a message that count; None: there are none. In an answer those that stand
    beside a name do not, but the names that may be null, nor what a request has asked for, if it cannot ask for all."""
    slots = [slot for slot in layout.body(key, version, direction).everywhere() if slot.kind in TOPICS]
    paths = {slot.path for slot in slots if slot.kind == "topic_id"}
    if direction == "response":
        beside = {parent(slot.path): slot for slot in slots if slot.kind == "topic_name" and not slot.array}
        wanted = paths if can_ask_all(key, version) else paths & loose(key, version, direction)
        paths = {path for path in wanted if parent(path) not in beside}
        paths |= {beside[parent(path)].path for path in wanted - paths if beside[parent(path)].nullable}
    return walk(key, version, direction, frozenset(paths)) if paths else None
