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

A digest is made of the headers of a field's batches, without decompression. It can also be read from the *sketched*
form of a field, which lacks the content of every entry. The size before the field stays that of the whole field:

    magic 2, complete           its first 61 bytes: the header
    magic 0 or 1, complete      its first 18 bytes, up to the attributes
    other entries               17 bytes, up to the magic; none of 16 bytes or fewer at the end of a field
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from struct import Struct, calcsize

from kproxy.base.cooperative import yield_now, yield_point
from kproxy.base.errors import RecordsError
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
"""Bytes of a checksum between two yields."""
SHORTEST = (14, 22, BATCH.size - OVERHEAD)  # of the length, by magic: everything but keys and values

CODEC, LOG_APPEND_TIME, TRANSACTIONAL, CONTROL, DELETE_HORIZON = 0x07, 0x08, 0x10, 0x20, 0x40
"""Bits of the attributes. The last three are in batches only. DELETE_HORIZON: the base timestamp is the time from which
compaction may remove the batch's tombstones (KIP-534)."""


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
        """Bytes after the header: the records, compressed with `codec`."""
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
        return self.raw[LEGACY.size + (TIMESTAMP.size if self.magic else 0) :]


@dataclass(frozen=True, slots=True)
class Cut:
    """Entry without its end. It can only be kept unchanged."""

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
        yield_point()
        yield read_entry(view[position:end], magic)
        position = end
        yield_point()


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
            yield_now()
        crc = add(view[start : start + AT_ONCE], crc)
    return crc


def check_crc(entry: Batch | LegacyEntry) -> None:
    """Check that the entry's checksum is that of its bytes. Raises RecordsError if it is not."""
    expected = crc_of(entry.raw, entry.magic)
    if entry.crc != expected:
        at = entry.base_offset if isinstance(entry, Batch) else entry.offset
        raise RecordsError(f"entry at offset {at}: crc {entry.crc:08x}, expected {expected:08x} over its bytes")


CODECS = ("none", "gzip", "snappy", "lz4", "zstd", "unknown", "unknown", "unknown")
"""Names of the codecs, by the number in a batch's attributes."""

KEPT = (LEGACY.size, LEGACY.size, BATCH.size)
"""Bytes of a whole entry that its sketch keeps, by magic."""
KEPT_OF_OTHERS = MAGIC_AT + 1
"""Bytes kept of a cut or unreadable entry: up to its magic."""

HEADER_FIELDS = (
    "base_offset", "crc", "attributes", "last_offset_delta", "producer_id", "producer_epoch", "base_sequence", "count",
)  # fmt: skip
"""Fields of a batch's header that identify it and its position, in order."""
HEADER = Struct(">" + batch_fields(*HEADER_FIELDS))
LENGTH = Struct(">i")
OFFSET = Struct(">q")
MESSAGE_ATTRIBUTES_AT = ATTRIBUTES_AT[0]
MOST_HEADERS = 32
"""Headers of batches that a digest has; the others are counted."""
MARKERS = ("abort", "commit")
"""Ends of a transaction, by the type in the key of its control record."""
MARKER_KEY = b"\x08\x00\x00\x00"
"""Bytes in front of the low byte of that type: the key's length, its version, and the type's high byte."""
MARKER_KEY_AT = BATCH.size + 4
"""Place of these bytes, behind the record's length, attributes, and deltas of time and offset, of one byte each."""


@dataclass(slots=True)
class RecordsDigest:
    """Digest of a `records` field, from the headers of its batches, without decompression.

    `size`: bytes of the field. `batches`: complete ones; adjacent uncompressed messages of magic 0 and 1 count as one.
    `records`: None if unknown (compressed message sets of magic 0 and 1, malformed bytes). A cut last batch counts in
    `size` only. Codec, producer and sequence are those of the first batch; `codec` is empty without a batch.
    `base_offset`: None for a compressed message set. `last_offset`: of the last complete batch.
    """

    size: int
    batches: int
    records: int | None
    codec: str
    base_offset: int | None
    last_offset: int | None
    producer_id: int | None
    producer_epoch: int | None
    base_sequence: int | None
    transactional: bool = False
    control: int = 0
    """Batches of control records (their records are not counted: clients never see them)."""
    crc: int | None = None
    """Checksum of the first batch, if that is of magic 2; the same holds for `attributes`."""
    attributes: int | None = None
    headers: list[tuple[int, ...]] | None = None
    """Headers of the first `MOST_HEADERS` batches of magic 2, each its `HEADER_FIELDS`."""
    markers: dict[int, str] | None = field(default=None, compare=False)
    """Ends of transactions, by the index of their batch in `headers`; sketches do not keep them."""


@dataclass(slots=True)
class RecordHeaders:
    """Whole entries of a `records` field by their headers. The `raw` of each is all of it, or what a sketch keeps.

    `rest`: bytes behind them, which are a cut entry, or no entry at all.
    """

    entries: list[Batch | LegacyEntry]
    rest: int = 0


