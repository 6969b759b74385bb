"""Columns of Arrow: their types, made from declarations as `lake.py` makes Spark's, lists, rows of tables, and reading
of events' lines into the columns of their data.

Strategy: Arrow's reader takes a block of lines at once and refuses all of it for one value of another type than the
schema's. Such a block is read again line by line in Python: there, a value that is not of its column's type is absent,
or its text where text is expected, and everything beside it stands. What the schema does not name is passed over.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from kproxy.lake.tables import LakeTable
from kproxy.record.events.column import Column

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


BITS = {"int": 31, "long": 63}
_ROOM = 1024
"""More bytes for a block than there are: all lines are one block."""


def read(lines: Any, columns: Sequence[Column]) -> Any:
    """Return a table of these columns of `data`, a row for each of the lines (an array of text, no nulls)."""
    table = _at_once(lines, columns)
    return _line_by_line(lines, columns) if table is None else table


def _at_once(lines: Any, columns: Sequence[Column]) -> Any:
    """Return the table if all lines are as the columns say, else None."""
    if not len(lines):
        return pa.schema([(column.name, arrow_type(column)) for column in columns]).empty_table()
    all_of_them = pa.ListArray.from_arrays(pa.array([0, len(lines)], pa.int32()), lines)
    text = pc.binary_join(all_of_them, "\n")[0].as_buffer()
    expected = pyarrow.json.ParseOptions(
        explicit_schema=pa.schema([("data", struct(columns))]), unexpected_field_behavior="ignore"
    )
    block = pyarrow.json.ReadOptions(use_threads=False, block_size=text.size + _ROOM)
    try:
        read = pyarrow.json.read_json(pa.BufferReader(text), read_options=block, parse_options=expected)
    except pa.ArrowInvalid:
        return None
    if len(read) != len(lines):  # a line with a line end in it
        return None
    [data] = read["data"].chunks
    return pa.Table.from_arrays(data.flatten(), names=[column.name for column in columns])


def _line_by_line(lines: Any, columns: Sequence[Column]) -> Any:
    data = [_data(line) for line in lines.to_pylist()]
    return pa.table({
        column.name: pa.array([fitting(one.get(column.name), column) for one in data], arrow_type(column))
        for column in columns
    })  # fmt: skip


def _data(line: str) -> dict[str, Any]:
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    data = event.get("data") if isinstance(event, dict) else None
    return data if isinstance(data, dict) else {}


def fitting(value: Any, column: Column) -> Any:
    """Return the value as the column has it, or None if it is of another type."""
    if not column.array:
        return _one(value, column)
    return [_one(each, column) for each in value] if isinstance(value, list) else None


def _one(value: Any, column: Column) -> Any:
    if value is None:
        return None
    match column.type:
        case "struct":
            known = value if isinstance(value, dict) else None
            return known and {inner.name: fitting(known.get(inner.name), inner) for inner in column.columns}
        case "string":
            return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
        case "boolean":
            return value if isinstance(value, bool) else None
        case "timestamp":
            return _moment(value)
        case "double":
            return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
        case whole:
            fits = isinstance(value, int) and not isinstance(value, bool) and -(1 << BITS[whole]) <= value
            return value if fits and value < 1 << BITS[whole] else None


def _moment(value: Any) -> datetime | None:
    try:
        moment = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
