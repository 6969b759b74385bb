"""Entries of a `records` field: one after the other, without a count, told apart by the byte at 16.

    magic 2    base offset int64 · length int32 · partition leader epoch int32 · magic int8 · crc uint32 ·
    (a batch)  attributes int16 · last offset delta int32 · base timestamp int64 · max timestamp int64 ·
               producer id int64 · producer epoch int16 · base sequence int32 · count int32 · records
    magic 0    offset int64 · length int32 · crc uint32 · magic int8 · attributes int8 · key · value
    magic 1    the same with an int64 timestamp after the attributes; key and value have int32 lengths

Length counts what follows it. The crc is CRC-32C over all that follows it (magic 2), so that a broker can change
offset, length and leader epoch; or CRC-32 over all that follows it (magic 0, 1). One field may mix all three.

Strategy: nothing here decompresses, copies or checks a crc. An entry keeps its own bytes as `raw`, and the `raw`s of
all entries joined are the field again, a last entry that was cut off (KIP-74: brokers send whole bytes, not whole
batches) included.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct, calcsize

from kproxy.base.errors import RecordsError
from kproxy.protocol.breath import breathe, rest
from kproxy.protocol.primitives import Buffer

BATCH_HEADER = {
    "base_offset": "q", "length": "i", "partition_leader_epoch": "i", "magic": "b", "crc": "I", "attributes": "h",
    "last_offset_delta": "i", "base_timestamp": "q", "max_timestamp": "q", "producer_id": "q", "producer_epoch": "h",
    "base_sequence": "i", "count": "i",
}  # fmt: skip
"""Fields of a batch's header in their order, each with the letter that `struct` has for its type."""


def batch_fields(*names: str) -> str:
    """Return the `struct` format, without byte order, that reads these fields of a batch's header in their order,
    and passes over those before and between them."""
    codes = [code if name in names else f"{calcsize(f'>{code}')}x" for name, code in BATCH_HEADER.items()]
    return "".join(codes[: 1 + max(list(BATCH_HEADER).index(name) for name in names)])


def batch_at(name: str) -> int:
    """Return where a field of a batch's header begins, in bytes from the first of the batch."""
    return calcsize(f">{batch_fields(name)}") - calcsize(f">{BATCH_HEADER[name]}")


BATCH = Struct(">" + batch_fields(*BATCH_HEADER))
LENGTH_AT = batch_at("length")
OVERHEAD = LENGTH_AT + 4
"""Bytes of an entry up to the end of its length, which does not count them."""
MAGIC_AT = batch_at("magic")
CRC_AT = (12, 12, batch_at("crc"))
"""Places of the checksum, by magic."""
ATTRIBUTES_AT = (17, 17, batch_at("attributes") + 1)
"""Places of the low byte of the attributes, by magic."""
BATCH_CRC_FROM = batch_at("attributes")
LEGACY = Struct(">qiIbb")
LEGACY_CRC_FROM = 16
TIMESTAMP = Struct(">q")
AT_ONCE = 1 << 22
"""Bytes of which the checksum is made in one go."""
SHORTEST = (14, 22, BATCH.size - OVERHEAD)  # of the length, by magic: everything but keys and values

