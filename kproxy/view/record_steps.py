"""Steps of the records in a batch, so that a tree can show each with its key, value and headers beside their bytes.

Records of a packed batch have no place of their own in the frame: those stand in the list of records only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kproxy.errors import DecodeError
from kproxy.wire.primitives import read_varint, read_varlong
from kproxy.wire.records import Batch
from kproxy.wire.records.record import wrapped

LONGEST_NAME = 1000
"""Characters of a header's name that its step has."""


def record_steps(batch: Batch, path: str, depth: int, begin: int) -> Iterator[list[Any]]:
    """Yield the steps of a batch's records; nothing behind the first that cannot be read. `path`: of the batch, which
    stands at byte `begin` of its frame; `depth`: of a record."""
    if batch.codec or batch.is_control:
        return
    data, position = batch.payload, 0
    at = begin + len(batch.raw) - len(data)
    try:
        for number in range(batch.count):
            length, body = read_varint(data, position)
            end = body + length
            if not body < end <= len(data):
                return
            time, here = read_varlong(data, body + 1)
            offset, here = read_varint(data, here)
            place = f"{path}[{number}]"
            value = {"offset": wrapped(batch.base_offset + offset), "time": wrapped(batch.base_timestamp + time)}
            yield [at + position, at + end, depth, place, "record", "RECORD", value]
            for name in ("key", "value"):
                size, behind = field_end(data, here, end)
                yield [at + here, at + behind, depth + 1, f"{place}.{name}", "part", "BYTES", bytes_of(size)]
                here = behind
            yield from header_steps(data, here, end, place, depth + 2, at)
            position = end
    except (DecodeError, IndexError):
        return


def header_steps(data: memoryview, here: int, end: int, place: str, depth: int, at: int) -> Iterator[list[Any]]:
    """Yield a step for each header of a record. Raises DecodeError, IndexError."""
    count, here = read_varint(data, here)
    for number in range(count):
        size, behind = field_end(data, here, end)
        name = bytes(data[behind - max(size, 0) : behind]).decode(errors="replace")[:LONGEST_NAME]
        size, behind = field_end(data, behind, end)
        value = {"name": name, "bytes": None if size < 0 else size}
        yield [at + here, at + behind, depth, f"{place}.headers[{number}]", "header", "HEADER", value]
        here = behind


def field_end(data: memoryview, here: int, end: int) -> tuple[int, int]:
    """Return the length of a key or a value, -1 for null, and the place behind it. Raises DecodeError."""
    size, here = read_varint(data, here)
    if size > end - here:
        raise DecodeError(f"field of {size} bytes where {end - here} are left", offset=here)
    return max(size, -1), here + max(size, 0)


def bytes_of(size: int) -> dict[str, int] | None:
    return None if size < 0 else {"bytes": size}
