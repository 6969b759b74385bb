"""Records inside of Produce requests and Fetch answers: changed entry by entry, in every format and codec.

What cannot be read (a cut entry, a codec that is not known, bad bytes) stays as it is, and so do control batches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from kproxy.errors import RecordsError
from kproxy.wire.records import (
    Batch,
    Cut,
    Entry,
    LegacyEntry,
    Record,
    decode,
    encode_batch,
    encode_message_set,
    entries,
)

Buffer = bytes | bytearray | memoryview
Whole = Batch | LegacyEntry
NOBODY = -1
"""The producer id of a batch without idempotence."""

ChangeEntry = Callable[[Whole], bytes | None]
"""An entry's bytes as they shall be, None to leave them."""


def whole_entries(data: Buffer | None) -> tuple[list[Whole], Buffer]:
    """The entries that can be read, and the bytes behind them: of a cut one, or of what is no entry."""
    found: list[Whole] = []
    position = 0
    try:
        for entry in entries(data):
            if isinstance(entry, Cut):
                break
            found.append(entry)
            position += len(entry.raw)
    except RecordsError:
        pass
    return found, memoryview(data or b"")[position:]


def change_entries(data: Buffer | None, change: ChangeEntry) -> bytes | None:
    """A records field with its entries changed; None when none is. Control batches are left alone."""
    found, rest = whole_entries(data)
    made = [None if is_control(entry) else attempt(change, entry) for entry in found]
    if all(one is None for one in made):
        return None
    pieces = [entry.raw if one is None else one for entry, one in zip(found, made, strict=True)]
    return b"".join((*pieces, rest))


def attempt(change: ChangeEntry, entry: Whole) -> bytes | None:
    """The entry changed, None when it cannot be read or written so."""
    try:
        return change(entry)
    except RecordsError:
        return None


def is_control(entry: Entry) -> bool:
    """Whether it is the broker's own."""
    return isinstance(entry, Batch) and entry.is_control


def is_idempotent(entry: Whole) -> bool:
    """Whether its producer counts records, so that none may be added or left out."""
    return isinstance(entry, Batch) and entry.producer_id != NOBODY


def stored(entry: Whole) -> list[Record]:
    """The records of an entry as they stand in it. Raises RecordsError."""
    return list(decode(entry, stored=True))


def renumbered(entry: Whole, records: Sequence[Record]) -> bytes:
    """An entry of a Produce request with these records, one or more, numbered from its first offset on."""
    if isinstance(entry, LegacyEntry):
        following = [replace(record, offset=number) for number, record in enumerate(records)]
        return encode_message_set(following, entry.magic, codec=entry.codec)
    following = [replace(record, offset=entry.base_offset + number) for number, record in enumerate(records)]
    return encode_batch(
        following,
        codec=entry.codec,
        base_offset=entry.base_offset,
        partition_leader_epoch=entry.partition_leader_epoch,
        log_append_time=entry.max_timestamp if entry.is_log_append_time else None,
    )


def first_offset(entry: Whole) -> int:
    """The offset that an entry begins at; of a wrapper of messages its last, which is all that it says."""
    return entry.base_offset if isinstance(entry, Batch) else entry.offset


def last_offset(entry: Whole) -> int:
    """The offset that an entry ends at."""
    return entry.last_offset if isinstance(entry, Batch) else entry.offset
