"""Arrow columns of event lines, and recipes that turn them into rows of the silver tables.

Arrow's reader parses a block of lines at once, and rejects the block if one value has another type than the schema's.
Such a block is parsed again line by line in Python: a value of a wrong type becomes null, or its text where text is
expected. Fields outside the schema are ignored.

A recipe names the kinds of lines that a table is made of, and the source of each column. `row` numbers the partitions
of one event: the position of the topic, times ROWS_A_TOPIC, plus the position of the partition.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from kproxy.lake import tables
from kproxy.lake.tables import READ_APIS, LakeTable
from kproxy.lake.transforms import bronze as kinds
from kproxy.record.events.column import FINISHED, Column
from kproxy.record.events.schema import (
    AUDIT_GAP_EVENT,
    CONNECTION_EVENT,
    LATENCY_BOUNDS_MS,
    PARTITION,
    REQUEST_EVENT,
    RULE_EVENT,
    SUMMARY_EVENT,
    TELEMETRY_EVENT,
    TOPOLOGY_EVENT,
)

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
"""Arrow arrays of the same length by name: the bronze columns of every table, and the columns of the event's data."""


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
    """Elements of lists, each with the row of its list and its index there, from 0 on."""

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
    """Return the end index of each list among all elements, after a 0."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    return np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))


def shaped(columns: Mapping[str, Any], table: LakeTable) -> Any:
    """Return exactly the table's columns, in its types; columns missing in `columns` are null."""
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
    """Return a constant column of the same length as `like`."""
    return pa.repeat(pa.scalar(value), len(like))


BITS = {"int": 31, "long": 63}
_ROOM = 1024
"""Extra bytes of a block's size, so all lines are one block."""


def read(lines: Any, columns: Sequence[Column]) -> Any:
    """Return a table of these columns of `data`, a row for each of the lines (an array of text, no nulls)."""
    table = _at_once(lines, columns)
    return _line_by_line(lines, columns) if table is None else table


def _at_once(lines: Any, columns: Sequence[Column]) -> Any:
    """Return the table, or None if a line does not match the columns' types."""
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
    """Return the value, or None if it does not have the column's type."""
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


OF_BRONZE = ("source", "event_id", "time")
"""Bronze columns that every table has."""
ROWS_A_TOPIC = 100_000
"""Above the number of partitions of one topic that an event lists (`audit.partitions`) or that a topic can have."""

_OF_TOPIC = ("topic", "broker_topic", "topic_id")


def partition_rows(columns: ArrowColumns, table: LakeTable) -> Any:
    """Return the rows of commits: one per partition of a request event."""
    return shaped(partitions_of(columns), table)


def reported_rows(columns: ArrowColumns, table: LakeTable) -> Any:
    """Return the rows of OffsetFetch. A request for several groups names the group of each topic."""
    parts = partitions_of(columns)
    several = pc.is_valid(parts["group_of_topic"])
    own = {
        "group": pc.coalesce(parts["group_of_topic"], parts["group"]),
        "broker_group": pc.if_else(several, pa.scalar(None, pa.string()), parts["broker_group"]),
    }
    return shaped(parts | own, table)


def written_rows(columns: ArrowColumns, table: LakeTable) -> Any:
    parts = counted(partitions_of(columns), read=False)
    has_producer = pc.and_(pc.is_valid(parts["records"]), pc.is_valid(parts["producer_id"]))
    return shaped(_of_one(parts) | {"idempotent": has_producer}, table)


def read_rows(columns: ArrowColumns, table: LakeTable) -> Any:
    """Return the rows of Fetch and ShareFetch requests that count as reads."""
    parts = counted(partitions_of(columns), read=True)
    brought_nothing = pc.equal(pc.fill_null(parts["bytes"], 0), 0)
    return shaped(_of_one(parts) | {"empty": brought_nothing.cast(pa.int64())}, table)


def partition_summary_rows(columns: ArrowColumns, table: LakeTable) -> Any:
    time = columns["time"]
    own = {
        "detail": all_the_same("summary", time),
        "row": all_the_same(0, time),
        "time": pc.coalesce(columns["first"], time),
    }
    return shaped(columns | own, table)


