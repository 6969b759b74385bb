"""Reader of events' lines into the columns of their data, with an explicit schema.

Strategy: Arrow's reader takes a block of lines at once and refuses all of it for one value of another type than the
schema's. Such a block is read again line by line in Python: there, a value that is not of its column's type is absent,
or its text where text is expected, and everything beside it stands. What the schema does not name is passed over.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from kproxy.events.column import Column
from kproxy.pipeline.columnar.columns import arrow_type, struct

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
