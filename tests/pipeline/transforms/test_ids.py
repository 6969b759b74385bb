"""Ids as bits: duplicates and what is missing."""

from __future__ import annotations

from datetime import datetime, timedelta

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from kproxy.pipeline.transforms.completeness import completeness
from kproxy.pipeline.transforms.ids import doubled, ids, without_duplicates

AT = datetime(2026, 11, 21, 10, 0)  # noqa: DTZ001  Spark gives times of its session's zone, UTC


def bronze(spark: SparkSession, *numbers: int, source: str = "s") -> DataFrame:
    """Rows with these ids; each a second after the one before."""
    given = [(source, number, AT + timedelta(seconds=number)) for number in numbers]
    rows = spark.createDataFrame(given, "source string, event_id long, time timestamp")
    return rows.withColumns({"dt": F.to_date("time"), "line": F.lit("x")})


def test_neighbours_fold_into_one_row(spark: SparkSession) -> None:
    """With a bit for each, also for the highest, which makes the number negative."""
    found = ids(bronze(spark, 0, 1, 63, 64)).select("block", "mask", "lines").collect()

    assert sorted(map(tuple, found)) == [(0, 3 - 2**63, 3), (1, 1, 1)]


def test_only_what_came_twice_is_compared(spark: SparkSession) -> None:
    """Each event is there once, of each source."""
    rows = bronze(spark, 1, 2, 2, 70).unionByName(bronze(spark, 2, 3, source="other"))
    twice = doubled(ids(rows))

    assert [tuple(row) for row in twice.collect()] == [("s", 0)]
    assert sorted((row.source, row.event_id) for row in without_duplicates(rows, twice).collect()) == [
        ("other", 2), ("other", 3), ("s", 1), ("s", 2), ("s", 70)
    ]  # fmt: skip


def test_what_is_missing_is_counted(spark: SparkSession) -> None:
    """Between the first and the last id of each source, over batches that came in any order."""
    given = ids(bronze(spark, 130, 200, 200)).unionByName(ids(bronze(spark, 63, 64, 65, 127, 130)))
    [row] = completeness(given).collect()

    expected = ("s", 6, 2, 200 - 63 + 1 - 6, 63, 200, AT + timedelta(seconds=63), AT + timedelta(seconds=200))
    assert tuple(row) == expected
