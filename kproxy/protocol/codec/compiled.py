"""Python source made in memory, turned into functions that tracebacks and debuggers can show; what decoders call.

Strategy: a maker (`make_decoder`, `make_encoder`, `walk`) writes lines into a `SourceCode` and names the objects those
lines use; `build` compiles it once. The source contains only names from the protocol's table, never bytes of a frame.
What compiled decoders call raises one of `FAILURES` for bad bytes, without saying what is wrong with them.
"""

from __future__ import annotations

import linecache
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import count
from struct import Struct
from typing import Any
from uuid import UUID

from kproxy.base.errors import WireError
from kproxy.protocol import breath
from kproxy.protocol.primitives import MAX_LENGTH, MAX_STRING, read_uvarint
from kproxy.protocol.table.layout import ZERO_UUID

numbers = count(1)


class SourceCode:
    """Lines of a function with their indentation, and the objects that stand behind the names in them."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names: dict[str, Any] = {}
        self.depth = 0
        self.last = 0

    def __call__(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    @contextmanager
    def block(self, line: str) -> Iterator[None]:
        """Write a line that ends in a colon; what is written inside the `with` stands below it."""
        self(line)
        self.depth += 1
        yield
        self.depth -= 1

    def fresh(self, prefix: str = "x") -> str:
        """Return a variable name not used before in this source."""
        self.last += 1
        return f"{prefix}{self.last}"

    def refer(self, thing: Any, prefix: str = "K") -> str:
        """Return a name by which the lines can use `thing`."""
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
def form(codes: str) -> Struct:
    """Return the `struct.Struct` of these format codes, big-endian."""
    return Struct(f">{codes}")


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
    """Read a tag buffer in which no tag is known into the dict, and return the position after it."""
    tags = []
    number, p = tag_count(buf, p, end)
    last = -1
    for _ in breath.steps(number):
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
    """Return `count`, if so many elements are looked into. Raises TooManyElements otherwise."""
    if count > MOST_ELEMENTS:
        raise TooManyElements(count)
    return count


def room(count: int) -> list[object]:
    """Return an empty list for so many elements."""
    few(count)
    return [] if breath.BreathState.hook is None else breath.Spread()


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