def partitions_of(columns: ArrowColumns) -> ArrowColumns:
    """Return the columns of request events, one row per partition, with `row` and the fields of topic and partition."""
    topics = list_elements(columns["topics"])
    parts = list_elements(pc.struct_field(topics.values, "partitions"))
    events = topics.rows.take(parts.rows)
    outer = {name: column.take(events) for name, column in columns.items() if name != "topics"}
    of_topic = {name: pc.struct_field(topics.values, name).take(parts.rows) for name in (*_OF_TOPIC, "error")}
    inner = {column.name: pc.struct_field(parts.values, column.name) for column in PARTITION}
    return {
        **outer,
        **of_topic,
        **inner,
        "group_of_topic": pc.struct_field(topics.values, "group").take(parts.rows),
        "error": pc.coalesce(inner["error"], of_topic["error"]),
        "row": pc.add(pc.multiply(topics.places.take(parts.rows), ROWS_A_TOPIC), parts.places),
    }


def _of_one(parts: ArrowColumns) -> ArrowColumns:
    time = parts["time"]
    return parts | {"detail": all_the_same("request", time), "last": time, "count": all_the_same(1, time)}


def counted(parts: ArrowColumns, *, read: bool) -> ArrowColumns:
    """Keep the partition rows that count as writes, or as reads if `read`; see `counting.partitions`."""
    keep = pc.is_in(pc.fill_null(parts["outcome"], "answered"), pa.array(FINISHED))
    keep = pc.and_(keep, pc.fill_null(pc.not_equal(parts["error_level"], "request"), fill_value=True))
    if read:
        keep = pc.and_(keep, is_mentioned(parts))
    return {name: column.filter(keep) for name, column in parts.items()}


def is_mentioned(parts: ArrowColumns) -> Any:
    """Return for each row if its response contains the partition; see `counting.is_mentioned`."""
    bytes_ = pc.greater(pc.fill_null(parts["bytes"], 0), 0)
    return pc.or_(bytes_, pc.or_(pc.is_valid(parts["error"]), pc.is_valid(parts["high_watermark"])))


def request_rows(columns: ArrowColumns, table: LakeTable) -> Any:
    time, latency = columns["time"], columns["latency_ms"]
    reads = pc.is_in(columns["api"], pa.array(READ_APIS))
    brought_nothing = pc.equal(columns["total_bytes"], 0).cast(pa.int64())
    own = {
        "detail": all_the_same("request", time),
        "last": time,
        "count": all_the_same(1, time),
        "latency_max_ms": latency,
        "latency_buckets": buckets(latency),
        "topics_named": of_each(columns["topics"], "topic"),
        "empty": pc.if_else(reads, brought_nothing, pa.scalar(None, pa.int64())),
    }
    return shaped(columns | own, table)


def summary_rows(columns: ArrowColumns, table: LakeTable) -> Any:
    """Return the rows of summary lines for an API without a topic."""
    latency, histogram = columns["latency_ms"], columns["latency_buckets"]
    by_broker = pc.fill_null(pc.equal(columns["responder"], "broker"), fill_value=False)
    held = pc.add(pc.fill_null(columns["rule_ms"], 0.0), pc.fill_null(columns["wait_ms"], 0.0))
    broker = pc.max_element_wise(pc.subtract(latency, held), 0.0, skip_nulls=False)
    own = {
        "detail": all_the_same("summary", columns["time"]),
        "time": pc.coalesce(columns["first"], columns["time"]),
        "last": pc.coalesce(columns["last"], columns["time"]),
        "count": pc.coalesce(columns["count"], pa.scalar(1, pa.int64())),
        "latency_max_ms": pc.coalesce(columns["latency_max_ms"], latency),
        "broker_ms": pc.if_else(by_broker, broker, pa.scalar(None, pa.float64())),
        "latency_buckets": pc.if_else(pc.is_null(histogram), buckets(latency), histogram),
        "total_records": columns["records"],
        "total_bytes": columns["bytes"],
    }
    return shaped(columns | own, table)


