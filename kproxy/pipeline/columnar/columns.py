"""Columns of Arrow: their types, made from declarations as `schema.py` makes Spark's, lists, and rows of tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kproxy.events.column import Column
from kproxy.pipeline.tables import LakeTable

TIMESTAMP = pa.timestamp("us", "UTC")
_PLAIN = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "double": pa.float64(),
    "timestamp": TIMESTAMP,
}

ArrowColumns = dict[str, Any]
"""Arrow arrays of the same length by name: those of bronze that go into every table, and those of the event's data."""


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


class ListElements(NamedTuple):
    """Elements of lists: for each the row whose list it is from, its index there from 0 on, and itself."""

    rows: Any
    places: Any
    values: Any


def list_elements(lists: Any) -> ListElements:
    """Return all elements of a column of lists, in their order."""
    rows = pc.list_parent_indices(lists).cast(pa.int64())
    starts = pa.array(_ends(lists)[:-1])
    places = pc.subtract(pa.array(np.arange(len(rows))), starts.take(rows))
    return ListElements(rows, places, pc.list_flatten(lists))


def of_each(lists: Any, name: str) -> Any:
    """Turn a column of lists of structs into one of lists of their field `name`."""
    values = pc.struct_field(pc.list_flatten(lists), name)
    return pa.ListArray.from_arrays(pa.array(_ends(lists), pa.int32()), values, mask=pc.is_null(lists))


def _ends(lists: Any) -> Any:
    """Return the index behind each list's last element among all elements, after a 0."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    return np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))


def shaped(columns: Mapping[str, Any], table: LakeTable) -> Any:
    """Return exactly the table's columns, in its types; those that are not among `columns` are null."""
    schema = arrow_schema(table)
    count = len(columns["time"])
    return pa.Table.from_arrays(
        [
            columns[field.name].cast(field.type) if field.name in columns else pa.nulls(count, field.type)
            for field in schema
        ],
        schema=schema,
    )


def all_the_same(value: Any, like: Any) -> Any:
    """Return a column with one value in all rows, of as many as `like` has."""
    return pa.repeat(pa.scalar(value), len(like))
