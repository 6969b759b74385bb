"""Compaction: fewer files, each event once, and readers who never notice."""

from __future__ import annotations

import os
import shutil
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from kproxy.base.errors import InternalError
from kproxy.lake.jobs.ingest import FileSource, bronze, silver
from kproxy.lake.jobs.upkeep import compact
from kproxy.lake.lake import Files, Lake
from kproxy.lake.spark import Run
from kproxy.lake.tables import FETCH_PARTITIONS, REQUESTS

DAY = date(2026, 11, 21)
TABLES = (REQUESTS, FETCH_PARTITIONS)
PARTS = [{"topic": "t", "partitions": [{"partition": 0, "high_watermark": 9}, {"partition": 1, "high_watermark": 9}]}]


@pytest.fixture(scope="module")
def two_batches(spark: SparkSession, audit_folder: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake of two batches; event 2 is in both."""
    place = tmp_path_factory.mktemp("two-batches")
    audit, run = audit_folder(place / "audit"), Run(spark, Lake(spark, str(place / "lake")), lambda _: None)
    for numbers in ((1, 2), (2, 3)):
        audit.publish(*(audit.event(number, api="Fetch", outcome="answered", topics=PARTS) for number in numbers))
        bronze(run, FileSource(str(audit.path)))
        silver(run)
    return place / "lake"


@pytest.fixture
def filled(run: Run, two_batches: Path) -> Run:
    """A copy of it, which the test may change."""
    shutil.copytree(two_batches, run.lake.path.removeprefix("file:"))
    return run


def rows(run: Run) -> list[list[int]]:
    return [sorted(row.event_id for row in run.lake.read(table).collect()) for table in TABLES]


ONCE = [[1, 2, 3], [1, 1, 2, 2, 3, 3]]
TWICE = [[1, 2, 2, 3], [1, 1, 2, 2, 2, 2, 3, 3]]


def test_each_event_is_there_once(filled: Run) -> None:
    """All rows that one event makes stay, in one file a table; nothing is left to do then."""
    before = rows(filled)

    assert (before, compact(filled, tables=TABLES), rows(filled)) == (TWICE, 2, ONCE)
    assert compact(filled, tables=TABLES) == 0
    for table in TABLES:
        [batch] = filled.lake.batches(table, DAY)
        folder = Path(filled.lake.table_path(table).removeprefix("file:"), f"dt={DAY}", f"batch={batch}")
        assert len(list(folder.glob("*.parquet"))) == 1
        assert not (folder.parent.parent / "_compact").exists()


@pytest.mark.deep
def test_only_the_days_asked_for_are_compacted(filled: Run) -> None:
    """Others stay as they are."""
    assert compact(filled, [date(2026, 11, 20)], TABLES) == 0
    assert rows(filled) == TWICE


@pytest.mark.deep
def test_what_silver_has_not_finished_is_left_alone(filled: Run) -> None:
    """A batch that will be written again must not be merged."""
    from kproxy.lake.lake import BatchLedger

    ledger = BatchLedger(filled.lake, "silver")
    ledger.remove(ledger.batches()[-1])

    assert compact(filled, tables=TABLES) == 0


class Stopped(InternalError):
    """The process was killed here."""


def test_stopped_at_any_step_nobody_sees_half_of_it(filled: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers see the old rows or the new ones, and the next run completes it."""
    steps = 0
    real = {name: getattr(Files, name) for name in ("rename", "write", "delete")}

    def stopping(name: str) -> Any:
        def step(self: Files, *arguments: Any) -> None:
            nonlocal steps
            steps -= 1
            if steps == 0:
                raise Stopped("here")
            real[name](self, *arguments)

        return step

    seen = []
    for name in real:
        monkeypatch.setattr(Files, name, stopping(name))
    for stop_at in range(1, 30, 1 if os.environ.get("KPROXY_TEST_ALL") else 3):
        steps = stop_at
        try:
            compact(filled, tables=(REQUESTS,))
        except Stopped:
            steps = 0
            seen.append(rows(filled)[0])
            continue
        break

    assert seen
    assert all(one in (ONCE[0], TWICE[0]) for one in seen)
    assert rows(filled)[0] == ONCE[0]


@pytest.mark.deep
def test_a_rename_that_was_cut_short_is_not_seen(filled: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """On object storage a rename copies file by file, and a kill leaves a part of them."""
    real = Files.rename

    def half(self: Files, old: str, new: str) -> None:
        if "/_compact/" not in old:
            real(self, old, new)
            return
        os.makedirs(new.removeprefix("file:"))
        raise Stopped("here")

    monkeypatch.setattr(Files, "rename", half)
    with pytest.raises(Stopped):
        compact(filled, tables=(REQUESTS,))
    seen = rows(filled)[0]
    monkeypatch.setattr(Files, "rename", real)
    compact(filled, tables=(REQUESTS,))

    assert (seen, rows(filled)[0]) == (TWICE[0], ONCE[0])