def whole_entry(magic: int, length: int, left: int) -> bool:
    """Return True if an entry of this magic and length can be read, and all its bytes are among those left."""
    return magic <= 2 and SHORTEST[magic] <= length <= left - OVERHEAD


def read_digest(buf: bytes, start: int, size: int, *, sketched: bool = False) -> tuple[RecordsDigest, int]:
    """Return the digest of the field of `size` bytes that begins at `start`, and the position after it.

    `sketched`: the bytes in `buf` are those of the sketched form. Raises IndexError or struct.error where `buf` ends
    too early.
    """
    digest = RecordsDigest(size, 0, 0, "", None, None, None, None, None)
    p, left, count, row = start, size, 0, False
    while left > MAGIC_AT:
        yield_point()
        magic = buf[p + MAGIC_AT]
        (length,) = LENGTH.unpack_from(buf, p + LENGTH_AT)
        if not (magic <= 2 and SHORTEST[magic] <= length <= left - OVERHEAD):
            if magic > 2 or length < SHORTEST[magic]:
                digest.records = None
            p += KEPT_OF_OTHERS
            break
        if magic == 2:
            count += read_batch(digest, buf, p)
            if digest.control and not sketched:
                read_marker(digest, buf, p)
            row = False
        else:
            count += read_legacy(digest, buf, p, row)
            row = not buf[p + MESSAGE_ATTRIBUTES_AT] & CODEC
        yield_point()
        p += KEPT[magic] if sketched else length + OVERHEAD
        left -= length + OVERHEAD
    if digest.records is not None:
        digest.records = count
    return digest, p if sketched else start + size


def read_headers(buf: bytes, start: int, size: int, *, sketched: bool = False) -> tuple[RecordHeaders, int]:
    """Return the headers of the field of `size` bytes that begins at `start`, and the position after it; see
    `read_digest`. Timestamps of legacy entries are -1."""
    headers, view = RecordHeaders([]), memoryview(buf)
    p, left = start, size
    while left > MAGIC_AT:
        yield_point()
        magic = buf[p + MAGIC_AT]
        (length,) = LENGTH.unpack_from(buf, p + LENGTH_AT)
        if not whole_entry(magic, length, left):
            p += KEPT_OF_OTHERS
            break
        whole = length + OVERHEAD
        kept = KEPT[magic] if sketched else whole
        raw = view[p : p + kept]
        if magic == 2:
            headers.entries.append(Batch(*(*BATCH.unpack_from(raw), raw)))
        else:
            headers.entries.append(LegacyEntry(*(*LEGACY.unpack_from(raw), -1, raw)))
        p += kept
        left -= whole
    headers.rest = left
    return headers, p if sketched else start + size


def read_batch(digest: RecordsDigest, buf: bytes, p: int) -> int:
    """Add a batch to the digest. Returns the number of its records."""
    header = HEADER.unpack_from(buf, p)
    base, crc, attributes, delta, producer, epoch, sequence, count = header
    if not digest.batches:
        digest.codec = CODECS[attributes & CODEC]
        digest.base_offset, digest.crc, digest.attributes = base, crc, attributes
        digest.transactional = bool(attributes & TRANSACTIONAL)
        if producer >= 0:
            digest.producer_id, digest.producer_epoch, digest.base_sequence = producer, epoch, sequence
    digest.batches += 1
    if digest.headers is None:
        digest.headers = [header]
    elif len(digest.headers) < MOST_HEADERS:
        digest.headers.append(header)
    digest.last_offset = base + delta
    if attributes & CONTROL:
        digest.control += 1
        return 0
    if count < 0:
        digest.records = None
    return int(count)


def read_marker(digest: RecordsDigest, buf: bytes, p: int) -> None:
    """Add the transaction marker of the batch at `p`, whose header is the last one of the digest, if it has one.

    A marker is one record in a batch of its own, with zero deltas.
    """
    headers, at = digest.headers, p + MARKER_KEY_AT
    if headers is None or headers[-1][:2] != HEADER.unpack_from(buf, p)[:2] or not headers[-1][2] & CONTROL:
        return  # beyond MOST_HEADERS, or not a control batch
    kind = buf[at + len(MARKER_KEY)] if buf[at : at + len(MARKER_KEY)] == MARKER_KEY else len(MARKERS)
    if kind < len(MARKERS):
        digest.markers = {**(digest.markers or {}), len(headers) - 1: MARKERS[kind]}


def read_legacy(digest: RecordsDigest, buf: bytes, p: int, row: bool) -> int:
    """Add a message of magic 0 or 1, or a wrapper; `row`: the entry before it was such a message, uncompressed."""
    (offset,) = OFFSET.unpack_from(buf, p)
    codec = buf[p + MESSAGE_ATTRIBUTES_AT] & CODEC
    if not digest.batches:
        digest.codec = CODECS[codec]
        digest.base_offset = None if codec else offset
    if codec:
        digest.records = None
    if codec or not row:
        digest.batches += 1
    digest.last_offset = offset
    return 1
