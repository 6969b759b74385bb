"""Which guarantees the recorded exchanges break: for each check a history that does, beside one that lawfully may.

All histories are in one lake, each about a topic, a group or a producer of its own, since a plan takes Spark longer
than its rows do: once as of one day, and in another cluster with midnight just before second 10.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from kproxy.lake import gold_lake as job
from kproxy.lake.gold_lake import GoldLake, conform
from kproxy.lake.gold_tables import VIOLATIONS
from kproxy.lake.jobs.ingest import FileSource, bronze
from kproxy.lake.jobs.ingest import silver as silver_job
from kproxy.lake.spark import Run
from kproxy.lake.transforms.gold.aggregates import bases
from kproxy.lake.transforms.gold.violations import violations_combine, violations_daily

pytestmark = pytest.mark.timeout(600)  # on a machine that has much else to do
SUSPECT, NOTE = "suspect", "note"
ID = "0a000000-0000-0000-0000-000000000001"
STARTS = {
    "one day": datetime(2026, 11, 20, 12, tzinfo=UTC),
    "two days": datetime(2026, 11, 20, 23, 59, 50, tzinfo=UTC),
}
"""When second 0 is, by the cluster's name."""
ABORTS, COMMITS = ({"attributes": 0x30, "marker": one} for one in ("abort", "commit"))
DATA = {"attributes": 0x10}
JUMPY = "jumpy/boot/0"
"""Process on a host whose clock is set back."""
Row = dict[str, Any]


def exchange(second: float, took: float, **more: Any) -> Row:
    return {"time": second, "response_out": second + took, **more}


def write(
    second: float, topic: str, first: int, count: int = 1, crc: int = 1, *, took: float = 0.1, **more: Any
) -> Row:
    """A Produce of one batch that was acknowledged."""
    row: Row = {
        "api": "Produce", "topic": topic, "partition": 0, "acks": -1, "base_offset": first, "batches": 1,
        "last_offset": first + count - 1, "records": count, "attributes": 0, "crc": crc,
        "topic_id": ID, "connection": 1,
    }  # fmt: skip
    return exchange(second, took, **row | more)


def batch(first: int, count: int = 1, crc: int = 1, **more: Any) -> Row:
    """A batch as an answer brings it."""
    return {"base_offset": first, "last_delta": count - 1, "count": count, "attributes": 0, "crc": crc} | more


def read(second: float, topic: str, start: int | None, *batches: Row, high: int = 1000, **more: Any) -> Row:
    """A Fetch, and the batches that it brought."""
    row: Row = {
        "api": "Fetch", "topic": topic, "partition": 0, "fetch_offset": start, "high_watermark": high, "isolation": 0,
        "last_stable_offset": high, "log_start_offset": 0, "topic_id": ID, "batches": len(batches),
    }  # fmt: skip
    if batches:
        last = batches[-1]
        row |= {"batches_detail": list(batches), "crc": batches[0]["crc"], "base_offset": batches[0]["base_offset"],
                "last_offset": last["base_offset"] + last["last_delta"]}  # fmt: skip
    return exchange(second, 0.1, **row | more)


def offset(second: float, group: str, committed: int | None, *, took: float = 0.1, **more: Any) -> Row:
    row: Row = {"group": group, "topic": "t", "partition": 0, "committed_offset": committed, "generation": 1}
    return exchange(second, took, **row | more)


def producer(of: int, sequence: int = 0, epoch: int = 0) -> Row:
    return {"producer_id": of, "producer_epoch": epoch, "sequence": sequence}


def wrote(of: int, sequence: int = 0, epoch: int = 0) -> Row:
    return {"producer_id": of, "producer_epoch": epoch, "base_sequence": sequence}


def epoch(of: int, number: int) -> Row:
    return {"producer_id": of, "producer_epoch": number}


