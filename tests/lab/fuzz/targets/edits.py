"""Changes of several rules in one records field, against the same rules one after another.

- all rules before one flush give the entries that a flush after each rule gives
- appended headers are those that `edit` writes
- a rule reports a change in both cases, or in neither; records whose order changes without effect can differ in this
- entries without a change keep their bytes, and nothing is raised
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from kproxy.base.errors import RecordsError
from kproxy.protocol import Message
from kproxy.protocol.records import Batch
from kproxy.protocol.records.spans import EntrySpans, Span, header_bytes
from kproxy.protocol.table import schema
from kproxy.rules.content.edits import MessageEdits, RecordBudget, whole_entries
from tests.lab.fuzz.feed import Feed
from tests.lab.fuzz.targets import records as whole_fields
from tests.lab.fuzz.targets.records import LIMIT, WORDS
from tests.lab.fuzz.targets.spans import PLANS, changed_spans, seeds

__all__ = ["WORDS", "check", "compare", "seeds"]

RULES = 3
MORE = ((b"more", b"x" * 100), (b"", None))
HEADERS = 5000


def check(data: bytes) -> None:
    feed = Feed(data)
    from_inside, plan = feed.below(2), feed.piece()
    compare(whole_fields.valid_outside(feed) if from_inside else feed.rest(), plan)


def compare(data: bytes, plan: bytes) -> None:
    """Apply three rules to a field, each with the plan from another byte on."""
    rules = [partial(change, (plan[number:] + plan[:number]) or b"\0") for number in range(RULES)]
    together, reports, _ = applied(data, rules, each=False)
    one_by_one, expected, effective = applied(data, rules, each=True)
    # Copies of a record have equal spans until a flush, so only a rule after it sees that they were swapped.
    assert all(least <= report <= most for least, report, most in zip(effective, reports, expected, strict=True))
    assert comparables(together) == comparables(one_by_one)
    if not any(reports):
        assert together == data


def change(plan: bytes, spans: EntrySpans, records: Iterable[Span]) -> Iterator[Span]:
    found = [appended(spans, one) if plan[at % len(plan)] & 0x80 else one for at, one in enumerate(records)]
    return changed_spans(spans, found, [plan[number % len(plan)] % PLANS for number in range(len(found))])


def appended(spans: EntrySpans, record: Span) -> Span:
    """Return the record with more headers; `append_headers` and `edit` give the same ones."""
    if not isinstance(spans.entry, Batch):
        return record
    after = spans.append_headers(record, header_bytes(MORE), len(MORE))
    edited = spans.edit(record, headers=[*spans.headers(record), *MORE])
    for read in (spans.offset, spans.timestamp, spans.key, spans.value, spans.headers):
        assert read(after) == read(edited)
    return after


def applied(
    data: bytes, rules: list[Callable[..., Iterator[Span]]], *, each: bool
) -> tuple[bytes, list[bool], list[bool]]:
    """Return the field after these rules, their reports, and whether the entries differ after each rule. `each`: with a
    flush after each rule."""
    body = {"partition_index": 0, "records": data}
    response = {"responses": [{"topic": "t", "partitions": [body]}]}
    edits, reports, effective = MessageEdits(Message(schema.load(1), 11, {"correlation_id": 1}, response)), [], []
    for rule in rules:
        before = comparables(bytes(body["records"]))
        reports.append(edits.field(body).change_records(rule, RecordBudget(HEADERS, LIMIT)))
        if each:
            edits.flush()
        effective.append(before != comparables(bytes(body["records"])))
    edits.flush()
    return bytes(body["records"]), reports, effective


def comparables(data: bytes) -> list[Any]:
    return list(map(comparable, whole_entries(data)[0]))


def comparable(entry: Any) -> Any:
    """Return an entry without the bytes that depend on the number of compressions."""
    if isinstance(entry, Batch) and not entry.count:  # its timestamps are those of the last write
        return replace(entry, base_timestamp=0, max_timestamp=0, length=0, crc=0, raw=memoryview(b""))
    if not isinstance(entry, Batch) or not entry.codec:
        return bytes(entry.raw)
    try:
        return replace(entry, length=0, crc=0, raw=memoryview(b"")), bytes(EntrySpans(entry, 4 * LIMIT).data)
    except RecordsError:
        return bytes(entry.raw)
