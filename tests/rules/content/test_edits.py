"""Records fields of a message, changed by several rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kproxy.base.errors import RecordsError
from kproxy.protocol import decode_response
from kproxy.protocol.records import Producer, Record, decode, encode_batch, encode_message_set, entries, spans
from kproxy.protocol.records.spans import EntrySpans, Span
from kproxy.rules.content import edits as module
from kproxy.rules.content.edits import DAMAGED, FieldEdits, MessageEdits, RecordBudget, is_idempotent, whole_entries
from tests.lab.fuzz.targets.edits import compare
from tests.support.frames import message

BATCH = encode_batch([Record(5, 0, None, b"a"), Record(6, 0, None, b"b")])
CONTROL = encode_batch([Record(7, 0, None, b"")], control=True)
Change = Callable[[EntrySpans, Iterable[Span]], Iterable[Span]]


def edits_of(*fields: bytes | None) -> MessageEdits:
    """A Fetch response with one partition for each field."""
    parts = [{"partition_index": number, "records": data} for number, data in enumerate(fields)]
    frame = message(1, 12, "response", {"responses": [{"topic": "t", "partitions": parts}]}, 1)
    return MessageEdits(decode_response(frame, 1, 12))


def bodies(edits: MessageEdits) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = edits.message.body["responses"][0]["partitions"]
    return found


def field_of(data: bytes | None) -> FieldEdits:
    edits = edits_of(data)
    return edits.field(bodies(edits)[0])


def without_first(spans: EntrySpans, records: Iterable[Span]) -> list[Span]:
    return list(records)[1:]


def appending(text: bytes) -> Change:
    def change(spans: EntrySpans, records: Iterable[Span]) -> Iterator[Span]:
        return (spans.edit(one, value=(spans.value(one) or b"") + text) for one in records)

    return change


def values(data: Any) -> list[bytes | None]:
    return [record.value for entry in entries(data) for record in decode(entry)]


@pytest.mark.parametrize("data", [None, b"", b"short", BATCH[:30], b"\xff" * 100])
def test_edits_of_unreadable_bytes_keep_them(data: bytes | None) -> None:
    field = field_of(data)

    assert (whole_entries(data)[0], bytes(field.rest)) == ([], data or b"")
    assert not field.change_entries(lambda entry: b"changed")
    field.edits.flush()
    assert field.body["records"] == data


def test_edits_write_only_changed_entries() -> None:
    """Control batches, the rest, and entries without a change or with an error stay byte by byte."""

    def change(entry: object) -> bytes | None:
        seen.append(entry)
        if len(seen) == 2:
            raise RecordsError("cannot be read")
        return b"changed" if len(seen) == 3 else None

    seen: list[object] = []
    field = field_of(BATCH + CONTROL + BATCH + BATCH + BATCH[:20])

    assert field.change_entries(change) and len(seen) == 3
    field.edits.flush()
    assert field.body["records"] == BATCH + CONTROL + BATCH + b"changed" + BATCH[:20]


def test_budget_of_a_frame_leaves_later_entries() -> None:
    """Records with their headers and decompressed bytes are charged; a damaged entry costs a fixed number of bytes."""
    headers = encode_batch([Record(5, 0, None, b"a", (("h", b""),) * 7), Record(6, 0, None, b"b")])
    packed = encode_batch([Record(5, 0, None, bytes(1000)), Record(6, 0, None, b"b")], codec=4)
    bad = packed[:70] + b"?" + packed[71:]
    cases = [
        (RecordBudget(records=2 - 2 * len(BATCH) // 16), BATCH + BATCH, [b"b"]),
        (RecordBudget(records=9 - 2 * len(headers) // 16), headers + headers, [b"b"]),
        (RecordBudget(records=6 - 2 * len(headers) // 16), headers + headers, []),
        (RecordBudget(size=1020), packed + packed, [b"b"]),
        (RecordBudget(size=1000), packed + packed, []),
        (RecordBudget(size=DAMAGED), bad + packed, []),
        (RecordBudget(size=DAMAGED + 1), bad + BATCH, [b"b"]),
    ]
    for budget, data, expected in cases:
        for opened in (False, True):  # a batch that another rule has opened costs the same
            field = field_of(data)
            if opened:
                field.change_records(lambda spans, records: records, RecordBudget())
            field.change_records(without_first, RecordBudget(budget.records, budget.size))
            field.edits.flush()
            before = {bytes(entry.raw) for entry in entries(data)}
            changed = [entry for entry in entries(field.body["records"]) if bytes(entry.raw) not in before]
            assert [record.value for entry in changed for record in decode(entry)] == expected


def test_is_idempotent_follows_producer_id() -> None:
    (plain,) = whole_entries(BATCH)[0]
    (counted,) = whole_entries(encode_batch([Record(0, 0, None, b"")], producer=Producer(0, 0, 0)))[0]

    assert (is_idempotent(plain), is_idempotent(counted)) == (False, True)


@settings(deadline=None, max_examples=100)
@given(st.binary(max_size=60), st.integers(0, 4), st.booleans())
@example(b".i", 0, False)  # copies that are swapped
def test_edits_of_several_rules_match_single_ones(plan: bytes, codec: int, short: bool) -> None:
    """The fuzz target's comparison: all rules at once give the bytes of one rule after another."""
    data = b"".join(
        encode_batch([Record(first + n, 9, b"k", b"value" * n) for n in range(4)], codec=codec) for first in (0, 10, 20)
    )
    old = encode_message_set([Record(30 + n, -1, b"k", b"v") for n in range(3)], 0, codec=codec % 4)
    compare(data[: None if short else -7] + (old if short else b""), plan)


