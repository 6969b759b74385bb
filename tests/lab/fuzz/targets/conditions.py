"""Record conditions, with and without the search for literals.

- a condition has one text, which gives the same condition
- records match with the search if and only if they match without it
- strict rules also select records that cannot be read, and no others
- nothing is raised but FilterError for a text and UnreadableRecord for a record
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, takewhile

from kproxy.base.errors import FilterError, RecordsError
from kproxy.protocol.records import Cut, LegacyEntry, Record, encode_batch, entries
from kproxy.protocol.records.spans import EntrySpans
from kproxy.rules.content.edits import RecordBudget
from kproxy.rules.filter.evaluate import RecordCondition
from kproxy.rules.filter.record_fields import UnreadableRecord
from kproxy.rules.kinds.base.record_selector import matching_records
from tests.lab.fuzz.feed import Feed
from tests.lab.fuzz.targets import records as whole_fields
from tests.lab.fuzz.targets.records import LIMIT

HEADERS, NOW = 5000, 1_700_000_000_000
CONDITIONS = (
    "value.a.b == DE", "value.a[*].c > 1.5 and not header.replay", 'key == "k" or value."x y" ~ ^a', "value", "~tomb",
    "value.a in (x, y, 17)", "header.trace != b", "age > 1h and record_size < 1MB", "key.id == null", "structured",
)  # fmt: skip
WORDS = [*(text.encode() for text in CONDITIONS), b'{"a": {"b": "DE"}}', b'"\\u0044E"', b"[1, 2.5e3, null]"]


def check(data: bytes) -> None:
    feed = Feed(data)
    from_inside, text = feed.below(2), feed.piece().decode("utf-8", "replace")
    field = whole_fields.valid_outside(feed) if from_inside else feed.rest()
    try:
        condition = RecordCondition(text)
    except FilterError:
        return
    assert RecordCondition(str(condition)) == condition
    compare(condition, bytes(field))


def compare(condition: RecordCondition, field: bytes) -> None:
    """Compare the records that match one by one with those of whole fields."""
    expected: list[int] = []
    unreadable, number = False, 0
    try:
        for entry in islice(entries(field), 20):
            if isinstance(entry, Cut | LegacyEntry) or entry.is_control:
                return
            for matches in outcomes(condition, EntrySpans(entry, LIMIT, HEADERS)):
                expected += [number] * (matches is True)
                unreadable |= matches is None
                number += 1
    except RecordsError:
        return
    found = [list(matching_records(field, condition, NOW, RecordBudget(HEADERS, LIMIT), strict=strict))
             for strict in (False, True)]  # fmt: skip
    assert found[0] == expected
    assert found[1] == expected or unreadable


def outcomes(condition: RecordCondition, spans: EntrySpans) -> Iterator[bool | None]:
    """Yield whether each record matches; None if it cannot be read."""
    exact, fast = condition.test(spans, NOW), condition.test(spans, NOW, raises=False)
    for span in spans:
        try:
            matches: bool | None = exact(span)
        except UnreadableRecord:
            matches = None
        try:
            assert fast(span) is bool(matches)
        except UnreadableRecord:
            assert matches is None
        yield matches


def seeds() -> Iterator[bytes]:
    """Inputs to begin with: each condition with records in JSON, and with fields of the target `records`."""
    values = (b'{"a": {"b": "DE"}, "x y": "ab"}', b'{"a": [{"c": 2}, {"c": 1}]}', b"text", None, b'{"a": "\\u0044E"}')
    made = [Record(at, 5, b'{"id": null}', value, (("trace", b"b"),)) for at, value in enumerate(values)]
    for number, text in enumerate(CONDITIONS):
        head = text.encode()
        yield bytes((0, len(head))) + head + encode_batch(made, codec=number % 5)
    for number, data in enumerate(takewhile(bool, whole_fields.seeds())):
        head = CONDITIONS[number % len(CONDITIONS)].encode()
        yield bytes((data[0] & 1, len(head))) + head + data[1:]
