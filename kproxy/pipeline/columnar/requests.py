"""Silver's requests: one row per request event, and per line of a summary that is about an API as such."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kproxy.events.schema import LATENCY_BOUNDS_MS
from kproxy.pipeline.apis import READS
from kproxy.pipeline.columnar.lists import of_each
from kproxy.pipeline.columnar.rows import Columns, all_the_same, shaped
from kproxy.pipeline.table import Table


def single(columns: Columns, table: Table) -> Any:
    """Of request events."""
    time, latency = columns["time"], columns["latency_ms"]
    reads = pc.is_in(columns["api"], pa.array(READS))
    brought_nothing = pc.equal(columns["total_bytes"], 0).cast(pa.int64())
    made = {
        "detail": all_the_same("request", time),
        "last": time,
        "count": all_the_same(1, time),
        "latency_max_ms": latency,
        "latency_buckets": buckets(latency),
        "topics_named": of_each(columns["topics"], "topic"),
        "empty": pc.if_else(reads, brought_nothing, pa.scalar(None, pa.int64())),
    }
    return shaped(columns | made, table)


def summed(columns: Columns, table: Table) -> Any:
    """Of summaries that are about an API as such."""
    latency, told = columns["latency_ms"], columns["latency_buckets"]
    made = {
        "detail": all_the_same("summary", columns["time"]),
        "time": pc.coalesce(columns["first"], columns["time"]),
        "last": pc.coalesce(columns["last"], columns["time"]),
        "count": pc.coalesce(columns["count"], pa.scalar(1, pa.int64())),
        "latency_max_ms": pc.coalesce(columns["latency_max_ms"], latency),
        "latency_buckets": pc.if_else(pc.is_null(told), buckets(latency), told),
        "total_records": columns["records"],
        "total_bytes": columns["bytes"],
    }
    return shaped(columns | made, table)


def buckets(latency_ms: Any) -> Any:
    """The histogram of single latencies: 1 in the bucket where it belongs, 0 in all others; null: no latency."""
    count, wide = len(latency_ms), len(LATENCY_BOUNDS_MS) + 1
    known = pc.fill_null(latency_ms, 0.0).to_numpy(zero_copy_only=False)
    ones = np.zeros((count, wide), np.int64)
    ones[np.arange(count), np.searchsorted(LATENCY_BOUNDS_MS, known)] = 1
    ends = pa.array(np.arange(0, count * wide + 1, wide), pa.int32())
    return pa.ListArray.from_arrays(ends, pa.array(ones.reshape(-1)), mask=pc.is_null(latency_ms))
