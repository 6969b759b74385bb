"""Slow decoding and encoding, with paths and offsets for error messages and `kproxy decode --tree`.

`trace` yields a step for each thing on the wire, in wire order. It raises DecodeError with path and offset at the first
bad byte, and accepts exactly what the compiled decoder accepts. `complete` returns a dict with exactly the layout's
names, or raises EncodeError with the path of the first bad value. Both run only after compiled code has failed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from kproxy.base.cooperative import yield_point, yielding
from kproxy.base.errors import DecodeError, EncodeError, plural
from kproxy.protocol.primitives import (
    COMPACT_READERS,
    COMPACT_WRITERS,
    MAX_LENGTH,
    READERS,
    WRITERS,
    Buffer,
    read_compact_length,
    read_int8,
    read_length32,
    read_uvarint,
)
from kproxy.protocol.table.layout import FIXED, Slot, Struct

MAX_STEPS = 3_000
"""Values that `diagnosis` reads: five to ten milliseconds without a yield."""


@dataclass(frozen=True, slots=True)
class TraceStep:
    """Step of a trace: one thing at `[start, end)`. `what` is one of:

    value, count (of an array; -1 is null), present (flag before a nullable struct), tags (count of a tag buffer), tag
    (number and size of a tagged field; the value is the number), unknown (the bytes of an unknown tag).
    """

    path: str
    start: int
    end: int
    value: Any
    what: str = "value"
    slot: Slot | None = None


TraceSteps = Iterator[TraceStep]


def smallest(slot: Slot) -> int:
    """Minimum bytes of one element of this slot (of the slot itself if it is not an array)."""
    if slot.struct is not None:
        return smallest_struct(slot.struct)
    if slot.type in FIXED:
        return FIXED[slot.type][1]
    return 1 if slot.compact else 2 if slot.type == "string" else 4


def smallest_struct(struct: Struct) -> int:
    """Minimum bytes of a struct. Counts of arrays are compared with it before anything is allocated."""
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
    """Call a reader, and add the path to its error."""
    try:
        return read(buf, pos)
    except DecodeError as mistake:
        raise DecodeError(
            mistake.problem, path=path, offset=max(pos, mistake.offset), expected=mistake.expected
        ) from None


def trace(struct: Struct, buf: Buffer, pos: int = 0, path: str = "") -> TraceSteps:
    """Yield the steps of this layout from `pos` on, up to the end of `buf`. Bytes after the last field are ignored."""
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
            f"array of {count}, {plural(len(buf) - end, 'byte')} left",
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
    """Yield the steps of a single value. A nullable struct has a byte before it (in a tag buffer a varint)."""
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
            f"{plural(count, 'tagged field')}, {plural(len(buf) - end, 'byte')} left",
            path=path,
            offset=pos,
            expected="2 bytes for each",
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
            f"{plural(len(buf) - start, 'byte')} left", path=path, offset=end, expected=f"{size} bytes of tag {tag}"
        )
    return tag, size, start


def exactly(slot: Slot, buf: Buffer, start: int, end: int, path: str) -> TraceSteps:
    """Yield the steps of a known tagged field. Raises DecodeError if it ends elsewhere than its size."""
    reached = start
    for step in trace_slot(slot, buf, start, path):
        yield step
        reached = step.end
    if reached != end:
        raise DecodeError(
            f"tag {slot.tag} has a length of {end - start} bytes",
            path=path,
            offset=start,
            expected=str(reached - start),
        )


def diagnosis(layout: Struct, data: Buffer, pos: int, api: str, version: int, path: str = "") -> DecodeError:
    """Return the error with problem, path and offset; after MAX_STEPS values the offset is approximate."""
    last = TraceStep(path, pos, pos, None)
    problem, expected = "cannot be read", ""
    try:
        for step in islice(trace(layout, memoryview(data), pos, path), MAX_STEPS):
            yield_point()
            last = step
        if last.end < len(data):
            problem = f"something after {MAX_STEPS} good values cannot be read"
    except DecodeError as mistake:
        last = TraceStep(mistake.path, mistake.offset, mistake.offset, None)
        problem, expected = mistake.problem, mistake.expected
    return DecodeError(problem, api=api, version=version, path=last.path, offset=last.end, expected=expected)


TAGS = "_tagged_fields"


def complete(struct: Struct, value: Any, path: str = "") -> dict[str, Any]:
    """Return a dict that the encoder takes. Null is let through wherever the wire has a null, as readers do."""
    yield_point()
    if not isinstance(value, Mapping):
        raise EncodeError(f"{path or 'message'}: expected a dict, got {value!r:.80}")
    slots = struct.all_slots
    allowed = {slot.name for slot in slots} | ({TAGS} if struct.flexible else set())
    for name in value:
        if name not in allowed:
            raise EncodeError(f"{join(path, name)}: no such field in this version")
    fields = {
        slot.name: checked(slot, value[slot.name], join(path, slot.name)) if slot.name in value else slot.default()
        for slot in slots
    }
    if value.get(TAGS):
        fields[TAGS] = tags(struct, value[TAGS], join(path, TAGS))
    return fields


def join(path: str, name: object) -> str:
    return f"{path}.{name}" if path else str(name)


def checked(slot: Slot, value: Any, path: str) -> Any:
    if not slot.array:
        return checked_one(slot, value, path)
    if value is None:
        return None
    if not isinstance(value, (list, tuple)):
        raise EncodeError(f"{path}: expected a list, got {value!r:.80}")
    return [checked_element(slot, item, f"{path}[{index}]") for index, item in yielding(enumerate(value))]


def checked_one(slot: Slot, value: Any, path: str) -> Any:
    if value is None and slot.struct is not None and slot.nullable:
        return None
    return checked_element(slot, value, path)


def checked_element(slot: Slot, value: Any, path: str) -> Any:
    if slot.struct is not None:
        return complete(slot.struct, value, path)
    try:
        (COMPACT_WRITERS if slot.compact else WRITERS)[slot.type](value)
    except EncodeError as mistake:
        raise EncodeError(f"{path}: {mistake}") from None
    return value


def tags(struct: Struct, value: Any, path: str) -> list[tuple[int, bytes]]:
    """Return unknown tagged fields by ascending number. Raises EncodeError for other values than (tag, bytes) pairs."""
    known, unknown = {slot.tag for slot in struct.tagged}, {}
    if not isinstance(value, (list, tuple)):
        raise EncodeError(f"{path}: expected a list of (tag, bytes), got {value!r:.80}")
    for pair in value:
        match pair:
            case (int() as tag, bytes() | bytearray() | memoryview() as data) if 0 <= tag <= MAX_LENGTH:
                if tag in known or tag in unknown:
                    raise EncodeError(f"{path}: expected unknown tags once each, got tag {tag}")
                unknown[tag] = bytes(data)
            case _:
                raise EncodeError(f"{path}: expected (tag, bytes), got {pair!r:.80}")
    return sorted(unknown.items())
