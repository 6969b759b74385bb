"""Digests of `records` fields, from the headers of their batches, with nothing decompressed.

Strategy: one loop over the entries (their layouts are on top of `entry.py`), a `struct` call each. The same loop reads
the *sketched* form of a field, in which the inside of every entry is left out:

    magic 2, whole              its first 61 bytes: all of the header
    magic 0 or 1, whole         its first 18 bytes, up to the attributes
    anything else               17 bytes, up to the magic; and of 16 bytes or fewer that end a field, none

The length in front of the field stays what it was, so that what is left out can be counted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct

from kproxy.protocol.breath import breathe

from .entry import (
    ATTRIBUTES_AT,
    BATCH,
    CODEC,
    CONTROL,
    LEGACY,
    LENGTH_AT,
    MAGIC_AT,
    OVERHEAD,
    SHORTEST,
    TRANSACTIONAL,
    Batch,
    LegacyEntry,
    batch_fields,
)

CODECS = ("none", "gzip", "snappy", "lz4", "zstd", "unknown", "unknown", "unknown")
"""Names of the codecs, by the number in a batch's attributes."""

KEPT = (LEGACY.size, LEGACY.size, BATCH.size)
"""Bytes of a whole entry that its sketch keeps, by magic."""
KEPT_OF_OTHERS = MAGIC_AT + 1
"""Bytes kept of an entry that is cut or that cannot be read: those that say so."""

HEADER_FIELDS = (
    "base_offset", "crc", "attributes", "last_offset_delta", "producer_id", "producer_epoch", "base_sequence", "count",
)  # fmt: skip
"""Fields of a batch's header that tell it from others, and where it is, in their order."""
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
    """Digest of a `records` field, from the headers of its batches; nothing is decompressed.

    `size`: bytes of the field. `batches`: whole ones; uncompressed messages of magic 0 and 1 in a row are one.
    `records`: None where it cannot be told (compressed message sets of magic 0 and 1, bytes that are no batch). A cut
    last batch counts in `size` only. The codec, the producer and the sequence are those of the first batch; `codec` is
    empty where there is none; `producer_id` None: none. `base_offset`: None for a compressed message set, which does
    not tell it. `last_offset`: of the last whole batch.
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
        breathe()
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
        breathe()
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
        breathe()
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
    """Add a batch to what was found; return the number of its records."""
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
    """Add what the batch at `p`, whose header is the last one of the digest, says if it is a marker of a transaction.

    The end of a transaction is one record in a batch of its own, whose deltas are zero.
    """
    headers, at = digest.headers, p + MARKER_KEY_AT
    if headers is None or headers[-1][:2] != HEADER.unpack_from(buf, p)[:2] or not headers[-1][2] & CONTROL:
        return  # there are more batches than headers are kept of, or this one is no control batch
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
