"""How silver reads and shapes: the data of lines with an explicit schema, and rows as their table declares them.

Only the columns that a table needs are read from the line, and only lines of the right type and API are read at all
(`silver.py`), so that a line is parsed about as often as tables are made of it. What is filtered is filtered before the
parsing: Spark would parse again for each condition on what was parsed.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from kproxy.events.column import Column, EventType
from kproxy.pipeline.schema import spark_type, struct
from kproxy.pipeline.table import Table


def typed(lines: DataFrame, columns: Iterable[Column]) -> DataFrame:
    """`source`, `event_id`, `time` and `type` of bronze rows, and `columns` of their data; absent ones are null."""
    schema = StructType([StructField("data", struct(columns))])
    read = lines.select("source", "event_id", "time", "type", F.from_json("line", schema).alias("event"))
    return read.select("source", "event_id", "time", "type", "event.data.*")


def shaped(rows: DataFrame, table: Table) -> DataFrame:
    """The rows with exactly the table's columns, in its types, and dt; those that they do not have are null."""
    there = set(rows.columns)
    columns = [
        (F.col(column.name) if column.name in there else F.lit(None)).cast(spark_type(column)).alias(column.name)
        for column in table.columns
    ]
    return rows.select(*columns, F.to_date("time").alias("dt"))


def is_a(event: EventType, *apis: str) -> SparkColumn:
    """The condition that a bronze row is an event of this type, about one of these APIs if any are named."""
    of_type = F.col("type") == F.lit(event.name)
    return of_type & F.col("api").isin(*apis) if apis else of_type


def both(*groups: Iterable[Column]) -> tuple[Column, ...]:
    """The columns of all groups, each name once; the first stands."""
    found: dict[str, Column] = {}
    for group in groups:
        for column in group:
            found.setdefault(column.name, column)
    return tuple(found.values())