CODEC, LOG_APPEND_TIME, TRANSACTIONAL, CONTROL, DELETE_HORIZON = 0x07, 0x08, 0x10, 0x20, 0x40
"""Bits of the attributes. The last three stand in batches only; the last says that the base timestamp is the time
from which on a compacted topic may forget the batch's tombstones (KIP-534)."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Batch of magic 2: its header, and its bytes."""

    base_offset: int
    length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int
    raw: memoryview

    @property
    def codec(self) -> int:
        """Return the codec: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
        return self.attributes & CODEC

    @property
    def last_offset(self) -> int:
        """Return the offset that this batch ends at, also when compaction has taken the last record out."""
        return self.base_offset + self.last_offset_delta

    @property
    def is_log_append_time(self) -> bool:
        """Return True if all its records happened at `max_timestamp`, which the broker has set."""
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        """Return True if the batch is part of a transaction."""
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """Return True if it holds a control record (`record.Control`) and nothing that a user wrote."""
        return bool(self.attributes & CONTROL)

    @property
    def payload(self) -> memoryview:
        """Return the bytes behind the header: the records, compressed if `codec` says so."""
        return self.raw[BATCH.size :]


@dataclass(frozen=True, slots=True)
class LegacyEntry:
    """Message of magic 0 or 1, or the wrapper of a compressed message set. `timestamp` is -1 in magic 0."""

    offset: int
    length: int
    crc: int
    magic: int
    attributes: int
    timestamp: int
    raw: memoryview

    @property
    def codec(self) -> int:
        """Return the codec: 0 none, 1 gzip, 2 snappy, 3 lz4."""
        return self.attributes & CODEC

    @property
    def is_log_append_time(self) -> bool:
        """Return True if the broker has set the timestamp (magic 1)."""
        return self.magic == 1 and bool(self.attributes & LOG_APPEND_TIME)

    @property
    def body(self) -> memoryview:
        """Return key and value with their lengths."""
        return self.raw[LEGACY.size + (TIMESTAMP.size if self.magic else 0) :]


@dataclass(frozen=True, slots=True)
class Cut:
    """Beginning of an entry whose end is not there. It can only be kept as it is."""

    raw: memoryview


Entry = Batch | LegacyEntry | Cut


def entries(data: Buffer | None) -> Iterator[Entry]:
    """Yield the entries of a `records` field in order; none if it is null.

    Raises RecordsError at a magic other than 0, 1, 2 and at a length that its entry's fixed part does not fit in.
    """
    if data is None:
        return
    view = memoryview(data).toreadonly()
    position = 0
    while position < len(view):
        if len(view) - position <= MAGIC_AT:
            yield Cut(view[position:])
            return
        magic = view[position + MAGIC_AT]
        length = int.from_bytes(view[position + 8 : position + OVERHEAD], "big", signed=True)
        if magic > 2:
            raise RecordsError(f"entry at byte {position}: magic {magic}, expected 0, 1 or 2")
        if length < SHORTEST[magic]:
            raise RecordsError(
                f"entry at byte {position}: length {length}, expected at least {SHORTEST[magic]} with magic {magic}"
            )
        end = position + OVERHEAD + length
        if end > len(view):
            yield Cut(view[position:])
            return
        breathe()
        yield read_entry(view[position:end], magic)
        position = end
        breathe()


def read_entry(raw: memoryview, magic: int) -> Batch | LegacyEntry:
    if magic == 2:
        return Batch(*(*BATCH.unpack_from(raw), raw))
    timestamp = TIMESTAMP.unpack_from(raw, LEGACY.size)[0] if magic else -1
    return LegacyEntry(*(*LEGACY.unpack_from(raw), timestamp, raw))


def crc_of(raw: Buffer, magic: int) -> int:
    """Return the checksum that an entry with these bytes should carry."""
    from crc32c import crc32c  # 8 ms, and most processes check no batch when they start

    view = memoryview(raw)[BATCH_CRC_FROM if magic == 2 else LEGACY_CRC_FROM :]
    crc, add = 0, crc32c if magic == 2 else zlib.crc32
    for start in range(0, len(view), AT_ONCE):
        if start:
            rest()
        crc = add(view[start : start + AT_ONCE], crc)
    return crc


def check_crc(entry: Batch | LegacyEntry) -> None:
    """Check that the entry's checksum is that of its bytes. Raises RecordsError if it is not."""
    expected = crc_of(entry.raw, entry.magic)
    if entry.crc != expected:
        at = entry.base_offset if isinstance(entry, Batch) else entry.offset
        raise RecordsError(f"entry at offset {at}: crc {entry.crc:08x}, expected {expected:08x} over its bytes")
