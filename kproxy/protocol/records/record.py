"""Records as users see them, and their form inside a batch of magic 2.

    length varint · attributes int8 (unused) · timestamp delta varlong · offset delta varint · key · value ·
    header count varint · headers, each: key · value

Keys and values are a varint length (-1: null) and bytes; a header's key is never null. All varints are zigzag, the
deltas count from the batch's base and wrap around at 64 bits, as Java's do, and the length must be used up exactly.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from kproxy.base.cooperative import FEW, free_by_parts, yield_point, yielding, yielding_range
from kproxy.base.errors import DecodeError, EncodeError, RecordsError, plural
from kproxy.protocol.codec import structs as codec
from kproxy.protocol.primitives import read_varint, read_varlong, write_varint, write_varlong
from kproxy.protocol.table import layout, schema

HEADERS_LIMIT = 100_000
"""Headers in one record. Two bytes make one, so that without a limit a frame of 100 MB would become 5 GB of objects."""
ANY_HEADERS = 1 << 62
"""Limit of the headers of all records where none applies."""


@free_by_parts
@dataclass(frozen=True, slots=True)
class Record:
    """Record of any magic: offset and timestamp absolute (-1: magic 0 has none), None for null.

    Headers in order, keys as `str` (bytes that are not UTF-8 become surrogates and come back unchanged).
    """

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    attributes: int = 0


SHORTEST_RECORD, SHORTEST_HEADER = 7, 2
"""Bytes of a record without key, value and headers, its length among them; of a header without name and value."""


def size_of(record: Record) -> int:
    """Return the bytes that a user has put into a record."""
    headers = sum(
        len(key.encode("utf-8", "surrogateescape")) + len(value or b"") for key, value in yielding(record.headers)
    )
    return len(record.key or b"") + len(record.value or b"") + headers


def least_size(record: Record) -> int:
    """Return the bytes that a record takes in a batch at least, so that what comes out of a codec can be counted:
    headers count as keys and values do, and so do records of nothing."""
    return size_of(record) + SHORTEST_RECORD + SHORTEST_HEADER * len(record.headers)


class TooManyHeaders(DecodeError):
    """Error of a record with more headers than are read."""


def read_records(
    data: memoryview, count: int, base_offset: int, base_timestamp: int, headers: int = ANY_HEADERS
) -> Iterator[Record]:
    """Yield the `count` records that fill `data`. Raises RecordsError where they do not, and where they have more than
    `headers` together, or one of them more than HEADERS_LIMIT."""
    left = headers
    position = done = 0
    for number in range(count):
        try:
            record, position = read_record(data, position, base_offset, base_timestamp, left)
        except (DecodeError, IndexError) as problem:
            raise RecordsError(f"record {number} of {count} at byte {position}: {problem}") from problem
        left -= len(record.headers)
        yield record
        done += 1 + len(record.headers)
        if done >= FEW:
            done = 0
            yield_point()
    if position != len(data):
        raise RecordsError(f"{plural(len(data) - position, 'byte')} left after {plural(count, 'record')}")


def read_record(
    data: memoryview, position: int, base_offset: int, base_timestamp: int, most_headers: int = ANY_HEADERS
) -> tuple[Record, int]:
    length, position = read_varint(data, position)
    end = position + length
    if not position < end <= len(data):
        raise DecodeError(f"record of {length} bytes where {len(data) - position} are left", offset=position)
    attributes = data[position]
    timestamp, position = read_varlong(data, position + 1)
    offset, position = read_varint(data, position)
    key, position = read_field(data, position, end)
    value, position = read_field(data, position, end)
    headers, position = read_headers(data, position, end, most_headers)
    if position != end:
        raise DecodeError(f"expected the end of fields at byte {end}, got {position}", offset=position)
    offset, timestamp = wrapped(base_offset + offset), wrapped(base_timestamp + timestamp)
    return Record(offset, timestamp, key, value, headers, attributes), end


def wrapped(number: int) -> int:
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def read_field(data: memoryview, position: int, end: int) -> tuple[bytes | None, int]:
    length, position = read_varint(data, position)
    if length < 0:
        return None, position
    if length > end - position:
        raise DecodeError(f"field of {length} bytes where {end - position} are left", offset=position)
    return bytes(data[position : position + length]), position + length


def read_headers(
    data: memoryview, position: int, end: int, most: int
) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    count, position = read_varint(data, position)
    if not 0 <= count <= HEADERS_LIMIT:
        raise DecodeError(f"{count} headers, expected 0 to {HEADERS_LIMIT}", offset=position)
    if count > most:
        raise TooManyHeaders(f"{count} headers, and no more than {most} are looked at", offset=position)
    headers = []
    for _ in yielding_range(count):
        key, position = read_field(data, position, end)
        if key is None:
            raise DecodeError("header key is null", offset=position)
        value, position = read_field(data, position, end)
        headers.append((key.decode("utf-8", "surrogateescape"), value))
    return tuple(headers), position


def write_record(record: Record, base_offset: int, base_timestamp: int) -> bytes:
    """Return the record's bytes, its length in front. Raises RecordsError for a value that does not fit."""
    if wrapped(record.timestamp) != record.timestamp:
        raise RecordsError(f"record at offset {record.offset}: expected an int64 timestamp, got {record.timestamp}")
    try:
        data = bytearray((record.attributes & 0xFF,))
        data += write_varlong(wrapped(record.timestamp - base_timestamp))
        data += write_varint(record.offset - base_offset)
        put(data, record.key)
        put(data, record.value)
        data += write_varint(len(record.headers))
        for key, value in yielding(record.headers):
            put(data, key.encode("utf-8", "surrogateescape"))
            put(data, value)
        return write_varint(len(data)) + data
    except (EncodeError, UnicodeEncodeError) as problem:
        raise RecordsError(f"record at offset {record.offset}: {problem}") from problem


