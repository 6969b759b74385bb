"""Records fields: entry by entry."""

from __future__ import annotations

import pytest

from kproxy.base.errors import RecordsError
from kproxy.protocol.records import Producer, Record, decode, encode_batch, encode_message_set, entries
from kproxy.rules.kinds.base.records_rule import (
    RecordBudget,
    change_entries,
    is_idempotent,
    renumbered,
    stored,
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


def test_numbering_anew() -> None:
    """From the first offset on, in the entry's format and codec."""
    (batch,) = whole_entries(encode_batch([Record(5, 3, b"k", b"a")], codec=4, partition_leader_epoch=9))[0]
    (made,) = entries(renumbered(batch, [*stored(batch, RecordBudget()), *stored(batch, RecordBudget())]))
    assert [record.offset for record in decode(made)] == [5, 6]
    assert (made.codec, made.partition_leader_epoch) == (4, 9)

    (wrapper,) = whole_entries(encode_message_set([Record(0, 3, b"k", b"a")], 1, codec=1))[0]
    (made,) = entries(renumbered(wrapper, [*stored(wrapper, RecordBudget()), *stored(wrapper, RecordBudget())]))
    assert [record.offset for record in decode(made)] == [0, 1]


def test_who_counts_records() -> None:
    """Producers with an id."""
    (plain,) = whole_entries(BATCH)[0]
    (counted,) = whole_entries(encode_batch([Record(0, 0, None, b"")], producer=Producer(0, 0, 0)))[0]

    assert (is_idempotent(plain), is_idempotent(counted)) == (False, True)
