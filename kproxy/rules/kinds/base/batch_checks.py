"""Checks of the records of a Produce request, entry by entry.

Codec and producer stand in an entry's header. Sizes of records are measured as users make them: key, value and headers
of one record, uncompressed. Only a compressed entry has to be decompressed for that, and only one that is large enough
to hold such a record has its records looked at.
"""

from __future__ import annotations

from collections.abc import Iterator

from kproxy.base.errors import DecodeError, RecordsError
from kproxy.protocol.breath import steps
from kproxy.protocol.primitives import read_varint
from kproxy.protocol.records import Batch, Cut, Entry, LegacyEntry, Record, decode
from kproxy.protocol.records.compression import CODECS, DECOMPRESSED_LIMIT, decompress, too_long
from kproxy.protocol.records.record import least_size, read_record, size_of


def codec_name(entry: Batch | LegacyEntry) -> str:
    """Return none, gzip, snappy, lz4 or zstd; the number for a codec that is unknown."""
    return CODECS.get(entry.codec, str(entry.codec))


def is_idempotent(entry: Batch | LegacyEntry) -> bool:
    """Return True if the producer has an id, so that a batch that is sent twice is stored once (KIP-98)."""
    return isinstance(entry, Batch) and entry.producer_id >= 0


DAMAGED = DECOMPRESSED_LIMIT // 8
"""Bytes that an entry counts for that cannot be decompressed: how many had come out of it by then is not known."""


class RecordSizes:
    """Search for records of more than `most` bytes. All that it decompresses, together, is at most `left` bytes."""

    def __init__(self, most: int, left: int = DECOMPRESSED_LIMIT) -> None:
        self.most, self.left = most, left

    def too_large(self, entry: Entry) -> int:
        """Return the size of the first such record in an entry, 0 if there is none.

        An entry that cannot be decompressed within the limit counts as one record of that size. Raises RecordsError for
        one that cannot be read: brokers may read more than kproxy does (Kafka looks at no content checksum of lz4).
        """
        if isinstance(entry, Cut):
            return 0
        limit = self.left
        try:
            return next((size for size in map(size_of, self.records(entry)) if size > self.most), 0)
        except RecordsError as problem:
            if str(problem) == str(too_long(limit)):
                return max(limit, self.most + 1)
            raise

    def records(self, entry: Batch | LegacyEntry) -> Iterator[Record]:
        """Yield the records of an entry that could be too large. Raises RecordsError."""
        if isinstance(entry, LegacyEntry):
            if entry.codec or len(entry.body) > self.most:
                yield from self.legacy(entry)
            return
        data = entry.payload
        if entry.codec and entry.count > 0:
            limit = self.left
            self.left = max(limit - DAMAGED, 0)
            data = memoryview(decompress(entry.codec, entry.payload, limit))
            self.left = limit - len(data)
        if len(data) > self.most:
            yield from long_records(data, entry.count, self.most)

    def legacy(self, entry: LegacyEntry) -> Iterator[Record]:
        limit, size = self.left, 0
        self.left = max(limit - DAMAGED, 0) if entry.codec else limit
        for record in decode(entry, limit):
            size += least_size(record) if entry.codec else 0
            yield record
        self.left = limit - size


def long_records(data: memoryview, count: int, most: int) -> Iterator[Record]:
    """Yield the records that have more than `most` bytes as they stand there, of the `count` records that fill `data`.
    Raises RecordsError.

    The others are passed over by their lengths: a kilobyte can stand for millions of them.
    """
    position = 0
    for number in steps(count):
        try:
            length, body = read_varint(data, position)
            if 0 < length <= most and body + length <= len(data):
                position = body + length
                continue
            record, position = read_record(data, position, 0, 0)
        except (DecodeError, IndexError) as problem:
            raise RecordsError(f"record {number} of {count} at byte {position}: {problem}") from problem
        yield record
    if position != len(data):
        raise RecordsError(f"{len(data) - position} bytes are left after {count} records")
