"""Records fields: entry by entry."""

from __future__ import annotations

import pytest

from kproxy.base.errors import RecordsError
from kproxy.protocol.records import Producer, Record, decode, encode_batch, entries
from kproxy.rules.kinds.base.records_rule import (
    DAMAGED,
    RecordBudget,
    change_entries,
    change_records,
    is_idempotent,
    whole_entries,
)

BATCH = encode_batch([Record(5, 0, None, b"a"), Record(6, 0, None, b"b")])
CONTROL = encode_batch([Record(7, 0, None, b"")], control=True)


@pytest.mark.parametrize("data", [None, b"", b"short", BATCH[:30], b"\xff" * 100])
def test_what_cannot_be_read_is_left(data: bytes | None) -> None:
    """No entries, and all of it behind them."""
    found, rest = whole_entries(data)

    assert (found, bytes(rest)) == ([], data or b"")
    assert change_entries(data, lambda entry: b"changed") is None


def test_only_what_changes_is_written_anew() -> None:
    """Control batches, the rest, and entries for which there is nothing or no way stay byte by byte."""

    def change(entry: object) -> bytes | None:
        seen.append(entry)
        if len(seen) == 2:
            raise RecordsError("cannot be read")
        return b"changed" if len(seen) == 3 else None

    seen: list[object] = []
    after = change_entries(BATCH + CONTROL + BATCH + BATCH + BATCH[:20], change)

    assert len(seen) == 3
    assert after == BATCH + CONTROL + BATCH + b"changed" + BATCH[:20]


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
    for room, data, expected in cases:
        after = change_records(data, room, lambda spans: list(spans)[1:])
        before = {bytes(entry.raw) for entry in entries(data)}
        changed = [entry for entry in entries(after) if bytes(entry.raw) not in before]
        assert [record.value for entry in changed for record in decode(entry)] == expected


def test_who_counts_records() -> None:
    """Producers with an id."""
    (plain,) = whole_entries(BATCH)[0]
    (counted,) = whole_entries(encode_batch([Record(0, 0, None, b"")], producer=Producer(0, 0, 0)))[0]

    assert (is_idempotent(plain), is_idempotent(counted)) == (False, True)
