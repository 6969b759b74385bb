"""How silver reads and shapes: columns of events, and rows as their table declares them.

The line is read here, with an explicit schema that has no more than the table needs, after everything that filters:
Spark would read it again for each condition on what it read.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from kproxy.events.column import Column
from kproxy.pipeline.schema import spark_type, struct
from kproxy.pipeline.table import Table


def read(lines: DataFrame, columns: Iterable[Column]) -> DataFrame:
    """`source`, `event_id`, `time`, `type` and `columns` of bronze rows."""
    schema = StructType([StructField("data", struct(columns))])
    found = lines.select("source", "event_id", "time", "type", F.from_json("line", schema).alias("event"))
    return found.select("source", "event_id", "time", "type", "event.data.*")


def shaped(rows: DataFrame, table: Table) -> DataFrame:
    """The rows with exactly the table's columns, in its types, and dt; those that they do not have are null."""
    there = set(rows.columns)
    columns = [
        (F.col(column.name) if column.name in there else F.lit(None)).cast(spark_type(column)).alias(column.name)
        for column in table.columns
    ]
    return rows.select(*columns, F.to_date("time").alias("dt"))


def of_kind(lines: DataFrame, kind: str) -> DataFrame:
    """The bronze rows of one kind."""
    return lines.where(F.col("kind") == F.lit(kind))


def both(*groups: Iterable[Column]) -> tuple[Column, ...]:
    """The columns of all groups, each name once; the first stands."""
    found: dict[str, Column] = {}
    for group in groups:
        for column in group:
            found.setdefault(column.name, column)
    return tuple(found.values())
