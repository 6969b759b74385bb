"""Silver's rows of partitions: one per partition of a request event, or per line of a summary that is about one.

`row` tells partitions of one event apart: the position of the topic, times ROWS_A_TOPIC, plus the partition's.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kproxy.events.counting import FINISHED
from kproxy.events.schema import PARTITION
from kproxy.pipeline.columnar.lists import list_elements
from kproxy.pipeline.columnar.rows import ArrowColumns, all_the_same, shaped
from kproxy.pipeline.lake_table import LakeTable

ROWS_A_TOPIC = 100_000
"""More partitions of one topic than an event ever tells one by one (`audit.partitions`), and than a topic can have."""

_OF_TOPIC = ("topic", "broker_topic", "topic_id")


def each(columns: ArrowColumns, table: LakeTable) -> Any:
    """Return the rows of request events as they are about partitions: commits."""
    return shaped(partitions_of(columns), table)


def written(columns: ArrowColumns, table: LakeTable) -> Any:
    """Return the rows of Produce requests that count as written."""
    parts = counted(partitions_of(columns), read=False)
    has_producer = pc.and_(pc.is_valid(parts["records"]), pc.is_valid(parts["producer_id"]))
    return shaped(_of_one(parts) | {"idempotent": has_producer}, table)


def read(columns: ArrowColumns, table: LakeTable) -> Any:
    """Return the rows of Fetch and ShareFetch requests that count as read."""
    parts = counted(partitions_of(columns), read=True)
    brought_nothing = pc.equal(pc.fill_null(parts["bytes"], 0), 0)
    return shaped(_of_one(parts) | {"empty": brought_nothing.cast(pa.int64())}, table)


def summed(columns: ArrowColumns, table: LakeTable) -> Any:
    """Return the rows of summary lines that are about a partition."""
    time = columns["time"]
    own = {
        "detail": all_the_same("summary", time),
        "row": all_the_same(0, time),
        "time": pc.coalesce(columns["first"], time),
    }
    return shaped(columns | own, table)


def partitions_of(columns: ArrowColumns) -> ArrowColumns:
    """Return the columns of request events, one row per partition, with `row` and what topic and partition have."""
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
        "error": pc.coalesce(inner["error"], of_topic["error"]),
        "row": pc.add(pc.multiply(topics.places.take(parts.rows), ROWS_A_TOPIC), parts.places),
    }


def _of_one(parts: ArrowColumns) -> ArrowColumns:
    time = parts["time"]
    return parts | {"detail": all_the_same("request", time), "last": time, "count": all_the_same(1, time)}


def counted(parts: ArrowColumns, *, read: bool) -> ArrowColumns:
    """Keep those rows of partitions that count as written to, or `read` from; see `counting.partitions`."""
    keep = pc.is_in(pc.fill_null(parts["outcome"], "answered"), pa.array(FINISHED))
    keep = pc.and_(keep, pc.fill_null(pc.not_equal(parts["error_level"], "request"), fill_value=True))
    if read:
        keep = pc.and_(keep, is_mentioned(parts))
    return {name: column.filter(keep) for name, column in parts.items()}


def is_mentioned(parts: ArrowColumns) -> Any:
    """Return for each row if its response said something of the partition; see `counting.is_mentioned`."""
    bytes_ = pc.greater(pc.fill_null(parts["bytes"], 0), 0)
    return pc.or_(bytes_, pc.or_(pc.is_valid(parts["error"]), pc.is_valid(parts["high_watermark"])))
