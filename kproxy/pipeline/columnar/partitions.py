"""Silver's partitions: one row per partition of a request event, or per line of a summary that is about one.

`row` tells partitions of one event apart: the position of the topic, times ROWS_A_TOPIC, plus the partition's.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kproxy.events.schema import PARTITION
from kproxy.pipeline.columnar.counting import counted
from kproxy.pipeline.columnar.lists import apart
from kproxy.pipeline.columnar.rows import Columns, all_the_same, shaped
from kproxy.pipeline.table import Table

ROWS_A_TOPIC = 100_000
"""More partitions of one topic than an event ever tells one by one (`audit.partitions`), and than a topic can have."""

_OF_TOPIC = ("topic", "broker_topic", "topic_id")


def each(columns: Columns, table: Table) -> Any:
    """Of request events, as they are about partitions: commits."""
    return shaped(partitions_of(columns), table)


def written(columns: Columns, table: Table) -> Any:
    """Of Produce requests."""
    parts = counted(partitions_of(columns), read=False)
    has_producer = pc.and_(pc.is_valid(parts["records"]), pc.is_valid(parts["producer_id"]))
    return shaped(_of_one(parts) | {"idempotent": has_producer}, table)


def read(columns: Columns, table: Table) -> Any:
    """Of Fetch and ShareFetch requests."""
    parts = counted(partitions_of(columns), read=True)
    brought_nothing = pc.equal(pc.fill_null(parts["bytes"], 0), 0)
    return shaped(_of_one(parts) | {"empty": brought_nothing.cast(pa.int64())}, table)


def summed(columns: Columns, table: Table) -> Any:
    """Of lines of a summary that are about a partition."""
    time = columns["time"]
    made = {
        "detail": all_the_same("summary", time),
        "row": all_the_same(0, time),
        "time": pc.coalesce(columns["first"], time),
    }
    return shaped(columns | made, table)


def partitions_of(columns: Columns) -> Columns:
    """The columns of request events, one row per partition: with `row`, and with what topic and partition have."""
    topics = apart(columns["topics"])
    parts = apart(pc.struct_field(topics.values, "partitions"))
    events = topics.rows.take(parts.rows)
    outer = {name: column.take(events) for name, column in columns.items() if name != "topics"}
    of_topic = {name: pc.struct_field(topics.values, name).take(parts.rows) for name in (*_OF_TOPIC, "error")}
    inner = {column.name: pc.struct_field(parts.values, column.name) for column in PARTITION}
    return {
        **outer,
        **of_topic,
        **inner,
        "error": pc.coalesce(inner["error"], of_topic["error"]),
        "row": pc.add(pc.multiply(topics.places.take(parts.rows), ROWS_A_TOPIC), parts.places),
    }


def _of_one(parts: Columns) -> Columns:
    time = parts["time"]
    return parts | {"detail": all_the_same("request", time), "last": time, "count": all_the_same(1, time)}
