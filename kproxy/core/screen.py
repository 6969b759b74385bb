"""A first look at a request: which rules can be about the names in it. Most are about none, and are spared all else.

Strategy. A walk reads the fields that rules are indexed by (`PartIndex`), from where entities have them, and nothing
else; the index knows the rules for each name. It gives up where names do not tell: in fetch sessions, which have to be
followed, and for topic ids that nobody has named yet. Then the request is looked at as if there were no first look.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kproxy.rules.entity import SPECIAL
from kproxy.rules.entity_reader import Reader, number_reader, sightings, what
from kproxy.rules.frame_match import OF_ENTITY
from kproxy.wire import layout, schema
from kproxy.wire.breath import each
from kproxy.wire.head import body_start
from kproxy.wire.layout import ZERO_UUID
from kproxy.wire.shapes import Shape, shape
from kproxy.wire.walk import Hits, Walk, walk

from .fetch_sessions import FETCH, SESSIONS_SINCE
from .part_index import PartIndex
from .partition_session import CLOSING
from .rewrite import Buffer
from .share_sessions import SHARE_ACKNOWLEDGE, SHARE_FETCH

if TYPE_CHECKING:
    from .engine import Engine

SHARED = frozenset((SHARE_FETCH, SHARE_ACKNOWLEDGE))
NO_SESSION = {"session_id": 0, "session_epoch": CLOSING}
"""What a Fetch says that belongs to no session (KIP-227)."""


class Screen:
    """Of one (api, version), over the index of its rules."""

    __slots__ = ("frames", "general", "header", "index", "lacking", "seen", "walk")

    def __init__(self, key: int, version: int, index: PartIndex) -> None:
        self.index, self.general = index, index.general
        self.frames = tuple((name, field) for name, field in index.fields.items() if name not in OF_ENTITY)
        self.header = schema.load(key).header_version("request", version)
        self.lacking: frozenset[str] = frozenset()  # fields whose absence has to be noticed
        self.walk: Walk | None = None
        self.seen: tuple[tuple[str, Reader] | None, ...] = ()
        if index.fields.keys() & set(OF_ENTITY):
            self.look_for(shape(key, version))

    def look_for(self, form: Shape) -> None:
        """The fields in which entities have their names."""
        key, version, fields = form.api.key, form.version, self.index.fields
        slots = {slot.path: slot for slot in layout.body(key, version, "request").everywhere()}
        wanted = {*fields, "topic_id"} if "topic" in fields else {*fields}
        places: dict[str, tuple[str, Reader]] = {}
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

    def about(self, engine: Engine, client_id: str | None, buf: Buffer, pos: int, end: int) -> frozenset[int] | None:
        """The rules that can be about the request buf[pos:end], size included. None: that cannot be told here.

        Raises DecodeError.
        """
        found = set(self.general)
        for name, field in self.frames:
            found |= field.about(client_id if name == "client_id" else getattr(engine.view, NAMES[name]))
        if self.walk is None:
            return frozenset(found)
        body = body_start(buf, pos + 4, end, self.header, "request")
        if body is None:
            return None
        hits: Hits = []
        self.walk.run(buf, body, end, hits)
        lacking, fields, seen = self.lacking, self.index.fields, self.seen
        for number, start, stop in each(hits):
            one = seen[number]
            if one is None:
                continue
            role, read = one
            value: Any = read(buf, start, stop)
            if role == "topic_id":
                role = "topic"
                if value == ZERO_UUID:  # it has a name, or none at all
                    value = None
                elif (value := engine.cluster.topic_of(value)) is None:
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
        return frozenset(found)


NAMES = {"principal": "principal", "client_software": "software"}


def screen(key: int, version: int, index: PartIndex) -> Screen | None:
    """None where a first look would tell nothing."""
    if not index.fields or len(index.general) == len(index.parts) or key in SHARED:
        return None
    if version not in schema.load(key).versions:
        return None
    form = shape(key, version)
    roles = {role for keys in (form.top, *(level.keys for level in form.request)) for role, _ in keys}
    return None if roles & SPECIAL else Screen(key, version, index)