def put(record: bytearray, data: bytes | None) -> None:
    if data is None:
        record += b"\x01"
    else:
        record += write_varint(len(data))
        record += data


TYPES = ("abort", "commit", "leader_change", "snapshot_header", "snapshot_footer", "kraft_version", "kraft_voters")
KEY = "control_record_key"


@dataclass(frozen=True, slots=True)
class Control:
    """Control record. `value` has the fields of its type, `version` among them; None if the type is not known."""

    type: int
    value: Mapping[str, Any] | None

    @property
    def name(self) -> str:
        """Return a word for the type, `unknown` for one that is newer than this table."""
        return TYPES[self.type] if 0 <= self.type < len(TYPES) else "unknown"


@cache
def names() -> Mapping[int, str]:
    """Return the name of the value's layout for each type. The two ends of a transaction share one."""
    return {number: entry.name for entry in schema.embedded().values() for number in entry.control_types}


@cache
def value_layout(kind: int, version: int) -> layout.Struct:
    """Return the value's fields with the version in front, which the table has as a prefix for some and a field for
    others."""
    entry = schema.embedded()[names()[kind]]
    version = max(entry.versions.first, min(version, entry.versions.last))  # a newer one begins like the newest
    return layout.build((*entry.prefix, *entry.fields), version, version in entry.flexible)


@cache
def key_layout() -> layout.Struct:
    entry = schema.embedded()[KEY]
    return layout.build((*entry.prefix, *entry.fields), 0, False)


def decode_control(record: Record) -> Control:
    """Decode a control record. Raises RecordsError for malformed bytes; bytes after the fields are ignored."""
    try:
        key, _ = codec.decode(key_layout(), record.key or b"", api=KEY)
        kind = key["type"]
        if kind not in names():
            return Control(kind, None)
        value = record.value or b""
        version = int.from_bytes(value[:2], "big", signed=True)
        return Control(kind, codec.decode(value_layout(kind, version), value, api=names()[kind], version=version)[0])
    except DecodeError as problem:
        raise RecordsError(f"control record at offset {record.offset}: {problem}") from problem


def encode_control(control: Control, offset: int, timestamp: int) -> Record:
    """Return the record of a control, for `encode_batch([…], control=True)`. Raises RecordsError for bad values."""
    if control.value is None or control.type not in names():
        raise RecordsError(f"control record of type {control.type} cannot be made, expected one of {sorted(names())}")
    version = control.value.get("version", 0)
    try:
        key = codec.encode(key_layout(), {"version": 0, "type": control.type}, api=KEY)
        name = names()[control.type]
        value = codec.encode(value_layout(control.type, version), control.value, api=name, version=version)
    except EncodeError as problem:
        raise RecordsError(f"control record at offset {offset}: {problem}") from problem
    return Record(offset, timestamp, key, value)
