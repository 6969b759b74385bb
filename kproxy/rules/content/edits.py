"""Changes of records in one message. Rules share them: an entry is decompressed once and written once.

`MessageEdits(message)` belongs to one request or response. `field(body)` returns the `FieldEdits` of one partition,
whose body has the field `records`. A rule calls `change_records` with a function that receives the records of one
entry as spans (`protocol/records/spans.py`) and returns the records after the change:

    def change(spans, records):
        for record in records:
            yield spans.edit(record, value=b"…", headers=[…])   # or key=…, timestamp=…; without a yield: withheld

The next rule receives the changed records. `MessageEdits.flush` writes them. `Exchange.request` and
`Exchange.response` call it before they return the message, so other code never reads old records.

Control batches, cut entries and unreadable entries stay unchanged. Memory: short batches stay decompressed until the
flush, up to KEPT_BYTES and KEPT_RECORDS of a message; all other entries are written after each rule. A kilobyte can
hold a million records, so `RecordBudget` limits the work of one rule with one frame.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from operator import is_, itemgetter
from typing import Any

from kproxy.base.cooperative import yield_point, yielding
from kproxy.base.errors import RecordsError
from kproxy.protocol import Message
from kproxy.protocol.elements import partitions
from kproxy.protocol.primitives import Buffer
from kproxy.protocol.records import Batch, Cut, Entry, LegacyEntry, entries
from kproxy.protocol.records.batch import frame_batch, without_records
from kproxy.protocol.records.spans import END, HIGHEST, MOST_RECORDS, OFFSET_DELTA, START, EntrySpans, Span

Whole = Batch | LegacyEntry
ChangeEntry = Callable[[Whole], bytes | None]
"""Returns the new bytes of an entry; None: unchanged."""
ChangeSpans = Callable[[EntrySpans, Iterable[Span]], Iterable[Span]]
"""Returns the records of an entry after a change."""
OnUnreadable = Callable[[Whole | None, RecordsError], Buffer | None]
"""Returns the bytes in the place of an entry that cannot be read or written; None: unchanged. Without an entry: in the
place of the bytes after the last whole entry."""

RECORDS = "records"
MOST_PER_FRAME = 500_000
"""Records and headers that one rule reads in the entries of one frame: about a second of work, with yield points."""
SENT_BY_RECORD = 16
"""Bytes of a frame that allow one more record, so that all records of an honest frame are read."""
MOST_DECOMPRESSED = 64 << 20
"""Decompressed bytes of one frame."""
DAMAGED = MOST_DECOMPRESSED // 8
"""Charge in bytes for an entry with a decompression error, whose output before the error is unknown."""
NO_PRODUCER = -1
"""The producer id of a batch without idempotence."""
FIRST, LAST, DELTA = itemgetter(START), itemgetter(END), itemgetter(OFFSET_DELTA)
SHORT_BATCH = (1 << 20, 4096)
"""Decompressed bytes and records of a batch that may stay open."""
KEPT_BYTES, KEPT_RECORDS = 8 << 20, 1 << 15
"""Decompressed bytes and records of all open batches of a message."""


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


CUT_HEAD = 17
"""Bytes of an entry up to its magic: offset, length, and epoch or crc."""


def emptied(entry: Whole | None, rest: Buffer = b"") -> bytes:
    """Return an entry without records, which keeps the offsets of a batch. Of the bytes after the last whole entry, the
    first ones of a cut entry remain: they contain no record."""
    if entry is None:
        return bytes(rest[:CUT_HEAD]) if any(isinstance(one, Cut) for one in whole_entries_or_cut(rest)) else b""
    return frame_batch(without_records(entry), b"") if isinstance(entry, Batch) else b""


def whole_entries_or_cut(data: Buffer) -> list[Entry]:
    try:
        return list(entries(data))
    except RecordsError:
        return []


def is_control(entry: Entry) -> bool:
    """Return True if an entry is a control batch, the broker's own."""
    return isinstance(entry, Batch) and entry.is_control


def is_idempotent(entry: Whole) -> bool:
    """Return True if the producer of an entry counts records, so that none may be added or left out."""
    return isinstance(entry, Batch) and entry.producer_id != NO_PRODUCER


