"""Silver: rows of literal lines, table by table."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType

from kproxy.events.schema import LATENCY_BOUNDS_MS
from kproxy.pipeline.schema import rows_of
from kproxy.pipeline.tables import TABLES
from kproxy.pipeline.transforms.bronze import events, judged
from kproxy.pipeline.transforms.silver import RECIPES
from kproxy.pipeline.transforms.silver_requests import buckets

RECIPE = {recipe.table.name: recipe for recipe in RECIPES}
AT = datetime(2026, 11, 21, 10, 0)  # noqa: DTZ001  Spark gives times of its session's zone, UTC


@pytest.fixture
def rows(spark: SparkSession) -> Any:
    """The rows of a table made of lines."""

    def made(table: str, *lines: str) -> DataFrame:
        schema = "line string, file string, offset long, ingested timestamp"
        given = spark.createDataFrame([(line, "f", None, AT) for line in lines], schema)
        return RECIPE[table].rows(events(judged(given)))

    return made


def one_in(position: int) -> list[int]:
    return [int(place == position) for place in range(len(LATENCY_BOUNDS_MS) + 1)]


def nullable(kind: DataType) -> DataType:
    """Whether arrays may hold null is nothing that a reader of Parquet is told."""
    return ArrayType(nullable(kind.elementType)) if isinstance(kind, ArrayType) else kind


def test_every_table_has_a_recipe_that_gives_its_columns(rows: Any, audit: Any) -> None:
    """In the declared order and types, whatever the lines have."""
    for table in TABLES:
        made = rows(table.name, audit.event(1, "future")).schema
        assert [(column.name, column.dataType) for column in rows_of(table)] == [
            (column.name, nullable(column.dataType)) for column in made
        ], table.name


def test_a_request_is_a_row_that_counts_one(rows: Any, audit: Any) -> None:
    """Its latency is in one bucket; the topics are told by name; columns nobody knows are passed over."""
    line = audit.event(
        5, api="Fetch", version=17, connection=3, latency_ms=5.5, total_bytes=0, total_records=0, future=[1],
        topics=[{"topic": "a", "partitions": [{"partition": 0}]}, {"topic_id": "x"}], outcome="answered",
    )  # fmt: skip
    found = rows("requests", line).select(
        "source", "event_id", "time", "detail", "last", "connection", "api", "version", "count", "outcome",
        "latency_ms", "latency_max_ms", "latency_buckets", "topics_named", "empty", "dt",
    )  # fmt: skip

    expected = ("kp/boot/0", 5, AT, "request", AT, 3, "Fetch", 17, 1, "answered", 5.5, 5.5, one_in(3), ["a", None], 1,
                date(2026, 11, 21))  # fmt: skip
    assert [tuple(row) for row in found.collect()] == [expected]


def test_a_summary_about_an_api_is_a_row_that_counts_many(rows: Any, audit: Any) -> None:
    """It begins with the first request of the minute and ends with the last; lines about topics are not among them."""
    common = {"api": "Produce", "version": 9, "first": "2026-11-21T10:00:01Z", "last": "2026-11-21T10:00:58Z"}
    api = audit.event(1, "summary", **common, count=10, latency_ms=30.0, latency_max_ms=9.0, latency_buckets=one_in(1))
    topic = audit.event(2, "summary", **common, count=9, topic="t", partition=0)
    found = rows("requests", api, topic).select(
        "event_id", "detail", "time", "last", "count", "latency_ms", "latency_max_ms", "latency_buckets", "empty"
    )

    expected = (1, "summary", AT.replace(second=1), AT.replace(second=58), 10, 30.0, 9.0, one_in(1), None)
    assert [tuple(row) for row in found.collect()] == [expected]


def test_written_partitions_come_one_a_row(rows: Any, audit: Any) -> None:
    """Of requests and of summaries alike; `row` tells those of one event apart; an error of the topic is theirs."""
    single = audit.event(
        1, api="Produce", version=12, acks=-1,
        topics=[
            {"topic": "a", "partitions": [{"partition": 0, "records": 2, "bytes": 9, "producer_id": 5},
                                          {"partition": 1, "records": 3, "bytes": 8}]},
            {"topic": "b", "error": "E", "partitions": [{"partition": 0}]},
            {"topic": "c"},
        ],
    )  # fmt: skip
    summed = audit.event(2, "summary", api="Produce", acks=1, topic="a", partition=4, count=7, records=70, batches=7)
    other = audit.event(3, api="Fetch", topics=[{"topic": "a", "partitions": [{"partition": 0}]}])
    found = rows("produce_partitions", single, summed, other).select(
        "event_id",
        "row",
        "detail",
        "acks",
        "count",
        "topic",
        "partition",
        "error",
        "records",
        "idempotent",
        "producer_id",
    )

    assert sorted(tuple(row) for row in found.collect()) == [
        (1, 0, "request", -1, 1, "a", 0, None, 2, True, 5),
        (1, 1, "request", -1, 1, "a", 1, None, 3, False, None),
        (1, 100_000, "request", -1, 1, "b", 0, "E", None, False, None),
        (2, 0, "summary", 1, 7, "a", 4, None, 70, None, None),
    ]


def test_partitions_that_brought_nothing_are_empty(rows: Any, audit: Any) -> None:
    """Of Fetch and ShareFetch."""
    parts = [{"partition": 0, "bytes": 5, "fetch_offset": 7}, {"partition": 1, "bytes": 0}, {"partition": 2}]
    line = audit.event(1, api="ShareFetch", topics=[{"topic": "a", "partitions": parts}])
    found = rows("fetch_partitions", line).select("api", "partition", "fetch_offset", "empty")

    assert sorted(tuple(row) for row in found.collect()) == [
        ("ShareFetch", 0, 7, 0), ("ShareFetch", 1, None, 1), ("ShareFetch", 2, None, 1)
    ]  # fmt: skip


def test_commits_come_one_a_partition(rows: Any, audit: Any) -> None:
    """OffsetCommit and TxnOffsetCommit; other requests about the same group are not commits."""
    topics = [{"topic": "a", "partitions": [{"partition": 3, "committed_offset": 40, "error": "E"}]}]
    lines = [
        audit.event(1, api="OffsetCommit", group="g", generation=2, topics=topics),
        audit.event(2, api="TxnOffsetCommit", group="g", transactional_id="tx", topics=topics),
        audit.event(3, api="OffsetFetch", group="g", topics=topics),
    ]
    found = rows("commits", *lines).select(
        "event_id", "api", "group", "generation", "transactional_id", "topic", "partition", "committed_offset", "error"
    )

    assert sorted(tuple(row) for row in found.collect()) == [
        (1, "OffsetCommit", "g", 2, None, "a", 3, 40, "E"),
        (2, "TxnOffsetCommit", "g", None, "tx", "a", 3, 40, "E"),
    ]


def test_what_members_of_groups_do_is_in_groups(rows: Any, audit: Any) -> None:
    """Of the classic and of the newer protocols."""
    lines = [
        audit.event(1, api="JoinGroup", group="g", members=3, protocol="range", rules=["slow"]),
        audit.event(2, api="ShareGroupHeartbeat", group="s", generation=4),
        audit.event(3, api="OffsetCommit", group="g"),
    ]
    found = rows("groups", *lines).select("event_id", "group", "generation", "members", "protocol", "rules")

    assert sorted((tuple(row) for row in found.collect()), key=lambda row: row[0]) == [
        (1, "g", None, 3, "range", ["slow"]),
        (2, "s", 4, None, None, None),
    ]


def test_other_events_are_rows_as_they_are(rows: Any, audit: Any) -> None:
    """A rule event has a version of another type than requests have, and its own `rules`."""
    line = audit.event(1, "rule", what="loaded", version="abc", rules=4)
    found = rows("rules", line, audit.event(2)).select("event_id", "what", "version", "rules", "dt")

    assert [tuple(row) for row in found.collect()] == [(1, "loaded", "abc", 4, date(2026, 11, 21))]


def test_a_latency_is_in_the_bucket_whose_bound_it_does_not_exceed(spark: SparkSession) -> None:
    """Bounds belong to their bucket; the last takes what is slower; none without a latency."""
    given = spark.createDataFrame([(0.2,), (1.0,), (1.01,), (30000.0,), (30001.0,), (None,)], "ms double")
    found = given.select(buckets(F.col("ms")).alias("bucket")).collect()

    assert [row.bucket for row in found] == [one_in(0), one_in(0), one_in(1), one_in(13), one_in(14), None]
