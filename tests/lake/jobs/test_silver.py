"""Silver: who writes the files makes no difference, and only what a finished task has written is taken."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from kproxy.lake.jobs import ingest as job
from kproxy.lake.jobs.ingest import FileSource, bronze, silver
from kproxy.lake.lake import BatchLedger, Lake
from kproxy.lake.spark import Run
from kproxy.lake.tables import BRONZE, FETCH_PARTITIONS, IDS, REQUESTS, TABLES
from kproxy.lake.transforms.ids import doubled, without_duplicates


def lines(audit: Any) -> list[str]:
    """Of every kind, of two days, and one of them twice."""
    topics = [{"topic": "t", "partitions": [{"partition": 0, "records": 1, "bytes": 5}, {"partition": 1}]}]
    common = {"api": "Fetch", "topic": "t", "partition": 0, "first": "2026-11-20T23:59:58Z"}
    return [
        audit.event(1, api="Produce", latency_ms=3, topics=topics),
        audit.event(2, api="OffsetCommit", group="g", topics=topics, time="2026-11-19T10:00:00Z"),
        audit.event(2, api="OffsetCommit", group="g", topics=topics, time="2026-11-19T10:00:00Z"),
        audit.event(3, "summary", **common, records=4, last_offset=8),
        audit.event(4, "summary", api="Fetch", count=2, latency_buckets=[2]),
        audit.event(5, "connection", action="open"),
        audit.event(6, "topology", nodes=[{"node": 1, "host": "h", "port": 1}]),
        audit.event(7, "rule", action="loaded", mistakes=["a:1:1 no"]),
        audit.event(8, "audit_gap", reason="dropped"),
        audit.event(9, "future"),
        audit.event(10, api="JoinGroup", group="g"),
        audit.event(11, api=5, version="x"),
        audit.event(12, api="OffsetFetch", group="g", topics=topics),
        audit.event(13, "telemetry", client_id="c", producer_record_queue_time_avg=1, metrics=2),
    ]


@pytest.mark.deep
def test_workers_and_spark_write_the_same(run: Run, audit: Any, rows_in_files: Any) -> None:
    """A lake that only Spark reaches is written by Spark: ids and a table; with KPROXY_TEST_ALL=1, all tables."""
    audit.publish(*lines(audit))
    bronze(run, FileSource(str(audit.path)))
    silver(run)
    by_workers = {table.name: rows_in_files(run.lake, table) for table in (*TABLES, IDS)}
    [batch] = BatchLedger(run.lake, "silver").batches()
    some = [IDS, *TABLES] if os.environ.get("KPROXY_TEST_ALL") else [IDS, FETCH_PARTITIONS]
    rows = without_duplicates(run.lake.read_batch(BRONZE, batch), doubled(run.lake.read_batch(IDS, batch)))
    kinds = run.lake.splits(BRONZE, batch)
    job.by_spark(run, batch, kinds, rows, some[1:])
    job.by_spark(run, batch, kinds, run.lake.read_batch(BRONZE, batch), some[:1])

    assert {table.name: rows_in_files(run.lake, table) for table in (*TABLES, IDS)} == by_workers
    assert all(by_workers.values())


def test_a_file_of_a_task_that_did_not_finish_is_not_taken(
    run: Run, audit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark does it again, and that file lies beside what the second try has written."""
    audit.publish(audit.event(1), audit.event(2, time="2026-11-19T10:00:00Z"))
    bronze(run, FileSource(str(audit.path)))
    take = Lake.take_staged

    def left_behind(lake: Lake, table: Any, batch: str, *, only: set[str] | None = None) -> None:
        for day in ("dt=2026-11-21", "dt=2026-11-18"):
            folder = Path(f"{lake.table_path(table).removeprefix('file:')}/_staging/{batch}/{day}")
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "part-of-another-try.zstd.parquet").write_bytes(b"torn")
        take(lake, table, batch, only=only)

    monkeypatch.setattr(Lake, "take_staged", left_behind)
    silver(run)

    assert sorted(row.event_id for row in run.lake.read(REQUESTS).collect()) == [1, 2]
    assert [str(day) for day in run.lake.days(REQUESTS)] == ["2026-11-19", "2026-11-21"]
