"""Source of walks: one function that passes a message and records the spans of the wanted fields.

Strategy. The generated function has one position, `p`. Unwanted fields of fixed width cost nothing: `behind`, the
distance of the reading position from `p` while the source is written, becomes part of the next index (`buf[p + 14]`).
`behind` must be equal where branches meet. Unwanted arrays and strings are one table look-up (`walk_support.near`), an
array of structs of fixed size is a multiplication, other arrays of structs are a loop. `walk_support.UniformArray`
shortens loops without wanted fields.

Bounds. `p` only grows, and counts are compared with the remaining bytes before their loop. One comparison with `end`
after the last field therefore detects a truncated message, even if a read went beyond it in the same buffer. Time is
linear in the length of the frame.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

from kproxy.base.cooperative import yield_point, yielding_range
from kproxy.protocol.codec.decoder import SourceCode, form
from kproxy.protocol.codec.trace import smallest
from kproxy.protocol.primitives import read_uvarint
from kproxy.protocol.table.layout import FIXED, Slot, Struct, loop_over

from .walk_support import (
    LEAST,
    MOST_HITS,
    Bad,
    TooManyHits,
    UniformArray,
    can_be_uniform,
    far,
    far_string,
    near,
    skip_tags,
)

CLASSIC = {"string": ("h", 2), "bytes": ("i", 4), "records": ("i", 4)}


@dataclass(frozen=True, slots=True, eq=False)
class HitMark:
    """Meaning of a hit: `what` (value, count, element, tags, tag, size), the layout's path, the slot if any."""

    what: str
    path: str
    slot: Slot | None


def tags_path(path: str) -> str:
    """Path of the tag buffer of the struct at `path`."""
    return f"{path}._tagged_fields" if path else "_tagged_fields"


def width(struct: Struct) -> int | None:
    """Return the bytes of a struct without variable parts; None if it has some."""
    total = 0
    for slot in struct.slots:
        one = slot_width(slot)
        if one is None:
            return None
        total += one
    return None if struct.flexible else total


def slot_width(slot: Slot) -> int | None:
    if slot.array or (slot.struct is not None and slot.nullable):
        return None
    if slot.struct is not None:
        return width(slot.struct)
    return FIXED[slot.type][1] if slot.type in FIXED else None


