"""Readers of entities: those of a request from the bytes of its frame, without decoding the rest of it.

Strategy. A walk notes where the fields lie that identify entities, and nothing else: records are never looked at. These
fields come in the order of the elements, and those of an element before its inner array, so the first of a level's
fields opens an element and the last of the innermost level's completes an entity. An element of an outer level that is
followed by no inner one had an empty (or a null) array, and is an entity itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from struct import Struct as Format
from typing import Any
from uuid import UUID

from kproxy.protocol.breath import each, spread_tuple
from kproxy.protocol.primitives import Buffer
from kproxy.protocol.scan.walk import Hits, Walk, read_string, walk
from kproxy.protocol.table import layout
from kproxy.protocol.table.layout import Slot
from kproxy.protocol.table.shapes import RoleFields, Shape, shape

from .entity import OFFSET, Entity, EntityMaker, maker, with_offset

TOP = -1
FORMATS = {"int8": Format(">b"), "int16": Format(">h"), "int32": Format(">i"), "int64": Format(">q")}

ValueReader = Callable[[Buffer, int, int], Any]


def string_reader(compact: bool) -> ValueReader:
    def read(buf: Buffer, start: int, end: int) -> str | None:
        data = read_string(buf, start, end, compact)
        return None if data is None else data.decode("utf-8", "surrogateescape")

    return read


def number_reader(name: str) -> ValueReader:
    unpack = FORMATS[name].unpack_from

    def read(buf: Buffer, start: int, end: int) -> Any:
        return unpack(buf, start)[0]

    return read


def read_uuid(buf: Buffer, start: int, end: int) -> UUID:
    return UUID(bytes=bytes(buf[start:end]))


def reader(slot: Slot) -> ValueReader:
    """Return the function that reads the value hit of this slot, or of an element of it."""
    if slot.type == "string":
        return string_reader(slot.compact)
    return read_uuid if slot.type == "uuid" else number_reader(slot.type)


@dataclass(frozen=True, slots=True)
class Sighting:
    """Meaning of a hit: a value of this role at this level; whether it opens an element or completes an entity."""

    level: int
    role: str
    read: ValueReader | None
    opens: bool
    completes: bool


class EntityReader:
    """Reader of the entities of one API and version; agrees with `entities` of the decoded message. `offsets`: with the
    offsets that it asks for or commits, which costs a field more of each partition."""

    __slots__ = ("deepest", "make", "seen", "walk")

    def __init__(self, form: Shape, offsets: bool = False) -> None:
        struct = layout.body(form.api.key, form.version, "request")
        slots = {slot.path: slot for slot in struct.everywhere()}
        self.deepest = len(form.request) - 1
        more = () if form.offset is None or not offsets else ((OFFSET, form.offset),)
        self.make: EntityMaker = with_offset(maker(form)) if more else maker(form)
        by_path = dict(sightings(form, slots, more))
        self.walk: Walk = walk(form.api.key, form.version, "request", frozenset(by_path))
        self.seen: tuple[Sighting | None, ...] = tuple(
            by_path[mark.path] if mark.what == what(slots[mark.path]) else None for mark in self.walk.marks
        )

    def read(self, buf: Buffer, body: int, end: int) -> tuple[Entity, ...]:
        """Return the entities of the body at buf[body:end], in its order. Raises DecodeError for bytes that are no
        request."""
        hits: Hits = []
        self.walk.run(buf, body, end, hits)
        seen, deepest, make = self.seen, self.deepest, self.make
        entities: list[Entity] = []
        roles: list[dict[str, Any]] = [{} for _ in range(deepest + 2)]  # known at each level; last, at the top
        index = [-1] * (deepest + 1)
        opened = TOP
        for number, start, stop in each(hits):
            field = seen[number]
            if field is None:
                continue
            level = field.level
            if field.opens:
                if level <= opened < deepest:
                    entities.append(make(roles[opened], tuple(index[: opened + 1])))
                index[level] += 1
                if not index[level]:  # later elements of an array overwrite the keys of the one before
                    roles[level] = dict(roles[level - 1])
                if level < deepest:
                    index[level + 1 :] = [-1] * (deepest - level)
                opened = level
            if field.read is not None:
                roles[level][field.role] = field.read(buf, start, stop)
            if field.completes:
                entities.append(make(roles[level], tuple(index)))
        if opened < deepest or deepest < 0:
            entities.append(make(roles[opened], tuple(index[: opened + 1])))
        return spread_tuple(tuple(entities))


def what(slot: Slot) -> str:
    """Return which hit of this slot's path stands for an element: of an array that is a key as a whole, its count."""
    return "count" if slot.array and slot.struct is not None else "value"


def sightings(form: Shape, slots: dict[str, Slot], more: RoleFields = ()) -> list[tuple[str, Sighting]]:
    """Return the meaning of the hit at each path. The innermost level's last field, in wire order, completes an
    entity. `more`: fields of that level besides those that tell its elements apart."""
    by_path = [
        (field, Sighting(TOP, role, reader(slots[field]), opens=False, completes=False)) for role, field in form.top
    ]
    order = list(slots)
    for number, level in enumerate(form.request):
        innermost = number == len(form.request) - 1
        for array in level.arrays:
            path = f"{level.path.rpartition('.')[0]}.{array}[]".lstrip(".")
            fields = (*level.keys, *more) if innermost else level.keys
            keys = [(key_path(path, field, slots), role) for role, field in fields]
            keys.sort(key=lambda key: order.index(key[0]))
            for place, (where, role) in enumerate(keys):
                read = None if what(slots[where]) == "count" else reader(slots[where])
                seen = Sighting(number, role, read, place == 0, innermost and place == len(keys) - 1)
                by_path.append((where, seen))
    return by_path


def key_path(array: str, field: str, slots: dict[str, Slot]) -> str:
    """Return the path of a key: the array's own if its elements are the values."""
    if field == "*":
        return array
    return f"{array}.{field}" if f"{array}.{field}" in slots else f"{array}.{field}[]"


@cache
def entity_reader(key: int, version: int, offsets: bool = False) -> EntityReader:
    """Return the reader of this API and version. Raises KeyError for one that the protocol table lacks."""
    return EntityReader(shape(key, version), offsets)
