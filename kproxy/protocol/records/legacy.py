"""Message sets of magic 0 and 1: their records out, and new ones in.

A compressed set is one wrapper message whose value is a whole message set, compressed. The wrapper's offset is that
of the last message in it. Inside, magic 0 has absolute offsets and magic 1 relative ones (KIP-31), so that a broker
needs to change the wrapper only: absolute = wrapper - last inner + inner. With log append time the wrapper's
timestamp stands for all (KIP-32). Only one level of wrapping is legal.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

from kproxy.base.errors import RecordsError
from kproxy.protocol.breath import each

from .compression import DECOMPRESSED_LIMIT, compress, decompress
from .entry import CODEC, LEGACY, LEGACY_CRC_FROM, LOG_APPEND_TIME, OVERHEAD, TIMESTAMP, LegacyEntry, crc_of, entries
from .record import Record

INT32 = struct.Struct(">i")


def decode_legacy(entry: LegacyEntry, limit: int = DECOMPRESSED_LIMIT, stored: bool = False) -> Iterator[Record]:
    """Yield the record of a message, or all those in a wrapper, each made when asked for.

    Timestamps are those a consumer sees; with `stored` those that stand in the messages. Raises RecordsError on the
    way, also when more than `limit` bytes come out.
    """
    key, value = key_and_value(entry)
    if not entry.codec:
        yield Record(entry.offset, entry.timestamp, as_bytes(key), as_bytes(value), (), entry.attributes)
        return
    if value is None:
        raise RecordsError(f"wrapper at offset {entry.offset}: its value is null")
    inner_set = decompress(entry.codec, value, limit, entry.magic)
    base = base_of(entry, inner_set)
    for inner in inner_entries(entry, inner_set):
        key, value = key_and_value(inner)
        seen = entry if entry.is_log_append_time and not stored else inner
        yield Record(base + inner.offset, seen.timestamp, as_bytes(key), as_bytes(value), (), inner.attributes)


def as_bytes(data: memoryview | None) -> bytes | None:
    return None if data is None else bytes(data)


def key_and_value(entry: LegacyEntry) -> tuple[memoryview | None, memoryview | None]:
    key, position = read_field(entry, 0)
    value, position = read_field(entry, position)
    if position != len(entry.body):
        raise RecordsError(
            f"message at offset {entry.offset}: {len(entry.body) - position} bytes are left after its value"
        )
    return key, value


def read_field(entry: LegacyEntry, position: int) -> tuple[memoryview | None, int]:
    body = entry.body
    left = len(body) - position - INT32.size
    length = INT32.unpack_from(body, position)[0] if left >= 0 else 0
    if length > left:
        raise RecordsError(f"message at offset {entry.offset}: field of {length} bytes where {left} are left")
    position += INT32.size
    return (body[position : position + length], position + length) if length >= 0 else (None, position)


def inner_entries(wrapper: LegacyEntry, inner_set: bytes | bytearray | memoryview) -> Iterator[LegacyEntry]:
    for inner in entries(inner_set):
        if not isinstance(inner, LegacyEntry) or inner.codec or inner.magic != wrapper.magic:
            kind = type(inner).__name__.lower()
            raise RecordsError(
                f"wrapper at offset {wrapper.offset}: {kind} in it, expected plain magic {wrapper.magic}"
            )
        yield inner


def base_of(wrapper: LegacyEntry, inner_set: bytes | bytearray | memoryview) -> int:
    """Return the number to add to the inner offsets. Old librdkafka left the wrapper's at 0, so 0 means nothing."""
    last = None
    for inner in inner_entries(wrapper, inner_set):
        last = inner.offset
    if last is None:
        raise RecordsError(f"wrapper at offset {wrapper.offset}: no message in it")
    if wrapper.magic == 0 or wrapper.offset == 0:
        return 0
    if wrapper.offset < last:
        raise RecordsError(f"wrapper at offset {wrapper.offset}: last relative offset {last} is above it")
    return wrapper.offset - last


def encode_message_set(
    records: Sequence[Record], magic: int, *, codec: int = 0, log_append_time: int | None = None
) -> bytes:
    """Return a message set of these records: one message each, or one wrapper if there is a codec.

    Raises RecordsError for headers, which these formats lack, for zstd, and for what does not fit.
    """
    if magic not in (0, 1):
        raise RecordsError(f"magic {magic}, expected 0 or 1")
    kind = LOG_APPEND_TIME if magic and log_append_time is not None else 0
    if not codec or not records:
        seen = log_append_time if kind else None
        return b"".join(write_record(record, record.offset, magic, kind, seen) for record in each(records))
    first, last = (records[0].offset if magic else 0), records[-1].offset
    inner = b"".join(write_record(record, record.offset - first, magic) for record in each(records))
    timestamp = log_append_time if log_append_time is not None else max(record.timestamp for record in each(records))
    return write_message(last, magic, codec & CODEC | kind, timestamp, None, compress(codec, inner, magic))


def rewrite_legacy(entry: LegacyEntry, records: Sequence[Record]) -> bytes:
    """Return the entry with these records (from `decode_legacy(…, stored=True)`) in the place of its own."""
    seen = entry.timestamp if entry.is_log_append_time else None
    return encode_message_set(records, entry.magic, codec=entry.codec, log_append_time=seen)


def write_record(record: Record, offset: int, magic: int, kind: int = 0, timestamp: int | None = None) -> bytes:
    if record.headers:
        raise RecordsError(f"record at offset {record.offset}: {len(record.headers)} headers, magic {magic} has none")
    attributes = record.attributes & ~(CODEC | LOG_APPEND_TIME) | kind
    seen = record.timestamp if timestamp is None else timestamp
    return write_message(offset, magic, attributes, seen, record.key, record.value)


def write_message(
    offset: int, magic: int, attributes: int, timestamp: int, key: bytes | None, value: bytes | None
) -> bytes:
    try:
        body = (TIMESTAMP.pack(timestamp) if magic else b"") + field(key) + field(value)
        message = bytearray(LEGACY.pack(offset, LEGACY.size - OVERHEAD + len(body), 0, magic, attributes) + body)
    except struct.error as problem:
        raise RecordsError(f"message at offset {offset}: {problem}") from problem
    message[LEGACY_CRC_FROM - 4 : LEGACY_CRC_FROM] = crc_of(message, magic).to_bytes(4, "big")
    return bytes(message)


def field(data: bytes | None) -> bytes:
    return INT32.pack(-1) if data is None else INT32.pack(len(data)) + data
