"""Redaction of records: keys, values and headers become fillers of their lengths, everything else stays.

Strategy: entry by entry. Batches are made again, so that their checksums are right; compressed ones are compressed
again, and become shorter, since nothing compresses like one letter. What cannot be read is filled behind its header.
"""

from __future__ import annotations

from dataclasses import dataclass

from kproxy.errors import RecordsError
from kproxy.wire.records import Batch, Cut, Entry, Record, decode, entries, rewrite
from kproxy.wire.records.entry import BATCH, LEGACY, MAGIC_AT, TIMESTAMP

FILLER = b"x"


@dataclass(slots=True)
class RedactionCounts:
    """Counts of the records and batches that were redacted in one capture."""

    records: int = 0
    batches: int = 0
    recompressed: int = 0
    bytes_before: int = 0
    """Bytes of the batches that were compressed again, before that."""
    bytes_after: int = 0
    unreadable: int = 0
    """Entries that could not be read, and were filled as a whole."""


def redact_records(data: memoryview, done: RedactionCounts) -> bytes:
    """Return the redacted contents of a `records` field. Counts what it does in `done`."""
    pieces: list[bytes] = []
    position = 0
    try:
        for entry in entries(data):
            pieces.append(_entry(entry, done))
            position += len(entry.raw)
    except RecordsError:
        done.unreadable += 1
        pieces.append(FILLER * (len(data) - position))
    return b"".join(pieces)


def _entry(entry: Entry, done: RedactionCounts) -> bytes:
    if isinstance(entry, Cut):
        return _filled(entry.raw)
    if isinstance(entry, Batch) and entry.is_control:  # the broker's, and nothing of users in it
        return bytes(entry.raw)
    try:
        records = [blank(record) for record in decode(entry, stored=True)]
        rewritten = rewrite(entry, records)
    except RecordsError:
        done.unreadable += 1
        return _filled(entry.raw)
    done.batches += 1
    done.records += len(records)
    if entry.codec:
        done.recompressed += 1
        done.bytes_before += len(entry.raw)
        done.bytes_after += len(rewritten)
    return rewritten


def blank(record: Record) -> Record:
    """Return the record with fillers for what users wrote; what is null stays null."""
    headers = tuple((FILLER.decode() * _length(name), _fill(value)) for name, value in record.headers)
    return Record(record.offset, record.timestamp, _fill(record.key), _fill(record.value), headers, record.attributes)


def _length(name: str) -> int:
    return len(name.encode("utf-8", "surrogateescape"))


def _fill(data: bytes | None) -> bytes | None:
    return None if data is None else FILLER * len(data)


def _filled(raw: memoryview) -> bytes:
    """Return the entry's header and fillers behind it; if it is too short to tell its format, fillers only."""
    if len(raw) <= MAGIC_AT:
        return FILLER * len(raw)
    magic = raw[MAGIC_AT]
    header = BATCH.size if magic == 2 else LEGACY.size + (TIMESTAMP.size if magic == 1 else 0)
    kept = bytes(raw[:header])
    return kept + FILLER * (len(raw) - len(kept))
