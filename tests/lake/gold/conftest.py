"""What tests of answers share: silver tables from literal rows, and answers from silver tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql.classic.window import WindowSpec
from pyspark.sql.pandas.types import to_arrow_schema

from kproxy.lake.gold_lake import ANSWER_TRANSFORMS, conform
from kproxy.lake.gold_tables import answer_named
from kproxy.lake.lake import on_disk
from kproxy.lake.tables import TABLES, LakeTable
from kproxy.lake.transforms.gold.aggregates import bases

Row = Mapping[str, Any]
Silver = Callable[..., dict[str, DataFrame]]
COMMON = {"cluster": "main", "source": "host/boot/0", "batch": "1", "detail": "request"}
"""What rows of silver have unless a test says otherwise."""


@pytest.fixture(autouse=True)
def linear_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """No window ends with all that follows a row, over which Spark goes for each row: quadratic work."""
    for name in ("rowsBetween", "rangeBetween"):
        monkeypatch.setattr(WindowSpec, name, checked(getattr(WindowSpec, name)))


def checked(frame: Callable[[WindowSpec, int, int], Any]) -> Callable[[WindowSpec, int, int], Any]:
    """Return the method, which takes no frame from near a row to all that follows it."""

    def between(spec: WindowSpec, start: int, end: int) -> Any:
        assert end < Window.unboundedFollowing or start <= Window.unboundedPreceding, "turn the order round"
        return frame(spec, start, end)

    return between


@pytest.fixture
def silver(spark: SparkSession) -> Silver:
    """silver(requests=[{…}], groups=[…]): all silver tables by name, those not given empty."""
    spark.conf.set("spark.sql.shuffle.partitions", "1")  # for some rows, more only take time

    def make(**rows: list[Row]) -> dict[str, DataFrame]:
        return {table.name: frame(spark, table, rows.get(table.name, [])) for table in TABLES}

    return make


def frame(spark: SparkSession, table: LakeTable, rows: list[Row]) -> DataFrame:
    """Rows of one silver table; times may be given as texts, dt follows from them, count is 1, ids count up.

    They go there by Arrow: Spark then has them in its plan, and leaves out what tables without rows are for.
    """
    schema = on_disk(table)
    whole = [completed(row, number) for number, row in enumerate(rows, 1)]
    unknown = {name for row in rows for name in row} - set(schema.names)
    assert unknown == set(), f"{table.name} has no {unknown}"
    return spark.createDataFrame(pa.Table.from_pylist(whole, to_arrow_schema(schema)), schema)


def completed(row: Row, number: int) -> dict[str, Any]:
    full: dict[str, Any] = {**COMMON, "count": 1, "event_id": number, "row": 0, **row}
    for name in ("time", "last", "minute", "first"):
        if isinstance(full.get(name), str):
            full[name] = when(full[name])
    full.setdefault("time", when("2026-11-20 10:00:00"))
    full.setdefault("last", full["time"])
    full.setdefault("dt", full["time"].date())
    return full


def when(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.fixture
def answer(silver: Silver) -> Callable[..., list[dict[str, Any]]]:
    """answer("latency", requests=[…]): the rows of the answer that these rows of silver give, null values left out."""

    def make(name: str, **rows: list[Row]) -> list[dict[str, Any]]:
        how = ANSWER_TRANSFORMS[name]
        made = conform(how.combine(how.daily(bases(silver(**rows)))), answer_named(name))
        return [known(row.asDict()) for row in made.collect()]

    return make


def known(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if value is not None}
