"""Functions that compiled encoders call: bytes, arrays, tag buffers.

Every function here raises one of FAILURES for values that do not fit; `complete.py` then says what is wrong with them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any

from kproxy.errors import EncodeError
from kproxy.wire.breath import each, ordered
from kproxy.wire.primitives import MAX_LENGTH, Buffer, write_compact_string, write_int32, write_string, write_uvarint

from .compiled import packer

FAILURES = (KeyError, TypeError, AttributeError, ValueError, OverflowError, struct.error, EncodeError)
SHORT_ARRAY = 64
"""Arrays of fixed width below this length are written, with their count, by one prepared `struct.Struct`."""
BOOLS = {True: True, False: False}
Add = Callable[[Buffer], None]


def listed(value: Any) -> Sequence[Any]:
    """Return the value if it is a list or a tuple; a str or a dict would pass for an array otherwise. Raises
    EncodeError."""
    if isinstance(value, (list, tuple)):
        return value
    raise EncodeError("not a list")


def add_bytes(add: Add, value: Any, compact: bool) -> None:
    """Add bytes with their length, not copied. Raises EncodeError for what is no bytes."""
    if value is None:
        add(b"\x00" if compact else b"\xff\xff\xff\xff")
        return
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise EncodeError("not bytes")
    if type(value) is memoryview and (value.itemsize != 1 or not value.c_contiguous):
        value = bytes(value)
    add(write_uvarint(len(value) + 1) if compact else write_int32(len(value)))
    add(value)


def others(value: dict[str, Any], known: int) -> Iterable[tuple[int, bytes]]:
    """Return the unknown tags of a dict that has more names than `known`."""
    if len(value) == known + 1:
        return value["_tagged_fields"] or ()
    raise EncodeError("not the names of this version")


def spare(tags: Iterable[tuple[int, Buffer]], known: frozenset[int]) -> list[tuple[int, Buffer]]:
    """Return unknown tags, none of which may have the number of a known field. Raises EncodeError if one has."""
    listed_tags = list(tags)
    if any(tag in known for tag, _ in each(listed_tags)):
        raise EncodeError("a known tag among the unknown")
    return listed_tags


def add_tags(add: Add, tags: Iterable[tuple[int, Buffer]]) -> None:
    """Add a tag buffer, by ascending number. Raises EncodeError for a bad tag."""
    all_tags = list(ordered(tags, lambda pair: pair[0]))
    add(write_uvarint(len(all_tags)))
    last = -1
    for tag, data in each(all_tags):
        if not last < tag <= MAX_LENGTH or not isinstance(data, (bytes, bytearray, memoryview)):
            raise EncodeError("bad tag")
        last = tag
        add(write_uvarint(tag))
        add(write_uvarint(len(data)))
        add(bytes(data))


@cache
def packers(code: str, compact: bool) -> tuple[Any, ...]:
    count = "B" if compact else "i"
    return tuple(packer(f"{count}{length}{code}") for length in range(SHORT_ARRAY))


@cache
def long_packer(code: str, compact: bool) -> Callable[[Sequence[Any]], bytes]:
    def pack(values: Sequence[Any]) -> bytes:
        count = write_uvarint(len(values) + 1) if compact else write_int32(len(values))
        return count + struct.pack(f">{len(values)}{code}", *values)

    return pack


NAMES = {
    "BOOLS": BOOLS,
    "EncodeError": EncodeError,
    "add_bytes": add_bytes,
    "add_tags": add_tags,
    "listed": listed,
    "others": others,
    "spare": spare,
    "write_int32": write_int32,
    "write_string": write_string,
    "write_compact_string": write_compact_string,
    "write_uvarint": write_uvarint,
}
