"""Ids folded into bits."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from kproxy.lake.columnar import task
from kproxy.lake.columnar.columns import TIMESTAMP
from kproxy.lake.columnar.task import Ids, folded

AT = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)


def come(*numbers: int, source: str = "s", at: datetime = AT) -> dict[str, Any]:
    """Rows with these ids; each as many seconds after 10:00 as its id says."""
    times = [at + timedelta(seconds=number) for number in numbers]
    return {
        "source": pa.array([source] * len(numbers)),
        "event_id": pa.array(numbers, pa.int64()),
        "time": pa.array(times, TIMESTAMP),
    }


def test_neighbours_fold_into_one_row() -> None:
    """With a bit for each, also for the highest, which makes the number negative; what came twice counts twice."""
    rows, days = folded(pa.table(come(64, 63, 1, 0, 1)))

    assert [tuple(row.values()) for row in rows.to_pylist()] == [
        ("s", 0, 3 - 2**63, 4, AT, AT + timedelta(seconds=63)),
        ("s", 1, 1, 1, AT + timedelta(seconds=64), AT + timedelta(seconds=64)),
    ]
    assert days.to_pylist() == [date(2026, 11, 21)] * 2


def test_sources_and_days_are_apart() -> None:
    """The same ids of another source, or of another day, are rows of their own."""
    given = [come(1), come(1, source="other"), come(2, at=AT + timedelta(days=1))]
    rows, days = folded(pa.concat_tables([pa.table(one) for one in given]))

    found = [(*row.values(), day) for row, day in zip(rows.to_pylist(), days.to_pylist(), strict=True)]
    assert sorted((row[0], row[2], row[-1].day) for row in found) == [("other", 2, 21), ("s", 2, 21), ("s", 4, 22)]


def test_ids_are_folded_when_there_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """And in the end, what is left; nothing of nothing."""
    monkeypatch.setattr(task, "MOST_IDS", 3)
    taker = Ids()

    assert list(taker.add(come(1, 2))) == []
    [(rows, _)] = taker.add(come(3, 4))
    assert rows["lines"].to_pylist() == [4]
    assert list(taker.flush()) == []
    assert list(taker.add(come(70))) == []
    [(rows, _)] = taker.flush()
    assert rows["block"].to_pylist() == [1]
