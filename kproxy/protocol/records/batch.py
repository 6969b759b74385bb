"""Records out of batches (magic 2) and of message sets (magic 0 and 1), and new ones of both.

A compressed message set is one wrapper message, whose value is the compressed set and whose offset is that of its last
message. Inner offsets are absolute in magic 0 and relative in magic 1 (KIP-31): absolute = wrapper - last inner +
inner. With log append time the wrapper's timestamp applies to all (KIP-32). Wrappers are not nested.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from kproxy.base.cooperative import FEW, yield_point, yielding
from kproxy.base.errors import RecordsError, plural

from .compression import CODECS, DECOMPRESSED_LIMIT, compress, decompress
from .entry import (
    BATCH,
    BATCH_CRC_FROM,
    CODEC,
    CONTROL,
    DELETE_HORIZON,
    LEGACY,
    LEGACY_CRC_FROM,
    LOG_APPEND_TIME,
    OVERHEAD,
    TIMESTAMP,
    TRANSACTIONAL,
    Batch,
    LegacyEntry,
    crc_of,
    entries,
)
from .record import ANY_HEADERS, Record, read_records, write_record


@dataclass(frozen=True, slots=True)
class Producer:
    """Producer of a batch, for the broker's check of sequences (KIP-98). All -1: a producer without idempotence."""

    id: int = -1
    epoch: int = -1
    base_sequence: int = -1
    transactional: bool = False


ANYBODY = Producer()


def decode_batch(
    batch: Batch, limit: int = DECOMPRESSED_LIMIT, stored: bool = False, headers: int = ANY_HEADERS
) -> Iterator[Record]:
    """Yield the records of a batch lazily.

    Timestamps are those a consumer sees; with `stored` those in the records, which differ for log append time. Raises
    RecordsError during iteration, also above `limit` decompressed bytes or `headers` headers of all records.
    """
    if batch.count < 0:
        raise RecordsError(f"batch at offset {batch.base_offset}: {batch.count} records")
    if not batch.count:  # compaction keeps empty batches, for the producer's sequence numbers
        return
    data = memoryview(decompress(batch.codec, batch.payload, limit))
    records = read_records(data, batch.count, batch.base_offset, batch.base_timestamp, headers)
    if batch.is_log_append_time and not stored:
        records = (replace(record, timestamp=batch.max_timestamp) for record in records)
    yield from records


def encode_batch(
    records: Sequence[Record],
    *,
    codec: int = 0,
    base_offset: int | None = None,
    last_offset_delta: int | None = None,
    partition_leader_epoch: int = -1,
    producer: Producer = ANYBODY,
    control: bool = False,
    log_append_time: int | None = None,
) -> bytes:
    """Return a batch of these records, in ascending offsets. By default base and last offset are those of the records.

    `log_append_time`: ms, for all records. Raises RecordsError for values out of range.
    """
    if codec not in CODECS:
        raise RecordsError(f"codec {codec} is not known, expected {min(CODECS)} to {max(CODECS)}")
    first = records[0].offset if records else 0
    base = first if base_offset is None else base_offset
    last = records[-1].offset - base if records else 0
    timestamps = [record.timestamp for record in yielding(records)] or [-1]
    header = Batch(
        base_offset=base,
        length=0,
        partition_leader_epoch=partition_leader_epoch,
        magic=2,
        crc=0,
        attributes=codec & CODEC
        | (LOG_APPEND_TIME if log_append_time is not None else 0)
        | (TRANSACTIONAL if producer.transactional else 0)
        | (CONTROL if control else 0),
        last_offset_delta=last if last_offset_delta is None else last_offset_delta,
        base_timestamp=timestamps[0],
        max_timestamp=max(timestamps) if log_append_time is None else log_append_time,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        base_sequence=producer.base_sequence,
        count=len(records),
        raw=memoryview(b""),
    )
    return write_batch(header, records)


