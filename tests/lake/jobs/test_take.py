"""Bronze and silver on files: what comes in is there once, whatever happens on the way."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from kproxy.base.errors import InternalError, LakeError
from kproxy.lake.jobs.ingest import FileSource, bronze, silver
from kproxy.lake.lake import Files, Lake
from kproxy.lake.spark import Run
from kproxy.lake.tables import AUDIT_GAP, BRONZE, BRONZE_CORRUPT, FETCH_PARTITIONS, REQUESTS, TABLES


def take(run: Run, audit: Any) -> None:
    bronze(run, FileSource(str(audit.path)))
    silver(run)


def ids(run: Run, table: Any = REQUESTS) -> list[int]:
    return sorted(row.event_id for row in run.lake.read(table).collect())


@pytest.fixture
def content(rows_in_files: Any) -> Callable[[Lake], dict[str, list[str]]]:
    """content(lake): all silver rows, and the lines of bronze, without the names of batches and of what Spark makes."""

    def found(lake: Lake) -> dict[str, list[str]]:
        rows = {table.name: rows_in_files(lake, table) for table in TABLES}
        for table in (BRONZE, BRONZE_CORRUPT):
            rows[table.name] = [re.sub(r"'(file|ingested)': .*?, '", "'", row) for row in rows_in_files(lake, table)]
        return rows

    return found


def test_what_is_taken_over_is_there_once(run: Run, audit: Any) -> None:
    """A second run takes what is new; an event of an earlier day goes to its day; types nobody knows stay in bronze."""
    audit.publish(audit.event(1), audit.event(2, "future"))
    take(run, audit)
    take(run, audit)
    audit.publish(audit.event(3, time="2026-11-19T10:00:00Z"), day="2026-11-22")
    take(run, audit)

    assert ids(run, BRONZE) == [1, 2, 3]
    assert ids(run) == [1, 3]
    assert run.lake.days(REQUESTS) == [date(2026, 11, 19), date(2026, 11, 21)]


def test_files_that_are_not_published_yet_are_passed_over(run: Run, audit: Any) -> None:
    """They have a dot in front."""
    audit.publish(audit.event(1))
    (audit.path / "dt=2026-11-21" / ".kp-boot-0-000000000002.ndjson.tmp").write_text(audit.event(2) + "\n")
    (audit.path / ".kp-boot-0-000000000002.ndjson.tmp").write_text(audit.event(2) + "\n")
    take(run, audit)

    assert ids(run) == [1]


def test_lines_that_are_no_events_are_put_aside_and_counted(run: Run, audit: Any) -> None:
    """With the reason; the others of their file are taken over."""
    audit.publish(audit.event(1), "{", audit.event(2)[:-1], audit.event(3))
    taken = bronze(run, FileSource(str(audit.path)))
    silver(run)

    assert (taken.lines, taken.corrupt) == (4, 2)
    assert sorted(row.reason for row in run.lake.read(BRONZE_CORRUPT).collect()) == ["not_json", "not_json"]
    assert ids(run) == [1, 3]


def test_a_torn_file_is_read_as_far_as_it_goes(run: Run, audit: Any) -> None:
    """It is on record; what else is in the batch is taken over whole."""
    torn = audit.publish(*(audit.event(number, error_message=os.urandom(200).hex()) for number in range(1, 500)))
    torn.write_bytes(torn.read_bytes()[: torn.stat().st_size // 2])
    audit.publish(audit.event(1000))
    taken = bronze(run, FileSource(str(audit.path)))
    silver(run)

    [record] = run.lake.read(BRONZE_CORRUPT).collect()
    found = ids(run)
    assert (record.reason, record.line, Path(record.file).name) == ("unreadable_file", None, torn.name)
    assert taken.corrupt == 1
    assert found[-1] == 1000
    assert found[:-1] == list(range(1, len(found)))
    assert len(found) > 100


def test_an_event_that_comes_twice_in_a_batch_is_there_once(run: Run, audit: Any) -> None:
    """In every table that is made of it; in bronze it is as it came."""
    parts = [
        {"topic": "t", "partitions": [{"partition": 0, "high_watermark": 9}, {"partition": 1, "high_watermark": 9}]}
    ]
    audit.publish(audit.event(1), audit.event(2, api="Fetch", outcome="answered", topics=parts))
    audit.publish(audit.event(2, api="Fetch", outcome="answered", topics=parts), audit.event(3))
    take(run, audit)

    assert ids(run, BRONZE) == [1, 2, 2, 3]
    assert ids(run) == [1, 2, 3]
    assert ids(run, FETCH_PARTITIONS) == [2, 2]


def test_an_empty_folder_is_no_mistake(run: Run, audit: Any) -> None:
    """Nothing has happened yet; all tables are there, without rows."""
    take(run, audit)

    assert all(run.lake.read(table).count() == 0 for table in TABLES)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: None, "folder not found"),
        (lambda path: path.write_text("x"), "is a file"),
        (lambda path: (path / "photos").mkdir(parents=True), "holds no events: dt=YYYY-MM-DD/*.ndjson.gz is expected"),
    ],
)
def test_a_folder_without_events_is_mentioned(run: Run, tmp_path: Path, make: Any, words: str) -> None:
    """Before anything is written."""
    make(tmp_path / "wrong")

    with pytest.raises(LakeError) as raised:
        bronze(run, FileSource(str(tmp_path / "wrong")))
    assert words in str(raised.value)
    assert str(tmp_path / "wrong") in str(raised.value)
    assert not run.lake.files.exists(run.lake.path)


def test_silver_of_an_older_kproxy_lacks_columns_not_rows(run: Run, audit: Any) -> None:
    """What was written before a column was there is null in it."""
    audit.publish(audit.event(1, "audit_gap", reason="dropped", message="disk full"))
    take(run, audit)
    batch = Ledgers(run).only("silver")
    older = run.lake.read_batch(AUDIT_GAP, batch).drop("message", "batch").localCheckpoint()
    run.lake.replace(AUDIT_GAP, older, batch)

    [row] = run.lake.read(AUDIT_GAP).collect()
    assert (row.reason, row.message) == ("dropped", None)


@pytest.mark.deep
def test_lines_that_another_kproxy_has_sorted_are_sorted_anew(run: Run, audit: Any) -> None:
    """What it did not know is in silver then."""
    audit.publish(audit.event(1, api="Fetch", client_id="c"))
    bronze(run, FileSource(str(audit.path)))
    ledgers = Ledgers(run)
    batch = ledgers.only("bronze")
    from pyspark.sql import functions as F

    older = run.lake.read_batch(BRONZE, batch).withColumn("kind", F.lit("other")).drop("batch")
    run.lake.replace(BRONZE, older.localCheckpoint(), batch)
    ledgers.bronze.add(batch, ledgers.bronze.entry(batch) | {"kinds": "older"})
    silver(run)

    assert run.lake.splits(BRONZE, batch) == {"other"}
    assert [(row.api, row.client_id) for row in run.lake.read(REQUESTS).collect()] == [("Fetch", "c")]


@pytest.mark.deep
def test_bronze_without_kinds_is_sorted_by_its_lines(run: Run, audit: Any) -> None:
    """Its files lie in the batch's folder itself, and the ledger says nothing of kinds."""
    audit.publish(audit.event(1, api="Fetch"), audit.event(2, "audit_gap", reason="dropped"))
    bronze(run, FileSource(str(audit.path)))
    ledgers = Ledgers(run)
    batch = ledgers.only("bronze")
    place = f"{run.lake.table_path(BRONZE)}/dt=2026-11-21/batch={batch}"
    lines = run.lake.read_batch(BRONZE, batch).drop("batch", "dt", "kind").localCheckpoint()
    lines.write.mode("overwrite").parquet(place)
    ledgers.bronze.add(batch, {"lines": 2, "corrupt": 0})
    silver(run)

    assert ids(run) == [1]
    assert ids(run, AUDIT_GAP) == [2]


