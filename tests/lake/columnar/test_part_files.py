"""Files of one task: one per table and day, in large row groups."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kproxy.lake.columnar import task as part_files
from kproxy.lake.columnar.columns import TIMESTAMP, shaped
from kproxy.lake.columnar.task import PartFiles, days_of
from kproxy.lake.tables import AUDIT_GAP, RULES

Files = Callable[[], PartFiles]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """Writes below tmp_path/rules and tmp_path/audit_gaps."""
    return lambda: PartFiles({table.name: f"file:{tmp_path}/{table.name}" for table in (RULES, AUDIT_GAP)})


def rows(*days: int, table: Any = RULES) -> Any:
    times = pa.array([datetime(2026, 11, day, 23, tzinfo=UTC) for day in days], TIMESTAMP)
    return shaped({"time": times, "event_id": pa.array(days)}, table)


def add(to: PartFiles, some: Any, table: Any = RULES) -> None:
    to.add(table, some, days_of(some))


def test_each_table_and_day_has_a_file(files: Files, tmp_path: Path) -> None:
    """In the folder of its day; what is told is what there is."""
    writing = files()
    add(writing, rows(1, 2, 1))
    add(writing, rows(2))
    add(writing, rows(1, table=AUDIT_GAP), AUDIT_GAP)

    told = {(one.table, Path(one.path.removeprefix("file:")).parent.name): one for one in writing.close()}
    assert {key: one.rows for key, one in told.items()} == {
        ("rules", "dt=2026-11-01"): 2, ("rules", "dt=2026-11-02"): 2, ("audit_gaps", "dt=2026-11-01"): 1
    }  # fmt: skip
    found = sorted(tmp_path.glob("*/*/*.parquet"))
    assert found == sorted(Path(one.path.removeprefix("file:")) for one in told.values())
    assert pq.read_table(found[-1], partitioning=None)["event_id"].to_pylist() == [2, 2]


def test_nothing_is_no_file(files: Files, tmp_path: Path) -> None:
    """Nor are no rows."""
    writing = files()
    add(writing, rows())

    assert (list(writing.close()), list(tmp_path.iterdir())) == ([], [])


def test_rows_wait_for_a_row_group(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    """However few come at a time."""
    monkeypatch.setattr(part_files, "ROWS_A_GROUP", 4)
    writing = files()
    for _ in range(5):
        add(writing, rows(1, 1))

    [one] = writing.close()
    groups = pq.ParquetFile(one.path.removeprefix("file:")).metadata
    assert [groups.row_group(number).num_rows for number in range(groups.num_row_groups)] == [4, 4, 2]


def test_what_waits_is_bounded_over_all_files(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many days, of which none has enough for a row group: the largest goes first."""
    monkeypatch.setattr(part_files, "MOST_WAITING", rows(1).nbytes * 3)
    writing = files()
    for day in (1, 2, 2, 3):
        add(writing, rows(day))

    assert writing._waiting <= rows(1).nbytes * 3
    assert sorted(one.rows for one in writing.close()) == [1, 1, 2]
