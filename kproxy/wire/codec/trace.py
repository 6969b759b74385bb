"""The slow reader: walks a layout over bytes and names every value with its path and its place.

Strategy: `trace` yields a Step for each thing on the wire, in wire order, and raises DecodeError, with path and offset,
at the first byte that does not fit. It accepts and refuses exactly what the compiled decoder does; that one says only
that something is wrong and leaves it to this file to say what. `kproxy decode --tree` prints the steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from kproxy.errors import DecodeError
from kproxy.wire.breath import breathe
from kproxy.wire.primitives import (
    COMPACT_READERS,
    MAX_LENGTH,
    READERS,
    Buffer,
    read_compact_length,
    read_int8,
    read_length32,
    read_uvarint,
)
from kproxy.wire.table.layout import FIXED, Slot, Struct

MAX_STEPS = 3_000
"""Values that are looked at to say what is wrong: five to ten milliseconds, in which no other connection is served."""


@dataclass(frozen=True, slots=True)
class TraceStep:
    """Step of a trace: one thing at `[start, end)`. `what` says which:

    value, count (of an array; -1 is null), present (in front of a nullable struct), tags (a tag buffer's count), tag
    (number and size of a tagged field; the value is the number), unknown (the bytes of a tag that the table lacks).
    """

    path: str
    start: int
    end: int
    value: Any
    what: str = "value"
    slot: Slot | None = None


TraceSteps = Iterator[TraceStep]


def smallest(slot: Slot) -> int:
    """Return the fewest bytes one element of this slot takes (the slot itself if it is no array)."""
    if slot.struct is not None:
        return smallest_struct(slot.struct)
    if slot.type in FIXED:
        return FIXED[slot.type][1]
    return 1 if slot.compact else 2 if slot.type == "string" else 4


def smallest_struct(struct: Struct) -> int:
    """Return the fewest bytes a struct takes; what an array's count is measured against before anything is
    allocated."""
    total = int(struct.flexible)
    for slot in struct.slots:
        if slot.array:
            total += 1 if slot.compact else 4
        elif slot.struct is not None and slot.nullable:
            total += 1
        else:
            total += smallest(slot)
    return total


def locate(read: Callable[[Buffer, int], tuple[Any, int]], buf: Buffer, pos: int, path: str) -> tuple[Any, int]:
    """Call a reader; a mistake it finds gets the path."""
    try:
        return read(buf, pos)
    except DecodeError as mistake:
        raise DecodeError(
            mistake.problem, path=path, offset=max(pos, mistake.offset), expected=mistake.expected
        ) from None


def trace(struct: Struct, buf: Buffer, pos: int = 0, path: str = "") -> TraceSteps:
    """Yield every step of this layout from `pos` on. The end of `buf` is the end; bytes after the last field are no
    error."""
    for slot in struct.slots:
        step = None
        for step in trace_slot(slot, buf, pos, f"{path}.{slot.name}" if path else slot.name):
            yield step
        if step is not None:
            pos = step.end
    if struct.flexible:
        yield from trace_tags(struct, buf, pos, path)


def trace_slot(slot: Slot, buf: Buffer, pos: int, path: str) -> TraceSteps:
    if not slot.array:
        yield from trace_one(slot, buf, pos, path)
        return
    count, end = locate(read_compact_length if slot.compact else read_length32, buf, pos, path)
    if count * max(1, smallest(slot)) > len(buf) - end:
        raise DecodeError(
            f"array of {count}, {len(buf) - end} bytes left",
            path=path,
            offset=pos,
            expected=f"at least {smallest(slot)} bytes for each",
        )
    yield TraceStep(path, pos, end, count, "count", slot)
    for index in range(count):
        step = None
        for step in trace_element(slot, buf, end, f"{path}[{index}]"):
            yield step
        if step is not None:
            end = step.end


def trace_one(slot: Slot, buf: Buffer, pos: int, path: str) -> TraceSteps:
    """Yield the steps of a value that is no array; a nullable struct has a byte in front (a varint in a tag buffer)."""
    if slot.struct is not None and slot.nullable:
        value, end = locate(read_int8 if slot.tag is None else read_uvarint, buf, pos, path)
        present = value >= 0 if slot.tag is None else value > 0
        yield TraceStep(path, pos, end, present, "present", slot)
        if not present:
            return
        pos = end
    yield from trace_element(slot, buf, pos, path)


def trace_element(slot: Slot, buf: Buffer, pos: int, path: str) -> TraceSteps:
    if slot.struct is not None:
        yield from trace(slot.struct, buf, pos, path)
        return
    read = (COMPACT_READERS if slot.compact else READERS)[slot.type]
    value, end = locate(read, buf, pos, path)
    yield TraceStep(path, pos, end, value, "value", slot)


def trace_tags(struct: Struct, buf: Buffer, pos: int, parent: str) -> TraceSteps:
    path = f"{parent}._tagged_fields" if parent else "_tagged_fields"
    known = {slot.tag: slot for slot in struct.tagged}
    count, end = locate(read_uvarint, buf, pos, path)
    if count > (len(buf) - end) >> 1:
        raise DecodeError(
            f"{count} tagged fields, {len(buf) - end} bytes left", path=path, offset=pos, expected="2 bytes for each"
        )
    yield TraceStep(path, pos, end, count, "tags")
    last = -1
    for _ in range(count):
        tag, size, start = read_tag(buf, end, path, last)
        last, slot = tag, known.get(tag)
        here = f"{path}[{tag}]" if slot is None else f"{parent}.{slot.name}" if parent else slot.name
        yield TraceStep(here, end, start, tag, "tag", slot)
        end = start + size
        if slot is None:
            yield TraceStep(here, start, end, bytes(buf[start:end]), "unknown")
        else:
            yield from exactly(slot, buf, start, end, here)


def read_tag(buf: Buffer, pos: int, path: str, last: int) -> tuple[int, int, int]:
    """Return number, size, start of the value. Tags ascend (KIP-482)."""
    tag, end = locate(read_uvarint, buf, pos, path)
    if not last < tag <= MAX_LENGTH:
        raise DecodeError(f"tag {tag} after tag {last}", path=path, offset=pos, expected="ascending tags")
    size, start = locate(read_uvarint, buf, end, f"{path}[{tag}]")
    if size > len(buf) - start:
        raise DecodeError(
            f"{len(buf) - start} bytes left", path=path, offset=end, expected=f"{size} bytes of tag {tag}"
        )
    return tag, size, start


def exactly(slot: Slot, buf: Buffer, start: int, end: int, path: str) -> TraceSteps:
    """Check that a known tagged field ends where its size says. Raises DecodeError if it does not."""
    reached = start
    for step in trace_slot(slot, buf, start, path):
        yield step
        reached = step.end
    if reached != end:
        raise DecodeError(
            f"tag {slot.tag} says {end - start} bytes", path=path, offset=start, expected=str(reached - start)
        )


def diagnosis(layout: Struct, data: Buffer, pos: int, api: str, version: int, path: str = "") -> DecodeError:
    """Return the error that says what is wrong with these bytes, and where; roughly where, when it is far behind."""
    last = TraceStep(path, pos, pos, None)
    problem, expected = "cannot be read", ""
    try:
        for step in islice(trace(layout, memoryview(data), pos, path), MAX_STEPS):
            breathe()
            last = step
        if last.end < len(data):
            problem = f"something after {MAX_STEPS} good values cannot be read"
    except DecodeError as mistake:
        last = TraceStep(mistake.path, mistake.offset, mistake.offset, None)
        problem, expected = mistake.problem, mistake.expected
    return DecodeError(problem, api=api, version=version, path=last.path, offset=last.end, expected=expected)
