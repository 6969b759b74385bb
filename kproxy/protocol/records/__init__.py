"""Records: the bytes of a `records` field (Produce, Fetch, snapshots) and their content. Imports `codec`.

A field is a sequence of *entries*: *batches* (magic 2), *legacy entries* (messages of magic 0 or 1, or wrappers of
compressed message sets), and at the end perhaps a *cut* entry. *Control records* have a batch of their own.

`entries` finds entries without decompression. `decode` yields records one by one with bounded output. `spans` has the
positions of records instead, and writes entries from them. Bad bytes raise only RecordsError.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .batch import (
    Producer,
    decode_batch,
    decode_legacy,
    encode_batch,
    encode_message_set,
    rewrite_batch,
    rewrite_legacy,
)
from .compression import DECOMPRESSED_LIMIT
from .entry import Batch, Cut, Entry, LegacyEntry, check_crc, entries
from .record import ANY_HEADERS, Control, Record, decode_control, encode_control

__all__ = [
    "DECOMPRESSED_LIMIT",
    "Batch",
    "Control",
    "Cut",
    "Entry",
    "LegacyEntry",
    "Producer",
    "Record",
    "check_crc",
    "decode",
    "decode_control",
    "encode_batch",
    "encode_control",
    "encode_message_set",
    "entries",
    "rewrite",
]


def decode(
    entry: Entry, limit: int = DECOMPRESSED_LIMIT, stored: bool = False, headers: int = ANY_HEADERS
) -> Iterator[Record]:
    """Yield the records of an entry, each made when asked for; none of a cut one.

    Timestamps are those a consumer sees, with `stored` those in the bytes. Raises RecordsError on the way, also when
    more than `limit` bytes come out of the codec, or the records have more than `headers` headers together.
    """
    if isinstance(entry, Batch):
        yield from decode_batch(entry, limit, stored, headers)
    elif isinstance(entry, LegacyEntry):
        yield from decode_legacy(entry, limit, stored)


def rewrite(entry: Batch | LegacyEntry, records: Sequence[Record]) -> bytes:
    """Return the entry's bytes with these records, from `decode(entry, stored=True)`, in the place of its own.

    Codec, offsets, producer and kind of timestamp stay as they are. Raises RecordsError for a control batch.
    """
    if isinstance(entry, Batch):
        return rewrite_batch(entry, records)
    return rewrite_legacy(entry, records)
