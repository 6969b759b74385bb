"""Spans of records against `decode`, and entries written from spans against `rewrite`.

- spans have the offsets, timestamps, keys, values and headers that `decode` yields, and fail at the same record
- an entry with edited, omitted, repeated and exchanged records has the records that `rewrite` writes, and its checksum
- a batch has the same bytes from both, except for records that a producer encoded in another way than `rewrite`
- nothing is raised but RecordsError
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import islice, takewhile
from typing import Any

from kproxy.base.errors import RecordsError
from kproxy.protocol.records import Batch, Cut, LegacyEntry, Record, check_crc, decode, entries, rewrite
from kproxy.protocol.records.record import wrapped
from kproxy.protocol.records.spans import OFFSET_DELTA, EntrySpans, Span
from tests.lab.fuzz.feed import Feed
from tests.lab.fuzz.targets import records as whole_fields
from tests.lab.fuzz.targets.records import LIMIT, WORDS, plain

__all__ = ["WORDS", "check", "compare", "seeds"]

HEADERS = 5000
CHANGES: tuple[dict[str, Any], ...] = (
    {}, {"value": b"changed"}, {"value": None}, {"key": b"k" * 200}, {"key": None, "value": b""}, {"headers": ()},
    {"headers": ((b"a", b"1"), (b"", None))}, {"timestamp": 1}, {"key": b"", "headers": ((b"\xff", b""),)},
)  # fmt: skip
OMIT, TWICE, EXCHANGE = range(len(CHANGES), len(CHANGES) + 3)
PLANS = len(CHANGES) + 3


def check(data: bytes) -> None:
    """Compare all entries of a field under a plan of changes."""
    feed = Feed(data)
    from_inside, plan = feed.below(2), feed.piece()
    field = whole_fields.valid_outside(feed) if from_inside else feed.rest()
    try:
        for entry in islice(entries(field), 20):
            if not isinstance(entry, Cut):
                compare(entry, plan)
    except RecordsError:
        return


def outcome(results: Iterable[Any]) -> tuple[list[Any], str | None]:
    """Results before an error, and the error."""
    found: list[Any] = []
    try:
        found.extend(results)  # keeps the results before an error
    except RecordsError as problem:
        return found, str(problem)
    return found, None


def compare(entry: Batch | LegacyEntry, plan: bytes = b"") -> None:
    """Compare spans with records, and the entry written from both. `plan`: changes, repeated for all records."""
    records, problem = outcome(decode(entry, LIMIT, stored=True, headers=HEADERS))
    try:
        spans = EntrySpans(entry, LIMIT, HEADERS)
    except RecordsError:
        assert problem is not None
        return
    found, span_problem = outcome(spans)
    assert span_problem == problem
    assert [record_of(spans, span) for span in found] == list(map(seen, records))
    if problem is None:
        compare_written(spans, records, found, plan or b"\0")


def record_of(spans: EntrySpans, span: Span) -> Record:
    names = tuple((name.decode("utf-8", "surrogateescape"), value) for name, value in spans.headers(span))
    return Record(spans.offset(span), spans.timestamp(span), spans.key(span), spans.value(span), names)


def seen(record: Record) -> Record:
    return replace(record, offset=wrapped(record.offset), attributes=0)


def compare_written(spans: EntrySpans, records: list[Record], found: list[Span], plan: bytes) -> None:
    entry, steps = spans.entry, [plan[number % len(plan)] % PLANS for number in range(len(found))]
    after = list(changed_records(records, steps, entry.magic))
    expected, problem = outcome(rewrite(entry, after) for _ in range(1))
    try:
        written = spans.write(list(changed_spans(spans, found, steps)))
    except RecordsError as error:
        assert problem is not None or "expected a last offset" in str(error), (problem, error)
        return
    if written is None:
        assert list(map(plain, after)) == list(map(plain, records))
        return
    assert problem is None, problem
    again, problem = outcome(one for part in entries(expected[0]) for one in decode(part, 4 * LIMIT, stored=True))
    if problem is None:  # offsets of bad bytes may not fit the form that `rewrite` gives them
        new = list(entries(written))
        made = [plain(one) for part in new for one in decode(part, 4 * LIMIT, stored=True)]
        # `rewrite` shifts exchanged offsets in a wrapper whose last offset is 0
        assert made == list(map(plain, again)) or (entry.magic == 1 and made == list(map(plain, after)))
        for part in new if isinstance(entry, Batch) or entry.codec else ():  # single messages are copied as they are
            check_crc(part)
    if isinstance(entry, Batch) and not set(steps) - {OMIT, TWICE}:
        assert len(written) != len(expected[0]) or written == expected[0]
    with suppress(RecordsError):  # for an offset outside the batch
        assert spans.write(found) is None


def changed_spans(spans: EntrySpans, found: list[Span], steps: list[int]) -> Iterator[Span]:
    for number, (span, step) in enumerate(zip(found, steps, strict=True)):
        if step < len(CHANGES):
            first, *following = CHANGES[step].items() or [("offset_delta", span[OFFSET_DELTA])]
            span = spans.edit(span, **dict([first]))
            yield spans.edit(span, **dict(following)) if following else span
        elif step == EXCHANGE:
            yield spans.edit(span, offset_delta=found[-1 - number][OFFSET_DELTA])
        else:
            yield from [span] * (2 if step == TWICE else 0)


def changed_records(records: list[Record], steps: list[int], magic: int) -> Iterator[Record]:
    for number, (record, step) in enumerate(zip(records, steps, strict=True)):
        if step < len(CHANGES):
            change = {name: value for name, value in CHANGES[step].items() if magic or name != "timestamp"}
            if "headers" in change:
                change["headers"] = tuple((k.decode("utf-8", "surrogateescape"), v) for k, v in change["headers"])
            yield replace(record, **change)
        elif step == EXCHANGE:
            yield replace(record, offset=records[-1 - number].offset)
        else:
            yield from [record] * (2 if step == TWICE else 0)


def seeds() -> Iterator[bytes]:
    """Inputs to begin with: the fields of the target `records`, each with a plan of one to three changes."""
    for number, data in enumerate(takewhile(bool, whole_fields.seeds())):
        plan = bytes((number % PLANS, OMIT, (number * 5) % PLANS)[: 1 + number % 3])
        yield bytes((data[0] & 1, len(plan))) + plan + data[1:]