@dataclass(slots=True)
class RecordBudget:
    """Remaining budget of one frame: records with their headers, and decompressed bytes. `damaged`: charge for an entry
    with a decompression error."""

    records: int = MOST_PER_FRAME
    size: int = MOST_DECOMPRESSED
    damaged: int = DAMAGED

    @classmethod
    def of_size(cls, size: int) -> RecordBudget:
        """Return the budget of a frame with at most `size` decompressed bytes."""
        return cls(size=size, damaged=size // 8)

    def add(self, sent: int) -> None:
        """Add the budget for `sent` bytes of the frame."""
        self.records += sent // SENT_BY_RECORD

    @contextmanager
    def opened(self, entry: Whole) -> Iterator[EntrySpans]:
        """Return the records of an entry, and charge them. Raises RecordsError, also if the budget is used up."""
        self.check()
        try:
            spans = EntrySpans(entry, self.size, min(self.records, MOST_PER_FRAME))
        except RecordsError:
            self.size -= self.damaged if entry.codec else 0
            raise
        self.size -= len(spans.data) if entry.codec else 0
        try:
            yield spans
        finally:
            self.records -= spans.scanned

    def charge(self, spans: EntrySpans) -> None:
        """Charge a batch that is open already, as if it were opened again."""
        self.check()
        size = len(spans.data) if spans.entry.codec else 0
        assert isinstance(spans.entry, Batch)
        headers = spans.scanned - spans.entry.count
        self.records -= spans.scanned
        self.size -= size
        if self.size < 0 or headers > self.records + spans.scanned:
            raise used_up()

    def check(self) -> None:
        if self.records <= 0 or self.size <= 0:
            raise used_up()


@dataclass(slots=True)
class RecordCounts:
    """Records that a rule has seen, by result. `matched`: by its record conditions. `rejected`: named in an error."""

    seen: int = 0
    matched: int = 0
    changed: int = 0
    withheld: int = 0
    rejected: int = 0
    unreadable: int = 0

    def compared(self, before: int, after: Iterable[Span], first_changed: int) -> Iterator[Span]:
        """Yield the records after a change of `before` records, and count them. The bytes of changed records start at
        `first_changed` or later."""
        count = 0
        for span in after:
            count += 1
            self.changed += span[START] >= first_changed
            yield span
        self.withheld += max(0, before - count)


def used_up() -> RecordsError:
    return RecordsError("expected fewer records or decompressed bytes in one frame")


class OpenBatch:
    """Batch that stays decompressed until the flush: its records after the changes so far."""

    __slots__ = ("changed", "records", "spans")

    def __init__(self, spans: EntrySpans, records: list[Span]) -> None:
        self.spans, self.records, self.changed = spans, records, False

    def apply(self, change: ChangeSpans, counts: RecordCounts) -> bool:
        """Return True if the change differs. Raises RecordsError for records that cannot be written."""
        after = list(yielding(iter(change(self.spans, yielding(self.records)))))
        counts.seen += len(self.records)
        if len(after) == len(self.records) and all(map(is_, after, self.records)):
            return False
        entry = self.spans.entry
        assert isinstance(entry, Batch)
        most = min(entry.last_offset_delta, HIGHEST - entry.base_offset)
        if after and (min(map(DELTA, after)) < 0 or max(map(DELTA, after)) > most):
            raise RecordsError(f"expected offset deltas from 0 to {most}")
        if len(after) > MOST_RECORDS or sum(map(LAST, after)) - sum(map(FIRST, after)) > self.spans.most_output:
            raise self.spans.too_long()
        counts.withheld += max(0, len(self.records) - len(after))
        before = frozenset(map(id, self.records))
        counts.changed += sum(id(span) not in before for span in after)
        self.records, self.changed = after, True
        return True


class FieldEdits:
    """Records field of one partition, with changes that are not written yet. `counts`: of the rule that changes it."""

    __slots__ = ("body", "counts", "edits", "entries", "opened", "rest", "shortened", "size", "written")

    def __init__(self, body: dict[str, Any], edits: MessageEdits) -> None:
        self.body, self.edits, self.counts = body, edits, RecordCounts()
        self.read()

    def read(self) -> None:
        data = self.body[RECORDS]
        self.size = len(data or b"")
        self.entries, self.rest = whole_entries(data)
        self.shortened = False  # the rest
        self.opened: dict[int, OpenBatch] = {}
        self.written: dict[int, bytes] = {}

    def change_records(
        self,
        change: ChangeSpans,
        budget: RecordBudget,
        *,
        renumber: bool = False,
        on_unreadable: OnUnreadable | None = None,
    ) -> bool:
        """Change the records of each entry. Return True if any record changed. `renumber`: see `EntrySpans.write`;
        batches of idempotent producers are not renumbered, since the broker counts their records. `on_unreadable`:
        for entries that cannot be changed, and a cut entry (default: they stay)."""
        if self.written or self.shortened or renumber:
            self.flush()  # other bytes in the place of an entry may be several entries
        budget.add(self.size)
        fast, counts = self.edits.fast, self.counts

        def changed(number: int, entry: Whole) -> bool:
            if renumber and is_idempotent(entry):
                return False
            opened = self.opened.get(number)
            if opened is not None:
                budget.charge(opened.spans)
                return opened.apply(change, counts)
            with budget.opened(entry) as spans:
                if renumber or not self.edits.may_keep(spans):
                    seen = entry.count if isinstance(entry, Batch) else 0
                    counts.seen += seen
                    after = counts.compared(seen, change(spans, spans), spans.gap)
                    return self.replace_entry(number, spans.write(after, renumber=renumber, fast=fast))
                opened = self.opened[number] = OpenBatch(spans, list(spans))
            return opened.apply(change, counts)

        return self.change_each(changed, on_unreadable)

    def change_entries(self, change: ChangeEntry) -> bool:
        """Change the bytes of whole entries. Return True if any changed."""
        self.flush()
        return self.change_each(lambda number, entry: self.replace_entry(number, change(entry)))

    def change_each(self, change: Callable[[int, Whole], bool], on_unreadable: OnUnreadable | None = None) -> bool:
        changed = False
        for number, entry in enumerate(self.entries):
            if is_control(entry):
                continue
            yield_point()
            try:
                changed |= change(number, entry)
            except RecordsError as error:
                if on_unreadable is not None and (after := on_unreadable(entry, error)) is not None:
                    self.opened.pop(number, None)
                    changed |= self.replace_entry(number, bytes(after))
        if self.rest and on_unreadable is not None:
            after = on_unreadable(None, RecordsError("expected a whole entry, got a part of it"))
            if after is not None and after != self.rest:
                self.rest, changed, self.shortened = after, True, True
        return changed

    def cut(self, entry: Whole) -> None:
        """Remove an entry and all bytes after it."""
        number = next(number for number, one in enumerate(self.entries) if one is entry)
        self.entries, self.rest, self.shortened = self.entries[:number], b"", True
        for changes in (self.opened, self.written):
            for later in [one for one in changes if one >= number]:
                del changes[later]

    def replace_entry(self, number: int, after: bytes | None) -> bool:
        if after is not None:
            self.written[number] = after
        return after is not None

    def store(self) -> None:
        """Write all changes into the partition's body."""
        changed = dict(self.written)
        for number, opened in self.opened.items():
            yield_point()
            if opened.changed and (after := opened.spans.write(opened.records, fast=self.edits.fast)) is not None:
                changed[number] = after
        if changed or self.shortened:
            pieces = [changed.get(number, entry.raw) for number, entry in yielding(enumerate(self.entries))]
            self.body[RECORDS] = b"".join((*pieces, self.rest))

    def flush(self) -> None:
        """Write all changes into the partition's body, and read it again."""
        if self.written or self.opened or self.shortened:
            self.store()
            self.read()

    def replace(self, data: bytes) -> bool:
        """Replace the whole field."""
        self.body[RECORDS] = data
        self.read()
        return True


class MessageEdits:
    """Records fields of one message that rules read or change. `fast`: the fast level of codecs, for data that is not
    stored."""

    __slots__ = ("fast", "fields", "kept_bytes", "kept_records", "message", "most_bytes")

    def __init__(self, message: Message) -> None:
        self.message, self.fast = message, message.direction == "response"
        self.fields: dict[int, FieldEdits] = {}
        self.kept_bytes, self.kept_records = KEPT_BYTES, KEPT_RECORDS
        self.most_bytes: int | None = None

    def field(self, body: dict[str, Any]) -> FieldEdits:
        """Return the edits of a partition by its body, which has the field `records`."""
        if (found := self.fields.get(id(body))) is None:
            found = self.fields[id(body)] = FieldEdits(body, self)
        return found

    def may_keep(self, spans: EntrySpans) -> bool:
        """Return True if the batch may stay open; it is then charged."""
        entry, size = spans.entry, len(spans.data)
        if not isinstance(entry, Batch) or size > SHORT_BATCH[0] or entry.count > SHORT_BATCH[1]:
            return False
        if size > self.kept_bytes or entry.count > self.kept_records:
            return False
        self.kept_bytes -= size
        self.kept_records -= entry.count
        return True

    def limit(self, most_bytes: int) -> None:
        """Limit the records of the response: `flush` removes whole batches at the end, but never the first one. A
        response that is longer already may keep its length."""
        if self.most_bytes is None:
            self.most_bytes = max(most_bytes, records_size(self.message))

    def flush(self) -> None:
        """Write all changes into the message."""
        if not self.fields:
            return
        fields, self.fields = self.fields, {}
        for field in fields.values():
            yield_point()
            field.store()
        self.kept_bytes, self.kept_records = KEPT_BYTES, KEPT_RECORDS
        if self.most_bytes is not None and records_size(self.message) > self.most_bytes:
            shorten(self.message, self.most_bytes)


def records_size(message: Message) -> int:
    return sum(len(partition.records or b"") for partition in yielding(partitions(message)))


def shorten(message: Message, most_bytes: int) -> None:
    """Remove the batches from the first one on that does not fit, but never the first one of the response."""
    left, first = most_bytes, True
    for partition in yielding(partitions(message)):
        data = partition.records
        if not data:
            continue
        if len(data) <= left:
            left -= len(data)
        else:
            kept = 0
            for entry in whole_entries(data)[0] if left > 0 else ():
                if kept + len(entry.raw) > left and (kept or not first):
                    break
                kept += len(entry.raw)
            left = 0
            partition.fields[RECORDS] = bytes(memoryview(data)[: kept or (len(data) if first else 0)])
        first = False
