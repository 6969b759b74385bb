"""What is deleted, and what is not."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from kproxy.lake.jobs.ingest import FileSource, bronze, silver
from kproxy.lake.jobs.upkeep import delete_consumed, drop_old
from kproxy.lake.lake import BatchLedger
from kproxy.lake.spark import Run
from kproxy.lake.tables import BRONZE, REQUESTS


def test_days_that_are_too_old_go(run: Run, audit: Any) -> None:
    """From bronze and silver; the day of the limit stays."""
    days = ("2026-08-22", "2026-08-23", "2026-11-21")
    audit.publish(*(audit.event(number, time=f"{day}T10:00:00Z") for number, day in enumerate(days, 1)))
    bronze(run, FileSource(str(audit.path)))
    silver(run)
    drop_old(run, date(2026, 8, 23))

    assert run.lake.days(REQUESTS) == run.lake.days(BRONZE) == [date(2026, 8, 23), date(2026, 11, 21)]


@pytest.mark.deep
def test_batches_of_which_nothing_is_left_are_forgotten(run: Run, audit: Any) -> None:
    """Not while their event files are there, nor the newest, which Spark may begin again; nothing is taken twice."""
    times = ("2026-08-01T10:00:00Z", "2026-08-02T10:00:00Z", "2026-11-21T10:00:00Z", "2026-08-03T10:00:00Z")
    files = []
    for number, time in enumerate(times, 1):
        files.append(audit.publish(audit.event(number, time=time)))
        bronze(run, FileSource(str(audit.path)))
    silver(run)
    files[0].unlink()
    drop_old(run, date(2026, 9, 1))

    told = BatchLedger(run.lake, "bronze").batches()
    assert [batch[-6:] for batch in told] == ["000001", "000002", "000003"]
    assert BatchLedger(run.lake, "silver").batches() == told
    bronze(run, FileSource(str(audit.path)))
    assert silver(run) == 0
    assert [row.event_id for row in run.lake.read(REQUESTS).collect()] == [3]


def test_only_files_that_bronze_has_finished_are_deleted(run: Run, audit: Any) -> None:
    """A file that has come since stays; so does one of a batch that is not whole. Nothing is taken over again."""
    old = audit.publish(audit.event(1))
    bronze(run, FileSource(str(audit.path)))
    unfinished = audit.publish(audit.event(2))
    bronze(run, FileSource(str(audit.path)))
    ledger = BatchLedger(run.lake, "bronze")
    ledger.remove(ledger.batches()[-1])
    new = audit.publish(audit.event(3))

    assert delete_consumed(run) == 1
    assert (old.exists(), unfinished.exists(), new.exists()) == (False, True, True)
    bronze(run, FileSource(str(audit.path)))
    assert sorted(row.event_id for row in run.lake.read(BRONZE).collect()) == [1, 2, 3]


def test_a_lake_that_read_no_files_has_nothing_to_delete(run: Run) -> None:
    """There is no checkpoint then."""
    assert delete_consumed(run) == 0