WRITES = [
    write(1, "lost", 5), write(2, "lost behind", 5), write(2, "lost after", 5), write(12, "lost later", 5),
    write(1, "behind", 5), write(12, "not behind", 5), write(8, "overlapping", 5, took=6),
    write(1, "behind a leader", 5, acks=1),
    write(1, "twice", 5, 3), write(11, "twice", 7, 2, crc=2), write(1, "once", 5, 3), write(11, "once", 8, 2, crc=2),
    write(1, "twice by leaders", 5, acks=1), write(11, "twice by leaders", 5, crc=2),
    write(1, "told twice", 5, **wrote(50)), write(11, "told twice", 5, **wrote(50)),
    write(1, "another", 5), write(1, "another id", 5, topic_id=None), write(1, "shifted", 5, 2),
    write(1, "another codec", 5), write(1, "thinned", 5, 3), write(1, "of a leader", 5, acks=1),
    write(1, "doubled", 6, crc=9), write(1, "by intent", 5, crc=9), write(2, "by intent", 6, crc=9),
    write(1, "sequence", 5, **wrote(51, 7)), write(1, "two producers", 5, **wrote(52, 7)),
    write(1, "order", 5, **wrote(53, 7)), write(11, "order", 6, crc=2, **wrote(53, 4)),
    write(1, "wraps", 5, **wrote(54, 0x7FFFFFFF)), write(11, "wraps", 6, crc=2, **wrote(54, 0)),
    write(1, "on one way", 5), write(2, "on one way", 3, crc=2),
    write(1, "on two ways", 5), write(2, "on two ways", 3, crc=2, connection=2),
    write(1, "at once", 5, took=2), write(2, "at once", 3, crc=2),
    write(12, "zombie", 5, **DATA, **wrote(60)), write(3, "its heir", 5, **DATA, **wrote(61, epoch=4)),
    write(8, "in flight", 5, took=6, **DATA, **wrote(62)), write(12, "elsewhere", 5, **DATA, **wrote(63)),
    write(10.2, "jumpy", 5, source=JUMPY, **DATA, **wrote(64)),
    write(12, "jumpy before", 5, source=JUMPY, **DATA, **wrote(65)),
    write(1, "on a jumpy way", 5, source=JUMPY), write(2, "on a jumpy way", 3, crc=2, source=JUMPY),
    write(1, "nobody reads", 5, 3),
    {"api": "Produce", "topic": "summed", "partition": 0, "time": 1, "detail": "summary", "count": 7},
]  # fmt: skip

READS = [
    read(11, "lost", 4, batch(4, crc=2), batch(6, crc=3)), read(11, "lost behind", 6, batch(6, crc=3)),
    read(11, "lost after", 4, batch(6, crc=3), log_start_offset=6), read(1, "lost later", 4, batch(6, crc=3)),
    read(11, "behind", 5, high=5), read(11, "not behind", 5, high=5), read(11, "overlapping", 5, high=5),
    read(11, "behind a leader", 5, high=5),
    read(11, "another", 5, batch(5, crc=2)), read(11, "another id", 5, batch(5, crc=2), topic_id=None),
    read(11, "shifted", 6, batch(6, 2, crc=2)), read(11, "another codec", 5, batch(5, crc=2, attributes=3)),
    read(11, "thinned", 5, batch(5, 3, crc=2) | {"count": 2}), read(11, "of a leader", 5, batch(5, crc=2)),
    read(11, "doubled", 5, batch(5, crc=9), batch(6, crc=9)), read(11, "by intent", 5, batch(5, crc=9),
    batch(6, crc=9)),
    read(11, "sequence", 5, batch(5, **producer(51, 7)), batch(6, **producer(51, 7))),
    read(11, "two producers", 5, batch(5, **producer(52, 7)), batch(6, crc=2, **producer(99, 7))),
    read(11, "stable", 4, batch(4), batch(5, crc=2), last_stable_offset=5, isolation=1),
    read(11, "uncommitted", 4, batch(4), batch(5, crc=2), last_stable_offset=5),
    read(1, "aborted", 4, batch(4, **DATA, **producer(70)), isolation=1),
    read(11, "aborted", 5, batch(5, crc=2, **ABORTS, **producer(70, -1))),
    read(1, "aborted, or not", 4, batch(4, **DATA, **producer(74)), isolation=1),
    read(11, "aborted, or not", 6, batch(6, crc=2, **ABORTS, **producer(74, -1))),
    read(1, "committed", 4, batch(4, **DATA, **producer(71)), isolation=1),
    read(11, "committed", 5, batch(5, crc=2, **COMMITS, **producer(71, -1)),
    batch(6, crc=3, **ABORTS, **producer(71, -1))),
    read(1, "listed", 4, batch(4, **DATA, **producer(72)),
    isolation=1, aborted=[{"producer_id": 72, "first_offset": 4}]),
    read(11, "listed", 5, batch(5, crc=2, **ABORTS, **producer(72, -1))),
    read(1, "all of it", 4, batch(4, **DATA, **producer(73))),
    read(11, "all of it", 5, batch(5, crc=2, **ABORTS, **producer(73, -1))),
    {"api": "Fetch", "topic": "summed", "partition": 0, "time": 1, "detail": "summary", "count": 5},
]  # fmt: skip