def rewrite_batch(batch: Batch, records: Sequence[Record]) -> bytes:
    """Return the batch with its records replaced by these (from `decode_batch(…, stored=True)`).

    Offsets, sequence and producer stay. Records may be removed from fetched batches, not from those of an idempotent
    producer: the broker expects `base sequence + last offset delta`. Without records the result is that of compaction
    (`without_records`). Raises RecordsError for a control batch, and for an offset outside the batch.
    """
    if batch.is_control:
        raise RecordsError(f"control batch at offset {batch.base_offset} is never changed")
    for record in yielding(records):
        if not batch.base_offset <= record.offset <= batch.last_offset:
            raise RecordsError(f"offset {record.offset} outside its batch, {batch.base_offset} to {batch.last_offset}")
    if not records:
        return write_batch(without_records(batch), records)
    timestamps = [record.timestamp for record in yielding(records)]
    newest = batch.max_timestamp if batch.is_log_append_time else max(timestamps)
    return write_batch(replace(batch, count=len(records), max_timestamp=newest), records)


def without_records(batch: Batch) -> Batch:
    """Return the header of a batch whose last record was compacted (Kafka's `DefaultRecordBatch.writeEmptyHeader`).

    It has no codec: clients decompress even an empty payload, and librdkafka reports _BAD_COMPRESSION, Java and
    kafka-python raise. The delete horizon and its base timestamp concern tombstones, and are dropped.
    """
    attributes = batch.attributes & ~(CODEC | DELETE_HORIZON)
    return replace(batch, attributes=attributes, base_timestamp=batch.max_timestamp, count=0)


def write_batch(header: Batch, records: Sequence[Record]) -> bytes:
    """Return the bytes of a batch with this header and these records. Without records it has no codec."""
    if not records:
        return frame_batch(replace(header, attributes=header.attributes & ~CODEC), b"")
    return frame_batch(header, compress(header.codec, b"".join(pieces(header, records))))


def frame_batch(header: Batch, payload: bytes) -> bytes:
    """Return the bytes of a batch with this header and compressed payload. Computes length and crc."""
    fields = [getattr(header, name) for name in Batch.__slots__[:-1]]
    fields[1] = BATCH.size - OVERHEAD + len(payload)
    try:
        batch = bytearray(BATCH.pack(*fields) + payload)
    except struct.error as problem:
        raise RecordsError(f"batch at offset {header.base_offset}: {problem}") from problem
    batch[BATCH_CRC_FROM - 4 : BATCH_CRC_FROM] = crc_of(batch, 2).to_bytes(4, "big")
    return bytes(batch)


def pieces(header: Batch, records: Sequence[Record]) -> Iterator[bytes]:
    """Yield the bytes of each record, with yield points."""
    done = 0
    for record in records:
        done += 1 + len(record.headers)
        if done >= FEW:
            done = 0
            yield_point()
        yield write_record(record, header.base_offset, header.base_timestamp)


INT32 = struct.Struct(">i")


def decode_legacy(entry: LegacyEntry, limit: int = DECOMPRESSED_LIMIT, stored: bool = False) -> Iterator[Record]:
    """Yield the record of a message, or the records in a wrapper, lazily.

    Timestamps are those a consumer sees; with `stored` those in the messages. Raises RecordsError during iteration,
    also above `limit` decompressed bytes.
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
            f"message at offset {entry.offset}: {plural(len(entry.body) - position, 'byte')} left after its value"
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

    Raises RecordsError for headers, which these formats lack, for zstd, and for values out of range.
    """
    if magic not in (0, 1):
        raise RecordsError(f"magic {magic}, expected 0 or 1")
    kind = LOG_APPEND_TIME if magic and log_append_time is not None else 0
    if not codec or not records:
        seen = log_append_time if kind else None
        return b"".join(write_legacy_record(record, record.offset, magic, kind, seen) for record in yielding(records))
    first, last = (records[0].offset if magic else 0), records[-1].offset
    inner = b"".join(write_legacy_record(record, record.offset - first, magic) for record in yielding(records))
    timestamp = (
        log_append_time if log_append_time is not None else max(record.timestamp for record in yielding(records))
    )
    return write_message(last, magic, codec & CODEC | kind, timestamp, None, compress(codec, inner, magic))


def rewrite_legacy(entry: LegacyEntry, records: Sequence[Record]) -> bytes:
    """Return the entry with these records (from `decode_legacy(…, stored=True)`) in the place of its own."""
    seen = entry.timestamp if entry.is_log_append_time else None
    return encode_message_set(records, entry.magic, codec=entry.codec, log_append_time=seen)


def write_legacy_record(record: Record, offset: int, magic: int, kind: int = 0, timestamp: int | None = None) -> bytes:
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
