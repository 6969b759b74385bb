"""Compiled decoders: `decode(buf, p, end)` returns `(dict, position)`; and the source writer of all compiled code.

A maker (`make_decoder`, `make_encoder`, `make_walk`) writes lines into a `SourceCode`, which `build` compiles once. The
source contains names of the protocol table only, never bytes of a frame. Tracebacks and debuggers show it.

A decoder is inline code with one loop per array of structs. Adjacent fields of fixed width are one `struct` call, with
a classic length that follows them. `buf` is `bytes` and ends at `end`. Bad bytes raise one of `FAILURES`; `trace.py`
then finds path and offset. Counts and lengths are compared with the remaining bytes before anything is allocated.
"""

from __future__ import annotations

import linecache
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import count
from struct import calcsize
from typing import Any
from uuid import UUID

from kproxy.base import cooperative
from kproxy.base.cooperative import FEW, yield_point, yielding_range
from kproxy.base.errors import WireError
from kproxy.protocol.primitives import MAX_LENGTH, MAX_STRING, read_uvarint
from kproxy.protocol.table.layout import FIXED, ZERO_UUID, Slot, Struct, loop_over

from .trace import smallest

numbers = count(1)


class SourceCode:
    """Lines of a function with their indentation, and the objects that its names refer to."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names: dict[str, Any] = {}
        self.depth = 0
        self.last = 0

    def __call__(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    @contextmanager
    def block(self, line: str) -> Iterator[None]:
        """Write a line that ends in a colon; lines written in the `with` block are indented below it."""
        self(line)
        self.depth += 1
        yield
        self.depth -= 1

    def fresh(self, prefix: str = "x") -> str:
        self.last += 1
        return f"{prefix}{self.last}"

    def refer(self, thing: Any, prefix: str = "K") -> str:
        """Return a name for `thing` in the source."""
        for name, known in self.names.items():
            if known is thing:
                return name
        name = self.fresh(prefix)
        self.names[name] = thing
        return name

    def build(self, function: str, label: str) -> Any:
        """Compile, and give the function of this name. `label` is the file name that tracebacks show."""
        filename = f"<kproxy {label} #{next(numbers)}>"
        text = "\n".join(self.lines) + "\n"
        linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
        exec(compile(text, filename, "exec"), self.names)  # only names from the table get here
        return self.names[function]


@cache
def form(codes: str) -> struct.Struct:
    """Return the `struct.Struct` of these format codes, big-endian."""
    return struct.Struct(f">{codes}")


@cache
def packer(codes: str) -> Callable[..., bytes]:
    """Return `struct.Struct.pack` of these format codes, big-endian; the same object for the same codes."""
    return form(codes).pack


@cache
def unpacker(codes: str) -> Callable[[bytes, int], tuple[Any, ...]]:
    """Return `struct.Struct.unpack_from` of these format codes, big-endian; the same object for the same codes."""
    return form(codes).unpack_from


class Misfit(WireError):
    """Failure of a compiled decoder at bytes that do not fit; never leaves this package."""


FAILURES = (IndexError, struct.error, WireError)
SHORT_ARRAY = 64
"""Arrays of fixed width below this length use a prepared `struct.Struct`."""


ZERO = bytes(16)


def to_uuid(raw: bytes) -> UUID:
    return ZERO_UUID if raw == ZERO else UUID(bytes=raw)


def long_length(buf: bytes, pos: int) -> tuple[int, int]:
    """Read a compact length of more than one byte, as length + 1."""
    value, pos = read_uvarint(buf, pos)
    if value > MAX_LENGTH:
        raise Misfit
    return value, pos


def long_string(buf: bytes, pos: int) -> tuple[int, int]:
    value, pos = read_uvarint(buf, pos)
    if value > MAX_STRING + 1:
        raise Misfit
    return value, pos


def unknown_tags(buf: bytes, p: int, end: int, value: dict[str, Any]) -> int:
    """Read a tag buffer without known tags into the dict, and return the position after it."""
    tags = []
    number, p = tag_count(buf, p, end)
    last = -1
    for _ in cooperative.yielding_range(number):
        last, p, q = tag_head(buf, p, end, last)
        tags.append((last, buf[p:q]))
        p = q
    if tags:
        value["_tagged_fields"] = tags
    return p


def tag_count(buf: bytes, p: int, end: int) -> tuple[int, int]:
    number, p = read_uvarint(buf, p)
    if number > (end - p) >> 1:
        raise Misfit
    return few(number), p


def tag_head(buf: bytes, p: int, end: int, last: int) -> tuple[int, int, int]:
    """Return the tag, and start and end of its value; tags ascend (KIP-482)."""
    tag, p = read_uvarint(buf, p)
    size, p = read_uvarint(buf, p)
    if not last < tag <= MAX_LENGTH or size > end - p:
        raise Misfit
    return tag, p, p + size


class TooManyElements(Misfit):
    """Refusal of an array of more elements than are looked into. `count`: how many it has."""

    def __init__(self, count: int) -> None:
        super().__init__(f"an array of {count} elements, of which at most {MOST_ELEMENTS} are looked into")


MOST_ELEMENTS = 500_000
"""Elements of one array that are looked into, which take 200 MB and more. A walk lists as many (`walk_support.py`)."""


def few(count: int) -> int:
    """Return `count`. Raises TooManyElements above MOST_ELEMENTS."""
    if count > MOST_ELEMENTS:
        raise TooManyElements(count)
    return count


def room(count: int) -> list[object]:
    """Return an empty list for `count` elements; one that yields during iteration if a hook is installed."""
    few(count)
    return [] if cooperative.YieldState.hook is None else cooperative.YieldingList()


@cache
def unpackers(code: str) -> tuple[Any, ...]:
    return tuple(unpacker(f"{length}{code}") for length in range(SHORT_ARRAY))


NAMES = {
    "Misfit": Misfit,
    "few": few,
    "room": room,
    "long_length": long_length,
    "long_string": long_string,
    "read_uvarint": read_uvarint,
    "unknown_tags": unknown_tags,
    "tag_count": tag_count,
    "tag_head": tag_head,
    "to_uuid": to_uuid,
    "unpack_from": struct.unpack_from,
}


LENGTHS = {"string": "h", "bytes": "i", "records": "i"}
"""Format codes of the lengths in front of classic values."""


class DecoderWriter:
    """Writer of the lines that read one thing; each method gives the expression that then holds the value."""

    def __init__(self) -> None:
        self.put = SourceCode()
        self.put.names.update(NAMES, yield_point=yield_point, yielding_range=yielding_range)
        self.tagged: list[tuple[str, Struct]] = []  # tag functions still to be written

    def struct(self, layout: Struct) -> str:
        """Write the lines that read a struct, and return the variable that holds its dict."""
        put = self.put
        values: dict[str, str] = {}
        run: list[Slot] = []
        for slot in layout.slots:
            if not slot.array and slot.type in FIXED:
                run.append(slot)
                continue
            length = self.classic_code(slot)
            count = self.run(run, values, length)
            run = []
            values[slot.name] = self.slot(slot, count)
        self.run(run, values, "")
        for slot in layout.tagged:
            values[slot.name] = self.default(slot)
        variable = put.fresh("d")
        put(f"{variable} = {{{', '.join(f'{name!r}: {value}' for name, value in values.items())}}}")
        if layout.flexible:
            self.tags(layout, variable)
        return variable

    def classic_code(self, slot: Slot) -> str:
        if slot.compact:
            return ""
        return "i" if slot.array else LENGTHS.get(slot.type, "")

    def run(self, slots: list[Slot], values: dict[str, str], length: str) -> str:
        """Write the line that reads fields of fixed width, and a length after them, in one go; return the variable of
        the length."""
        codes = "".join(FIXED[slot.type][0] for slot in slots) + length
        if not codes:
            return ""
        put = self.put
        names = [put.fresh() for _ in slots] + ([put.fresh("n")] if length else [])
        put(f"{', '.join(names)}, = {put.refer(unpacker(codes), 'S')}(buf, p)")
        put(f"p += {calcsize('>' + codes)}")
        for slot, name in zip(slots, names, strict=False):
            values[slot.name] = f"to_uuid({name})" if slot.type == "uuid" else name
        return names[-1] if length else ""

    def default(self, slot: Slot) -> str:
        value = slot.default()
        return repr(value) if literal(value) else f"{self.put.refer(slot.default)}()"

    def slot(self, slot: Slot, count: str) -> str:
        """Write the lines that read what is not of fixed width; `count` holds a classic length that was read
        already."""
        if slot.array:
            return self.array(slot, count)
        if slot.struct is None:
            return self.sized(slot, count)
        if not slot.nullable:
            return self.struct(slot.struct)
        put, found = self.put, self.put.fresh()
        put(f"{found} = None")
        put("n = buf[p]")
        put("p += 1")
        with put.block("if n < 128:"):
            put(f"{found} = {self.struct(slot.struct)}")
        return found

    def compact(self, helper: str) -> str:
        """Write the lines that read a compact length into a variable, as length + 1."""
        put, name = self.put, self.put.fresh("n")
        put(f"{name} = buf[p]")
        put("p += 1")
        with put.block(f"if {name} > 127:"):
            put(f"{name}, p = {helper}(buf, p - 1)")
        return name

    def null(self, count: str) -> None:
        with self.put.block(f"if {count} != -1:"):
            self.put("raise Misfit")

    def sized(self, slot: Slot, count: str) -> str:
        put, found = self.put, self.put.fresh()
        if not count:
            name = self.compact("long_string" if slot.type == "string" else "long_length")
            test, size = f"if {name}:", f"{name} - 1"
        else:
            test, size = f"if {count} >= 0:", count
        with put.block(test):
            put(f"q = p + {size}")
            with put.block("if q > end:"):
                put("raise Misfit")
            piece = "str(buf[p:q], 'utf-8', 'surrogateescape')" if slot.type == "string" else "view[p:q]"
            put(f"{found} = {piece}")
            put("p = q")
        with put.block("else:"):
            if count:
                self.null(count)
            put(f"{found} = None")
        return found

    def array(self, slot: Slot, count: str) -> str:
        put, found = self.put, self.put.fresh("a")
        if not count:
            name = self.compact("long_length")
            count = put.fresh("n")
            put(f"{count} = {name} - 1")
        with put.block(f"if {count} >= 0:"):
            with put.block(f"if {count} * {max(1, smallest(slot))} > end - p:"):
                put("raise Misfit")
            self.elements(slot, count, found)
        with put.block("else:"):
            self.null(count)
            put(f"{found} = None")
        return found

    def elements(self, slot: Slot, count: str, found: str) -> None:
        put = self.put
        if slot.type == "uuid":
            put(f"{found} = [to_uuid(buf[p + 16 * i:p + 16 * i + 16]) for i in yielding_range(few({count}))]")
            put(f"p += {count} * 16")
        elif slot.type in FIXED:
            code, size = FIXED[slot.type]
            table = put.refer(unpackers(code), "T")
            with put.block(f"if {count} < {SHORT_ARRAY}:"):
                put(f"{found} = list({table}[{count}](buf, p))")
            with put.block("else:"):
                put(f"{found} = list(unpack_from('>%d{code}' % few({count}), buf, p))")
            put(f"p += {count} * {size}")
        else:
            put(f"{found} = [] if {count} < {FEW} else room({count})")
            with put.block(loop_over(slot, count)):
                if slot.nests:
                    put("yield_point()")
                put(f"{found}.append({self.element(slot)})")

    def element(self, slot: Slot) -> str:
        if slot.struct is not None:
            return self.struct(slot.struct)
        return self.sized(slot, self.run([], {}, self.element_code(slot)))

    def element_code(self, slot: Slot) -> str:
        return "" if slot.compact else LENGTHS[slot.type]

    def tags(self, layout: Struct, found: str) -> None:
        name = "unknown_tags"
        if layout.tagged:
            name = self.put.fresh("tags")
            self.tagged.append((name, layout))
        with self.put.block("if buf[p]:"):
            self.put(f"p = {name}(buf, p, end, {found})")
        with self.put.block("else:"):
            self.put("p += 1")

    def tag_function(self, name: str, layout: Struct) -> None:
        """Write the function that reads a tag buffer into the dict `value`; the size of a known tag has to fit its
        value."""
        put = self.put
        with put.block(f"def {name}(buf, p, end, value):"):
            put("view = memoryview(buf)")
            put("others = []")
            put("tag = -1")
            put("number, p = tag_count(buf, p, end)")
            with put.block("for _ in yielding_range(number):"):
                put("tag, p, stop = tag_head(buf, p, end, tag)")
                for slot in layout.tagged:
                    with put.block(f"if tag == {slot.tag}:"):
                        put(f"value[{slot.name!r}] = {self.tag_value(slot)}")
                        with put.block("if p != stop:"):
                            put("raise Misfit")
                        put("continue")
                put("others.append((tag, buf[p:stop]))")
                put("p = stop")
            with put.block("if others:"):
                put("value['_tagged_fields'] = others")
            put("return p")

    def tag_value(self, slot: Slot) -> str:
        if slot.struct is not None and slot.nullable and not slot.array:  # a varint 0 or 1 in front, not an INT8
            put, found = self.put, self.put.fresh()
            put(f"{found} = None")
            put("n, p = read_uvarint(buf, p)")
            with put.block("if n:"):
                put(f"{found} = {self.struct(slot.struct)}")
            return found
        values: dict[str, str] = {}
        if not slot.array and slot.type in FIXED:
            self.run([slot], values, "")
            return values[slot.name]
        return self.slot(slot, self.run([], {}, self.classic_code(slot)))


def literal(value: Any) -> bool:
    """Return True if the text of a default makes a fresh one, as a struct of numbers does; to call `default` takes ten
    times as long."""
    if isinstance(value, dict):
        return all(literal(inner) for inner in value.values())
    return value is None or isinstance(value, (bool, int, str))


def make_decoder(layout: Struct, label: str, maker: DecoderWriter | None = None) -> Any:
    """Return the function `decode(buf: bytes, p: int, end: int) -> (dict, position)` of this layout.

    `maker`: one that writes other lines for some fields.
    """
    maker = maker or DecoderWriter()
    put = maker.put
    with put.block("def decode(buf, p, end):"):
        put("view = memoryview(buf)")
        put(f"return {maker.struct(layout)}, p")
    while maker.tagged:
        maker.tag_function(*maker.tagged.pop(0))
    return put.build("decode", f"{label} decode")