GRANTS = [
    exchange(1, 0.1, api="InitProducerId", **epoch(60, 1)), exchange(1, 0.1, api="InitProducerId", **epoch(61, 4)),
    exchange(7, 6, api="InitProducerId", **epoch(62, 1)),
    exchange(1, 0.1, api="InitProducerId", source="other/boot/0", **epoch(63, 1)),
    exchange(1, 0.1, api="InitProducerId", source=JUMPY, **epoch(65, 1)),
    exchange(9.8, 0.1, api="InitProducerId", source=JUMPY, **epoch(66, 1)),
    exchange(7, 0.1, api="InitProducerId", source=JUMPY, **epoch(67, 1)),  # the clock went back by 2.8 s
    exchange(9.5, 0.1, api="InitProducerId", source=JUMPY, **epoch(64, 1)),
]  # fmt: skip
OFFSETS = [
    offset(1, "lost", 5), offset(1, "kept", 5), offset(1, "gone", 5), offset(1, "doubtful", 5),
    offset(2, "doubtful", 7, error="COORDINATOR_NOT_AVAILABLE"),
    offset(1, "in a transaction", 5, api="TxnOffsetCommit"),
    offset(0, "in a transaction", 3), offset(1, "under way", 5), offset(9, "under way", 8, took=5),
    offset(1, "one of two", 5, took=3), offset(2, "one of two", 6, took=3),
    offset(1, "back", 9), offset(11, "back", 5), offset(1, "sideways", 9, took=20), offset(11, "sideways", 5),
    offset(1, "heir", 9), offset(12, "heir", 5, generation=2), offset(1, "rewound", 9),
    offset(12, "rewound", 5, generation=2),
]  # fmt: skip
TOLD = [
    offset(11, "lost", 3), offset(11, "kept", 5), offset(11, "gone", None), offset(11, "doubtful", 7),
    offset(11, "in a transaction", 5), offset(11, "under way", 8), offset(11, "one of two", 5),
    offset(11, "heir", 9), offset(11, "rewound", 5),
]  # fmt: skip

FOUND = {
    "lost": {("lost-write", SUSPECT)},
    "behind": {("watermark-behind", NOTE)},
    "twice": {("offset-given-twice", SUSPECT)},
    "twice by leaders": {("offset-given-twice", SUSPECT)},
    "another": {("inconsistent-offset", SUSPECT)},
    "another id": {("inconsistent-offset", SUSPECT)},
    "shifted": {("inconsistent-offset", SUSPECT)},
    "of a leader": {("inconsistent-offset", SUSPECT)},
    "doubled": {("duplicate", SUSPECT)},
    "sequence": {("duplicate-sequence", SUSPECT)},
    "order": {("order", SUSPECT)},
    "on one way": {("order", SUSPECT)},
    "stable": {("read-beyond-stable", SUSPECT)},
    "aborted": {("aborted-read", SUSPECT)},
    "producer 60": {("zombie-write", SUSPECT)},
    "producer 63": {("zombie-write", SUSPECT)},
    "producer 64": {("zombie-write", SUSPECT)},
    "producer 65": {("zombie-write", SUSPECT)},
    "on a jumpy way": {("order", SUSPECT)},
    "group lost": {("lost-commit", SUSPECT)},
    "group gone": {("lost-commit", SUSPECT)},
    "group back": {("commit-goes-back", NOTE)},
    "group heir": {("commit-goes-back", SUSPECT)},
    "group rewound": {("commit-goes-back", NOTE), ("lost-commit", SUSPECT)},
}
"""All that is found, and nothing about anything else."""


def everywhere(rows: list[Row]) -> Iterator[Row]:
    """Yield rows as of both clusters, with seconds as times."""
    for cluster, start in STARTS.items():
        for row in rows:
            times = {name: start + timedelta(seconds=row[name]) for name in ("time", "response_out") if name in row}
            yield row | times | {"cluster": cluster}


