"""Steps of the records in a batch, so that a tree can show each with its key, value and headers beside their bytes.

Records of a packed batch have no place of their own in the frame: their steps have the place of all that is packed, say
`packed`, and bring the bytes of keys, values and headers, as long as there is room for them.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from typing import Any

from kproxy.base.errors import DecodeError, RecordsError
from kproxy.protocol.primitives import read_varint, read_varlong
from kproxy.protocol.records import Batch, Record
from kproxy.protocol.records.record import wrapped
from kproxy.record.observer.records import MOST_BYTES, NotKept, Unpacked

LONGEST_NAME = 1000
"""Characters of a header's name that its step has."""
MOST_HEADERS = 20_000
"""Headers of all packed records in one frame."""
MOST_PACKED = 1 << 20
"""Bytes of packed keys, values and headers that the steps of one frame have."""


class PackedRecords:
    """Steps of the records in the packed batches of one frame, which are unpacked as far as there is room."""

    def __init__(self) -> None:
        self.unpacked, self.room = Unpacked(MOST_BYTES, MOST_HEADERS), MOST_PACKED
        self.is_full = False

    def steps(self, batch: Batch, path: str, depth: int, begin: int) -> Iterator[list[Any]]:
        """Yield the steps of a batch's records, as `record_steps` does; none of a batch that cannot be unpacked."""
        end = begin + len(batch.raw)
        here = end - len(batch.payload)
        try:
            for number, record in enumerate(() if self.is_full else self.unpacked.records(batch, stored=True)):
                yield from self.of(record, f"{path}[{number}]", depth, here, end)
        except NotKept:
            self.is_full = True
        except RecordsError:
            return

    def of(self, record: Record, place: str, depth: int, start: int, end: int) -> Iterator[list[Any]]:
        """Yield the steps of one record, all with the place of what is packed."""
        value = {"offset": record.offset, "time": record.timestamp, "packed": True}
        yield [start, end, depth, place, "record", "RECORD", value]
        for name, part in (("key", record.key), ("value", record.value)):
            yield [start, end, depth + 1, f"{place}.{name}", "part", "BYTES", self.bytes_in(part)]
        for number, (name, part) in enumerate(record.headers):
            shown = {"bytes": None, "packed": True} if part is None else self.bytes_in(part)
            named = {"name": name[:LONGEST_NAME].encode("utf-8", "replace").decode(), **(shown or {})}
            yield [start, end, depth + 2, f"{place}.headers[{number}]", "header", "HEADER", named]

    def bytes_in(self, part: bytes | None) -> dict[str, Any] | None:
        """Return the length of a key or a value with its bytes in base64, null if there is no room for those."""
        if part is None:
            return None
        fits = len(part) <= self.room
        self.room -= len(part) if fits else 0
        return {"bytes": len(part), "packed": True, "data": b64encode(part).decode() if fits else None}


def record_steps(batch: Batch, path: str, depth: int, begin: int) -> Iterator[list[Any]]:
    """Yield the steps of the records of a batch without a codec; nothing behind the first that cannot be read. `path`:
    of the batch, which stands at byte `begin` of its frame; `depth`: of a record."""
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