def buckets(latency_ms: Any) -> Any:
    """Return the histogram of single latencies: 1 in the latency's bucket, 0 in all others; null if there was no
    latency."""
    count, wide = len(latency_ms), len(LATENCY_BOUNDS_MS) + 1
    known = pc.fill_null(latency_ms, 0.0).to_numpy(zero_copy_only=False)
    ones = np.zeros((count, wide), np.int64)
    ones[np.arange(count), np.searchsorted(LATENCY_BOUNDS_MS, known)] = 1
    ends = pa.array(np.arange(0, count * wide + 1, wide), pa.int32())
    return pa.ListArray.from_arrays(ends, pa.array(ones.reshape(-1)), mask=pc.is_null(latency_ms))


MakeRows = Callable[[ArrowColumns, LakeTable], Any]
"""Function that makes rows of a table from columns of events."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """Recipe of a table that is made of bronze rows: one function for each kind of line."""

    table: LakeTable
    make: Mapping[str, MakeRows]


RECIPES = (
    Recipe(tables.CONNECTIONS, {kinds.CONNECTION: shaped}),
    Recipe(tables.REQUESTS, {**dict.fromkeys(kinds.REQUESTS, request_rows), kinds.SUMMARY: summary_rows}),
    Recipe(tables.PRODUCE_PARTITIONS, {kinds.WRITE: written_rows, kinds.SUMMARY_WRITE: partition_summary_rows}),
    Recipe(tables.FETCH_PARTITIONS, {kinds.READ: read_rows, kinds.SUMMARY_READ: partition_summary_rows}),
    Recipe(tables.COMMITS, {kinds.COMMIT: partition_rows}),
    Recipe(tables.OFFSETS_TOLD, {kinds.OFFSET: reported_rows}),
    Recipe(tables.GROUPS, {kinds.GROUP: shaped}),
    Recipe(tables.RULES, {kinds.RULE: shaped}),
    Recipe(tables.TOPOLOGY, {kinds.TOPOLOGY: shaped}),
    Recipe(tables.AUDIT_GAP, {kinds.AUDIT_GAP: shaped}),
    Recipe(tables.TELEMETRY, {kinds.TELEMETRY: shaped}),
)
"""One per silver table. Event types without a recipe stay in bronze."""

_EVENTS = {
    **dict.fromkeys(kinds.REQUESTS, REQUEST_EVENT),
    **dict.fromkeys((kinds.SUMMARY, kinds.SUMMARY_WRITE, kinds.SUMMARY_READ), SUMMARY_EVENT),
    kinds.CONNECTION: CONNECTION_EVENT,
    kinds.RULE: RULE_EVENT,
    kinds.TOPOLOGY: TOPOLOGY_EVENT,
    kinds.AUDIT_GAP: AUDIT_GAP_EVENT,
    kinds.TELEMETRY: TELEMETRY_EVENT,
}
_ALSO = ("topics", "first", "records", "bytes", "outcome", "error_level")
"""Columns that recipes read in addition to those of their tables."""


def rows_of(kind: str, lines: Any, of_bronze: ArrowColumns, wanted: frozenset[str]) -> Iterator[tuple[LakeTable, Any]]:
    """Yield those of the named tables that use lines of a kind, with the rows. The lines are parsed once."""
    recipes = [recipe for recipe in RECIPES if kind in recipe.make and recipe.table.name in wanted]
    if not recipes:
        return
    data = read(lines, columns_of(kind))
    columns = {name: data[name].combine_chunks() for name in data.column_names} | of_bronze
    for recipe in recipes:
        yield recipe.table, recipe.make[kind](columns, recipe.table)


def kinds_of(table: LakeTable) -> Sequence[str]:
    """Return the kinds of lines that a table is made of; all kinds for IDS."""
    return next((tuple(recipe.make) for recipe in RECIPES if recipe.table is table), kinds.KINDS)


@cache
def columns_of(kind: str) -> Sequence[Column]:
    """Return the columns that recipes read in events of a kind."""
    names = {name for recipe in RECIPES if kind in recipe.make for name in recipe.table.names}
    return tuple(column for column in _EVENTS[kind].columns if column.name in names.union(_ALSO))