def where(row: Row) -> str:
    if "broker_group" in row:
        return f"group {row['broker_group']}"
    return str(row["broker_topic"]) if "broker_topic" in row else f"producer {row['producer_id']}"


def known(row: Mapping[str, Any]) -> Row:
    return {name: value for name, value in row.items() if value is not None}


@pytest.fixture
def told(spark: SparkSession, silver: Any) -> list[Row]:
    """The answer of all histories. What several checks are made of is made once, as the job does by caching."""
    tables = {
        "produce_partitions": WRITES,
        "fetch_partitions": READS,
        "requests": GRANTS,
        "commits": [{"api": "OffsetCommit"} | row for row in OFFSETS],
        "offsets_told": [{"api": "OffsetFetch"} | row for row in TOLD],
    }
    made = bases(silver(**{name: list(everywhere(rows)) for name, rows in tables.items()}))

    def kept(rows: DataFrame) -> DataFrame:
        return spark.createDataFrame(rows.toArrow(), rows.schema)

    names = ("log_writes", "log_answers", "log_reads", "log_batches")
    partials = kept(violations_daily(replace(made, **{name: kept(getattr(made, name)) for name in names})))
    rows = conform(violations_combine(partials), VIOLATIONS).collect()
    return [known(row.asDict()) for row in rows]


@pytest.mark.deep
def test_what_is_found(told: list[Row]) -> None:
    """In one day and over midnight alike."""
    for cluster in STARTS:
        rows = [row for row in told if row["cluster"] == cluster]
        found: dict[str, set[tuple[str, str]]] = {}
        for row in rows:
            if row["check"] not in ("unseen", "not-checked"):
                found.setdefault(where(row), set()).add((row["check"], row["level"]))
        notes = {(row["check"], row.get("broker_topic")): row["count"] for row in rows if row["check"] == "unseen"}
        lost = next(row for row in rows if row["check"] == "lost-write")

        assert found == FOUND, cluster
        assert 3 == notes["unseen", "nobody reads"]
        assert {("unseen", "summed"), ("unseen", "doubled")}.isdisjoint(notes)
        assert [5, 7] == sorted(row["count"] for row in rows if row["check"] == "not-checked")
        assert ("offsets 5 to 5 were acknowledged, and a Fetch passed over them", 1) == (lost["text"], lost["count"])
        assert lost["day"] == ("2026-11-20" if cluster == "one day" else "2026-11-21")


def test_from_lines_to_the_answer(run: Run, audit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that was acknowledged, a Fetch that passes over it the day after, a commit that is not told again."""
    monkeypatch.setattr(job, "ANSWERS", (VIOLATIONS,))
    lone = {"partition": 0, "batches": 1, "attributes": 0}
    written = [{**lone, "base_offset": 5, "last_offset": 5, "records": 1, "crc": 9}]
    told = [
        {**lone, "fetch_offset": 4, "high_watermark": 9, "base_offset": 6, "last_offset": 6, "records": 1, "crc": 8}
    ]

    def line(number: int, time: str, api: str, partitions: list[Row], **more: Any) -> str:
        topics = [{"topic": "orders", "partitions": partitions}]
        outcome = {"outcome": "answered", "response_out": time.replace("Z", ".5Z"), "cluster": "main"}
        return str(audit.event(number, time=time, api=api, topics=topics, **outcome, **more))

    audit.publish(
        line(1, "2026-11-20T23:59:58Z", "Produce", written, acks=-1),
        line(2, "2026-11-20T23:59:59Z", "OffsetCommit", [{"partition": 0, "committed_offset": 7}], group="g"),
        line(3, "2026-11-21T00:00:01Z", "Fetch", told, isolation=0),
        line(4, "2026-11-21T00:00:02Z", "OffsetFetch", [{"partition": 0, "committed_offset": 3}], group="g"),
    )
    bronze(run, FileSource(str(audit.path)))
    silver_job(run)
    job.gold(run)
    rows = [known(row.asDict()) for row in GoldLake(run.lake).read(VIOLATIONS).collect()]

    found = {row["check"]: (row["day"], row["level"], row["broker_topic"], row["events"]) for row in rows}
    assert found == {
        "lost-write": ("2026-11-21", SUSPECT, "orders", ["kp/boot/0#1", "kp/boot/0#3"]),
        "lost-commit": ("2026-11-21", SUSPECT, "orders", ["kp/boot/0#2", "kp/boot/0#4"]),
    }
