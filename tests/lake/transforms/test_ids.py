"""Ids as bits: duplicates and what is missing."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from kproxy.lake.columnar.task import LINES, giving_ids
from kproxy.lake.lake import rows_of
from kproxy.lake.tables import IDS
from kproxy.lake.transforms.ids import WIDE, completeness, doubled, gaps, missing, without_duplicates

AT = datetime(2026, 11, 21, 10, 0)  # noqa: DTZ001  Spark gives times of its session's zone, UTC


def bronze(spark: SparkSession, *numbers: int, source: str = "s") -> DataFrame:
    """Rows with these ids; each a second after the one before."""
    given = [(source, number, AT + timedelta(seconds=number)) for number in numbers]
    rows = spark.createDataFrame(given, "source string, event_id long, time timestamp")
    return rows.withColumns({"dt": F.to_date("time"), "line": F.lit("x"), "kind": F.lit("other")})


def ids(rows: DataFrame) -> DataFrame:
    return rows.select(*LINES).mapInArrow(giving_ids, rows_of(IDS))


@pytest.mark.deep
def test_only_what_came_twice_is_compared(spark: SparkSession) -> None:
    """Each event is there once, of each source."""
    rows = bronze(spark, 1, 2, 2, 70).unionByName(bronze(spark, 2, 3, source="other"))
    twice = doubled(ids(rows))

    assert [tuple(row) for row in twice.collect()] == [("s", 0)]
    assert sorted((row.source, row.event_id) for row in without_duplicates(rows, twice).collect()) == [
        ("other", 2), ("other", 3), ("s", 1), ("s", 2), ("s", 70)
    ]  # fmt: skip


@pytest.mark.deep
def test_what_is_missing_is_counted(spark: SparkSession) -> None:
    """Between the first and the last id of each source, over batches that came in any order."""
    given = ids(bronze(spark, 130, 200, 200)).unionByName(ids(bronze(spark, 63, 64, 65, 127, 130)))
    [row] = completeness(given).collect()

    assert [tuple(row) for row in gaps(given).collect()] == [
        ("s", 0, -(2**63), None), ("s", 1, 2**63 - 2**64 + 3, 63), ("s", 2, 4, 127), ("s", 3, 256, 130)
    ]  # fmt: skip
    expected = ("s", 6, 2, 200 - 63 + 1 - 6, 63, 200, AT + timedelta(seconds=63), AT + timedelta(seconds=200))
    assert tuple(row) == expected


def blocks_of(numbers: set[int]) -> list[tuple[int, int, int | None]]:
    """The blocks that these ids make, as Spark gives them."""
    found = []
    for block in sorted({number // WIDE for number in numbers}):
        mask = sum(1 << number % WIDE for number in numbers if number // WIDE == block)
        below = [number for number in numbers if number < block * WIDE]
        found.append((block, mask - (1 << WIDE) if mask >= 1 << WIDE - 1 else mask, max(below, default=None)))
    return found


def test_gaps_within_and_before_a_block_are_told() -> None:
    """What is behind the last id that came is the next block's."""
    assert list(missing(1, 0b1001, 60)) == [(61, 63), (65, 66)]
    assert list(missing(1, -1, 63)) == []
    assert list(missing(0, 0b100, None)) == []


@given(st.sets(st.integers(1, 400), min_size=1))
def test_ranges_are_what_has_not_come(numbers: set[int]) -> None:
    """Between the first id and the last, each once."""
    told = [one for block in blocks_of(numbers) for one in missing(*block)]

    missed = [number for first, last in told for number in range(first, last + 1)]
    assert missed == [number for number in range(min(numbers), max(numbers)) if number not in numbers]
