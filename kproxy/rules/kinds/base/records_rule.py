"""Records in Produce requests and Fetch responses: changed entry by entry, in every format and codec.

Entries that cannot be read (cut, unknown codec, invalid bytes) and control batches stay unchanged. A kilobyte can hold
a million records. Entries beyond `RecordBudget` stay unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from random import Random
from typing import Any, Literal

from pydantic import Field

from kproxy.base.cooperative import yield_point
from kproxy.base.errors import RecordsError
from kproxy.protocol.primitives import Buffer
from kproxy.protocol.records import Batch, Cut, Entry, LegacyEntry, entries
from kproxy.protocol.records.spans import EntrySpans, Span
from kproxy.protocol.table.api_keys import FETCH, PRODUCE, SHARE_FETCH
from kproxy.rules.bodies import PartitionBody, partitions_of_answer, partitions_of_request
from kproxy.rules.entity import Entity
from kproxy.rules.exchange import Edit, Exchange, FrameDepth
from kproxy.rules.values.quantities import Ranges, Seed

from .rule import Decisions, Direction, Effect, LiveRule

Whole = Batch | LegacyEntry
ChangeSpans = Callable[[EntrySpans], Iterable[Span]]
"""Returns the records of an entry after a change."""

MOST_PER_FRAME = 500_000
"""Records and headers that are read in the entries of one frame: about a second of work, with yield points."""
SENT_BY_RECORD = 16
"""Bytes of a frame that allow one more record, so that all records of an honest frame are read."""
MOST_DECOMPRESSED = 64 << 20
"""Decompressed bytes of one frame."""
DAMAGED = MOST_DECOMPRESSED // 8
"""Charge in bytes for an entry with a decompression error, whose output before the error is unknown."""
NO_PRODUCER = -1
"""The producer id of a batch without idempotence."""

ChangeEntry = Callable[[Whole], bytes | None]
"""Returns the new bytes of an entry; None: unchanged."""


def whole_entries(data: Buffer | None) -> tuple[list[Whole], Buffer]:
    """Return the complete entries, and the bytes after them."""
    whole: list[Whole] = []
    position = 0
    try:
        for entry in entries(data):
            if isinstance(entry, Cut):
                break
            whole.append(entry)
            position += len(entry.raw)
    except RecordsError:
        pass
    return whole, memoryview(data or b"")[position:]


def change_entries(data: Buffer | None, change: ChangeEntry) -> bytes | None:
    """Return a records field with its entries changed; None when none is. Control batches are left alone."""
    whole, rest = whole_entries(data)
    changed = [None if is_control(entry) else attempt(change, entry) for entry in whole]
    if all(one is None for one in changed):
        return None
    pieces = [entry.raw if one is None else one for entry, one in zip(whole, changed, strict=True)]
    return b"".join((*pieces, rest))


def attempt(change: ChangeEntry, entry: Whole) -> bytes | None:
    """Return the entry changed, None when it cannot be read or written so."""
    yield_point()
    try:
        return change(entry)
    except RecordsError:
        return None


def is_control(entry: Entry) -> bool:
    """Return True if an entry is a control batch, the broker's own."""
    return isinstance(entry, Batch) and entry.is_control


def is_idempotent(entry: Whole) -> bool:
    """Return True if the producer of an entry counts records, so that none may be added or left out."""
    return isinstance(entry, Batch) and entry.producer_id != NO_PRODUCER


@dataclass(slots=True)
class RecordBudget:
    """Remaining budget of one frame: records with their headers, and decompressed bytes."""

    records: int = MOST_PER_FRAME
    size: int = MOST_DECOMPRESSED

    def add(self, sent: int) -> None:
        """Add the budget for `sent` bytes of the frame."""
        self.records += sent // SENT_BY_RECORD

    @contextmanager
    def opened(self, entry: Whole) -> Iterator[EntrySpans]:
        """Return the records of an entry, and charge them. Raises RecordsError, also if the budget is used up."""
        if self.records <= 0 or self.size <= 0:
            raise RecordsError("expected fewer records or decompressed bytes in one frame")
        try:
            spans = EntrySpans(entry, self.size, min(self.records, MOST_PER_FRAME))
        except RecordsError:
            self.size -= DAMAGED if entry.codec else 0
            raise
        self.size -= len(spans.data) if entry.codec else 0
        try:
            yield spans
        finally:
            self.records -= spans.scanned


