"""Arrow's schema of events and tables, made from their declarations, as `schema.py` makes Spark's."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from kproxy.events.column import Column
from kproxy.pipeline.table import Table

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
    """Arrow's type of one column."""
    one = struct(column.columns) if column.type == "struct" else _PLAIN[column.type]
    return pa.list_(one) if column.array else one


def struct(columns: Iterable[Column]) -> Any:
    """The columns as a struct, all of them nullable."""
    return pa.struct([pa.field(column.name, arrow_type(column)) for column in columns])


def arrow_schema(table: Table) -> Any:
    """The table's columns, without dt and batch."""
    return pa.schema([pa.field(column.name, arrow_type(column)) for column in table.columns])