@pytest.mark.parametrize("kept", [True, False])
def test_rules_share_one_opening_and_one_write(kept: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A short batch is decompressed once and compressed once; other batches once for each rule."""
    counts = {"decompress": 0, "compress": 0}
    for name in counts:
        original = getattr(spans, name)

        def counting(*given: Any, name: str = name, original: Any = original, **named: Any) -> Any:
            counts[name] += 1
            return original(*given, **named)

        monkeypatch.setattr(spans, name, counting)
    if not kept:
        monkeypatch.setattr(module, "SHORT_BATCH", (1 << 20, 1))
    field = field_of(encode_batch([Record(n, 0, None, b"%d" % n) for n in range(3)], codec=4))

    for text in (b"a", b"b", b"c"):
        assert field.change_records(appending(text), RecordBudget())
    field.edits.flush()

    assert values(field.body["records"]) == [b"0abc", b"1abc", b"2abc"]
    assert counts == {"decompress": 1, "compress": 1} if kept else {"decompress": 3, "compress": 3}


@pytest.mark.parametrize("change", ["offset", "many", "long"])
def test_change_beyond_a_limit_leaves_the_batch(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes of earlier rules stay."""
    monkeypatch.setattr(module, "MOST_RECORDS", 10)
    field = field_of(BATCH)
    changes: dict[str, Change] = {
        "offset": lambda spans, records: [spans.edit(one, offset_delta=7) for one in records],
        "many": lambda spans, records: list(records) * 6,
        "long": lambda spans, records: [spans.edit(one, value=bytes(9 << 20)) for one in records],
    }

    assert field.change_records(appending(b"!"), RecordBudget())
    assert not field.change_records(changes[change], RecordBudget())
    field.edits.flush()
    assert values(field.body["records"]) == [b"a!", b"b!"]


ONE = len(BATCH)


@pytest.mark.parametrize(
    ("fields", "most", "sizes"),
    [
        ((2, 2), 4 * ONE, [2, 2]),
        ((2, 2), 3 * ONE, [2, 1]),
        ((2, 2), 2 * ONE + 1, [2, 0]),
        ((2, 2), 1, [1, 0]),
        ((3, 1), ONE + 1, [1, 0]),
        ((0, 3, 0, 1), 2 * ONE, [0, 2, 0, 0]),
    ],
)
def test_flush_removes_batches_beyond_the_limit(fields: Any, most: int, sizes: Any) -> None:
    """Whole batches from the end, never the first one of the response. `most` is exceeded by longer records only."""
    long = encode_batch([Record(5, 0, None, b"a"), Record(6, 0, None, b"b")])
    short = encode_batch([Record(5, 0, None, b""), Record(6, 0, None, b"")])
    edits = edits_of(*(short * count for count in fields))
    edits.limit(0)
    assert edits.most_bytes == sum(fields) * len(short)  # a response that is longer already keeps its length
    edits.most_bytes = most
    for body in bodies(edits):
        letters = iter((b"a", b"b") * 10)
        edits.field(body).change_records(
            lambda spans, records, letters=letters: (spans.edit(one, value=next(letters)) for one in records),
            RecordBudget(),
        )

    edits.flush()

    assert [body["records"] for body in bodies(edits)] == [long * size for size in sizes]