def change_records(
    data: Buffer, room: RecordBudget, change: ChangeSpans, *, fast: bool = True, renumber: bool = False
) -> bytes | None:
    """Return a records field with changed records; None if no record changes. `fast`, `renumber`: see
    `EntrySpans.write`. Batches of idempotent producers are not renumbered, since the broker counts their records."""
    room.add(len(data))

    def changed(entry: Whole) -> bytes | None:
        if renumber and is_idempotent(entry):
            return None
        with room.opened(entry) as spans:
            return spans.write(change(spans), renumber=renumber, fast=fast)

    return change_entries(data, changed)


def first_offset(entry: Whole) -> int:
    """Return the first offset of an entry. For a message wrapper it is the last offset, the only one in its header."""
    return entry.base_offset if isinstance(entry, Batch) else entry.offset


def last_offset(entry: Whole) -> int:
    return entry.last_offset if isinstance(entry, Batch) else entry.offset


RECORDS = "records"
WHOLE = 2**64


class RecordsRule(LiveRule):
    """Rule about the records of Produce requests, or of Fetch and ShareFetch answers. Override `change`."""

    at: Literal["produce", "fetch"] = Field(
        default="fetch", description="records of Produce requests, or of Fetch and ShareFetch responses"
    )

    def depth(self, direction: Direction, key: int, version: int) -> FrameDepth:
        if self.at == "produce":
            return FrameDepth.BODY if direction == "request" and key == PRODUCE else FrameDepth.NOTHING
        return FrameDepth.BODY if direction == "response" and key in (FETCH, SHARE_FETCH) else FrameDepth.NOTHING

    def change(self, data: Buffer, place: PartitionBody, room: RecordBudget) -> bytes | None:
        """Return the new records field of a partition; None: unchanged."""
        raise NotImplementedError

    def start(self) -> Effect:
        return RecordChanges(self)


class RecordChanges(Effect):
    """Effect that goes through the partitions that match."""

    def __init__(self, rule: RecordsRule) -> None:
        self.rule = rule

    def on_request(self, exchange: Exchange, entities: Sequence[Entity], now: float) -> Decisions:
        return self.go_through(partitions_of_request(exchange, entities))

    def on_response(self, exchange: Exchange, entities: Sequence[Entity], now: float) -> Decisions:
        return self.go_through(partitions_of_answer(exchange, entities))

    def go_through(self, places: Iterator[PartitionBody]) -> Decisions:
        changed, room = False, RecordBudget()
        for place in places:
            data = place.body[RECORDS]
            after = self.rule.change(data, place, room) if data else None
            yield_point()  # for each batch: one costs as much as many entities
            if after is not None:
                place.body[RECORDS] = after
                changed = True
        return (Edit(),) if changed else ()


class SomeRecordsRule(RecordsRule):
    """Rule about some of the records: by offset, by chance, or all of them. Override `change`."""

    offsets: Ranges | None = Field(
        default=None,
        description="only records with these offsets; in Produce requests: positions in the batch, from 0",
    )
    fraction: float = Field(default=1.0, gt=0, le=1, description="fraction of records to change")
    seed: Seed = Field(default=0, description="seed of the selection and the changes")

    def chooser(self, place: PartitionBody, spans: EntrySpans) -> Callable[[Span], bool]:
        """Return a function that returns True if the rule acts on a record."""
        if self.offsets is None and self.fraction == 1.0:
            return lambda span: True

        def chooses(span: Span) -> bool:
            offset = spans.offset(span)
            if self.offsets is not None and not any(offset in one for one in self.offsets):
                return False
            return self.fraction == 1.0 or self.draw(place, offset, spans.value(span)) < self.fraction

        return chooses

    def altered(
        self, data: Buffer, place: PartitionBody, room: RecordBudget, alter: Callable[[EntrySpans, Span], Span]
    ) -> bytes | None:
        """Return a records field with the chosen records as `alter` returns them; None if no record differs."""

        def change(spans: EntrySpans) -> Iterator[Span]:
            chosen = self.chooser(place, spans)
            return (alter(spans, span) if chosen(span) else span for span in spans)

        return change_records(data, room, change, fast=self.at == "fetch")

    def draw(self, place: PartitionBody, offset: int, content: bytes | None) -> float:
        """Return a number from 0 up to 1 that depends on the seed and the record alone."""
        text = f"{self.seed}:{place.name}:{offset}:".encode(errors="surrogateescape")
        digest = blake2b(text + (content or b""), digest_size=8).digest()
        return int.from_bytes(digest, "big") / WHOLE

    def random(self, place: PartitionBody, *what: Any) -> Random:
        """Return chances that depend on the seed and the place alone."""
        return Random(":".join(map(str, (self.seed, place.name, *what))))
