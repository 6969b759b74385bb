"""Spark's schemas of events and tables, made from their declarations; nothing is inferred."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kproxy.events.column import Column
from kproxy.pipeline.tables import LakeTable

_PLAIN: dict[str, DataType] = {
    "string": StringType(),
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "double": DoubleType(),
    "timestamp": TimestampType(),
}

DT = StructField("dt", DateType())
BATCH = StructField("batch", StringType())


def struct(columns: Iterable[Column]) -> StructType:
    """Return the columns as a struct, all of them nullable."""
    return StructType([StructField(column.name, spark_type(column)) for column in columns])


def spark_type(column: Column) -> DataType:
    """Return Spark's type of one column."""
    element = struct(column.columns) if column.type == "struct" else _PLAIN[column.type]
    return ArrayType(element) if column.array else element


def rows_of(table: LakeTable) -> StructType:
    """Return the schema of the rows that transforms make for a table: its columns, and dt."""
    return StructType([*struct(table.columns).fields, DT])


def on_disk(table: LakeTable) -> StructType:
    """Return the schema of what is read from disk: the table's columns, dt, batch and, if there is one, `split`."""
    split = [] if table.split is None else [StructField(table.split.name, spark_type(table.split))]
    return StructType([*rows_of(table).fields, BATCH, *split])
