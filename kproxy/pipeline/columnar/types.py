"""Arrow's schemas of events and tables, made from their declarations, as `schema.py` makes Spark's."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from kproxy.events.column import Column
from kproxy.pipeline.lake_table import LakeTable

TIMESTAMP = pa.timestamp("us", "UTC")
_PLAIN = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "double": pa.float64(),
    "timestamp": TIMESTAMP,
}


def arrow_type(column: Column) -> Any:
    """Return Arrow's type of one column."""
    element = struct(column.columns) if column.type == "struct" else _PLAIN[column.type]
    return pa.list_(element) if column.array else element


def struct(columns: Iterable[Column]) -> Any:
    """Return the columns as a struct, all of them nullable."""
    return pa.struct([pa.field(column.name, arrow_type(column)) for column in columns])


def arrow_schema(table: LakeTable) -> Any:
    """Return the schema of the table's columns, without dt and batch."""
    return pa.schema([pa.field(column.name, arrow_type(column)) for column in table.columns])