class WalkWriter:
    """Writer of the lines of one walk; `marks` are the things its hits refer to, by number."""

    def __init__(self, wanted: AbstractSet[str]) -> None:
        self.put = SourceCode()
        self.wanted = wanted
        self.marks: list[HitMark] = []
        self.behind = 0
        self.put.names.update(
            Bad=Bad,
            TooManyHits=TooManyHits,
            uvarint=read_uvarint,
            far=far,
            far_string=far_string,
            skip_tags=skip_tags,
            near=near(1),
            yield_point=yield_point,
            yielding_range=yielding_range,
        )

    def mark(self, what: str, path: str, slot: Slot | None) -> int:
        self.marks.append(HitMark(what, path, slot))
        return len(self.marks) - 1

    def hit(self, what: str, path: str, slot: Slot | None, start: str, end: str) -> None:
        self.put(f"hits.append(({self.mark(what, path, slot)}, {start}, {end}))")

    def at(self, more: int = 0) -> str:
        ahead = self.behind + more
        return f"p + {ahead}" if ahead else "p"

    def move(self, more: int = 0) -> None:
        """Write the line that brings `p` to the reading position."""
        if self.behind + more:
            self.put(f"p += {self.behind + more}")
        self.behind = 0

    def touches(self, slot: Slot) -> bool:
        """Return True for a wanted slot, or one with a wanted field."""
        return slot.path in self.wanted or (slot.struct is not None and self.inside(slot.struct, slot.path))

    def inside(self, struct: Struct, path: str) -> bool:
        slots = struct.all_slots
        return (struct.flexible and tags_path(path) in self.wanted) or any(self.touches(slot) for slot in slots)

    def struct(self, struct: Struct, path: str) -> None:
        for slot in struct.slots:
            self.slot(slot)
        if struct.flexible:
            self.tag_buffer(struct, path)

    def slot(self, slot: Slot) -> None:
        if slot.array:
            self.array(slot)
        elif slot.struct is not None:
            self.single_struct(slot, slot.struct)
        else:
            self.scalar(slot, slot.path in self.wanted)

    def scalar(self, slot: Slot, wanted: bool) -> None:
        if slot.type in FIXED:
            size = FIXED[slot.type][1]
            if wanted:
                self.hit("value", slot.path, slot, self.at(), self.at(size))
            self.behind += size
            return
        start = self.put.fresh("s")
        if wanted:
            self.put(f"{start} = {self.at()}")
        if slot.compact:
            rest = f"far_string(buf, {self.at()})" if slot.type == "string" else f"far(buf, {self.at()}, 1)"
            self.put(f"p += near[buf[{self.at()}]] or {rest}")
        else:
            code, size = CLASSIC[slot.type]
            self.classic_length(code, size)
            self.put("p += n if n > 0 else 0")
        if wanted:
            self.move()
            self.hit("value", slot.path, slot, start, "p")

    def classic_length(self, code: str, size: int) -> None:
        """Write the lines that read INT16 or INT32 into `n`; -1 is null."""
        unpack = self.put.refer(form(code).unpack_from, "unpack")
        self.put(f"n, = {unpack}(buf, {self.at()})")
        with self.put.block("if n < -1:"):
            self.put("raise Bad")
        self.behind += size

    def single_struct(self, slot: Slot, struct: Struct) -> None:
        start, wanted = self.put.fresh("s"), slot.path in self.wanted
        if wanted:
            self.put(f"{start} = {self.at()}")
        if not slot.nullable:
            self.struct(struct, slot.path)
        else:  # an INT8 in front, negative for null; in a tag buffer an unsigned varint, 0 for null
            if slot.tag is None:
                self.put(f"n = buf[{self.at()}] < 128")
                self.move(1)
            else:
                self.put(f"n, p = uvarint(buf, {self.at()})")
                self.behind = 0
            with self.put.block("if n:"):
                self.struct(struct, slot.path)
                self.move()
        if wanted:
            self.move()
            self.hit("value", slot.path, slot, start, "p")

    def array(self, slot: Slot) -> None:
        size = width(slot.struct) if slot.struct is not None else FIXED.get(slot.type, ("", None))[1]
        if size is None or self.touches(slot):
            self.loop(slot)
        elif slot.compact:
            table = self.put.refer(near(size), "near")
            self.put(f"p += {table}[buf[{self.at()}]] or far(buf, {self.at()}, {size})")
        else:
            self.classic_length("i", 4)
            self.put(f"p += n * {size} if n > 0 else 0")

    def loop(self, slot: Slot) -> None:
        put, wanted = self.put, slot.path in self.wanted
        start = put.fresh("c")
        if slot.compact:
            put(f"{start} = {self.at()}")
            put(f"n = buf[{start}]")
            put(f"p = {start} + 1")
            with put.block("if n > 127:"):
                put(f"n, p = uvarint(buf, {start})")
            put("n -= 1")
            self.behind = 0
        else:
            put(f"{start} = {self.at()}")
            self.classic_length("i", 4)
            self.move()
        if wanted:
            self.hit("count", slot.path, slot, start, "p")
        with put.block(f"if n * {max(1, smallest(slot))} > end - p:"):
            put("raise Bad")
        if not self.touches(slot) and slot.struct is not None and can_be_uniform(slot.struct):
            self.alike(slot, slot.struct)
            return
        with put.block(loop_over(slot, "n")):
            if slot.nests:
                put("yield_point()")
            self.element(slot, wanted)
            if self.touches(slot):
                with put.block(f"if len(hits) > {MOST_HITS}:"):
                    put("raise TooManyHits")

    def alike(self, slot: Slot, struct: Struct) -> None:
        """Write the loop over elements without wanted fields, after those that UniformArray skips."""
        put = self.put
        alike, start, left = put.refer(UniformArray(struct), "alike"), put.fresh("s"), put.fresh("n")
        with put.block(f"if n >= {LEAST}:"):
            put(f"p, n = {alike}.skip(buf, p, n)")
        put(f"{start} = p")
        put(f"{left} = n")
        with put.block(loop_over(slot, left)):
            if slot.nests:
                put("yield_point()")
            self.element(slot, False)
        with put.block(f"if {left} >= {LEAST}:"):
            put(f"{alike}.learn(buf, {start}, {left})")

    def element(self, slot: Slot, wanted: bool) -> None:
        if slot.struct is None:
            self.scalar(slot, wanted)
        else:
            start = self.put.fresh("e")
            if wanted:
                self.put(f"{start} = p")
            self.struct(slot.struct, slot.path)
            if wanted:
                self.move()
                self.hit("element", slot.path, slot, start, "p")
        self.move()

    def tag_buffer(self, struct: Struct, path: str) -> None:
        """Write the lines that pass a tag buffer; the size of a known tag is held against its value."""
        # Brokers read a tag that they know by its type and never look at its size. Unchecked, what lies behind it might
        # be two different things to them and to us, so it is checked also where nothing is wanted.
        put, wanted = self.put, tags_path(path) in self.wanted
        if not wanted and not struct.tagged:
            with put.block(f"if buf[{self.at()}]:"):
                put(f"p = skip_tags(buf, {self.at()}, end) - {self.behind + 1}")
            self.behind += 1
        elif not wanted and not any(map(self.touches, struct.tagged)):
            self.move()
            with put.block("if buf[p]:"):
                self.tags_at(put.fresh("c"), struct)
                put("p -= 1")
            self.behind = 1
        else:
            self.tags_at(put.fresh("c"), struct, tags_path(path) if wanted else "")

    def tags_at(self, start: str, struct: Struct, path: str = "") -> None:
        """Write the lines that pass the tag buffer at the reading position; `start` is to be the name of that, and
        `path` that of a hit."""
        put = self.put
        put(f"{start} = {self.at()}")
        put(f"n = buf[{start}]")
        put(f"p = {start} + 1")
        with put.block("if n > 127:"):
            put(f"n, p = uvarint(buf, {start})")
        self.behind = 0
        if path:
            self.hit("tags", path, None, start, "p")
        with put.block("if n:"):
            with put.block("if n + n > end - p:"):
                put("raise Bad")
            with put.block("for _ in yielding_range(n):"):
                self.tag(struct.tagged)

    def tag(self, slots: Iterable[Slot]) -> None:
        put = self.put
        start, number, size, stop = put.fresh("t"), put.fresh("n"), put.fresh("s"), put.fresh("q")
        put(f"{start} = p")
        put(f"{number}, {size} = uvarint(buf, p)")
        put(f"{stop}, p = uvarint(buf, {size})")
        put(f"{stop} += p")
        with put.block(f"if {stop} > end:"):
            put("raise Bad")
        for slot in slots:
            with put.block(f"if {number} == {slot.tag}:"):
                if self.touches(slot):
                    self.hit("tag", slot.path, slot, start, stop)
                    self.hit("size", slot.path, slot, size, "p")
                self.slot(slot)
                self.move()
                with put.block(f"if p != {stop}:"):
                    put("raise Bad")
        put(f"p = {stop}")


def make_walk(
    struct: Struct, wanted: AbstractSet[str], label: str, *, short: bool = False
) -> tuple[Any, tuple[HitMark, ...]]:
    """Return the function `walk(buf, p, end, hits) → position`, and the marks its hits number."""
    maker = WalkWriter(wanted)
    with maker.put.block("def walk(buf, p, end, hits):"):
        if short:
            for slot in struct.slots[: needed(struct, wanted)]:
                maker.slot(slot)
        else:
            maker.struct(struct, "")
        maker.put(f"return {maker.at()}")
    return maker.put.build("walk", f"{label} walk"), tuple(maker.marks)


def needed(struct: Struct, wanted: AbstractSet[str]) -> int:
    """Return the number of leading fields that contain all wanted ones; the tag buffer counts as one."""
    maker = WalkWriter(wanted)
    if struct.flexible and (tags_path("") in wanted or any(map(maker.touches, struct.tagged))):
        return len(struct.slots) + 1
    return max((number for number, slot in enumerate(struct.slots, 1) if maker.touches(slot)), default=0)


def is_long(slot: Slot) -> bool:
    """Return True if going through a slot takes a loop."""
    return slot.array and slot.struct is not None and width(slot.struct) is None