class Ledgers:
    """Both ledgers of a run."""

    def __init__(self, run: Run) -> None:
        from kproxy.lake.lake import BatchLedger

        self.bronze, self.silver = BatchLedger(run.lake, "bronze"), BatchLedger(run.lake, "silver")

    def only(self, job: str) -> str:
        [batch] = getattr(self, job).batches()
        return str(batch)


class Stopped(InternalError):
    """The process was killed here."""


def test_stopped_at_any_step_the_next_run_gives_the_same_tables(
    run: Run, audit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: Any
) -> None:
    """Every rename and every file that is written is such a step; after the last one there is nothing to be stopped."""
    parts = [{"topic": "t", "partitions": [{"partition": 0}]}]
    audit.publish(audit.event(1, api="Produce", topics=parts), audit.event(2, time="2026-11-20T10:00:00Z"), "{")
    steps = 0
    real = {name: getattr(Files, name) for name in ("rename", "write")}

    def stopping(name: str) -> Any:
        def step(self: Files, *arguments: Any) -> None:
            nonlocal steps
            steps -= 1
            if steps == 0:
                raise Stopped("here")
            real[name](self, *arguments)

        return step

    for name in real:
        monkeypatch.setattr(Files, name, stopping(name))
    take(run, audit)
    expected, last = content(run.lake), -steps
    assert last > 7
    for stop_at in range(1, last + 1) if os.environ.get("KPROXY_TEST_ALL") else (2, 7):
        steps = stop_at
        other = Run(run.spark, Lake(run.spark, str(tmp_path / f"lake{stop_at}")), run.tell)
        with pytest.raises(Stopped):
            take(other, audit)
        take(other, audit)

        assert content(other.lake) == expected, f"stopped at step {stop_at}"


@pytest.mark.deep
@pytest.mark.timeout(400)  # Spark starts as a process of its own, on a machine that may be busy
def test_killed_within_a_batch_the_next_run_gives_the_same_tables(
    run: Run, audit: Any, tmp_path: Path, content: Any
) -> None:
    """A real kill -9, of the process and so of its JVM, when the first of two days is in its place."""
    audit.publish(audit.event(1), audit.event(2, time="2026-11-20T10:00:00Z"), "{")
    program = f"""
        import os, signal
        from kproxy.lake.lake import Files
        from kproxy.lake.jobs.ingest import bronze
        from kproxy.lake.lake import Lake
        from kproxy.lake.spark import Run
        from kproxy.lake.jobs.ingest import FileSource
        from kproxy.lake.spark import session
        rename = Files.rename
        def once(self, old, new):
            rename(self, old, new)
            os.kill(os.getpid(), signal.SIGKILL)
        Files.rename = once
        spark = session("local[1]")
        bronze(Run(spark, Lake(spark, {str(run.lake.path)!r}), print), FileSource({str(audit.path)!r}))
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    killed = subprocess.run(command, capture_output=True, timeout=300, check=False)
    take(run, audit)
    undisturbed = Run(run.spark, Lake(run.spark, str(tmp_path / "undisturbed")), run.tell)
    take(undisturbed, audit)

    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()[-2000:]
    assert content(run.lake) == content(undisturbed.lake)
    assert len(content(run.lake)[BRONZE.name]) == 2
