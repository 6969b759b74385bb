"""Silver's rows of requests: one per request event, and per line of a summary that is about an API as such."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kproxy.events.schema import LATENCY_BOUNDS_MS
from kproxy.pipeline.apis import READS
from kproxy.pipeline.columnar.lists import of_each
from kproxy.pipeline.columnar.rows import ArrowColumns, all_the_same, shaped
from kproxy.pipeline.lake_table import LakeTable


def single(columns: ArrowColumns, table: LakeTable) -> Any:
    """Return the rows of request events."""
    time, latency = columns["time"], columns["latency_ms"]
    reads = pc.is_in(columns["api"], pa.array(READS))
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


def summed(columns: ArrowColumns, table: LakeTable) -> Any:
    """Return the rows of summary lines that are about an API as such."""
    latency, histogram = columns["latency_ms"], columns["latency_buckets"]
    own = {
        "detail": all_the_same("summary", columns["time"]),
        "time": pc.coalesce(columns["first"], columns["time"]),
        "last": pc.coalesce(columns["last"], columns["time"]),
        "count": pc.coalesce(columns["count"], pa.scalar(1, pa.int64())),
        "latency_max_ms": pc.coalesce(columns["latency_max_ms"], latency),
        "latency_buckets": pc.if_else(pc.is_null(histogram), buckets(latency), histogram),
        "total_records": columns["records"],
        "total_bytes": columns["bytes"],
    }
    return shaped(columns | own, table)


def buckets(latency_ms: Any) -> Any:
    """Return the histogram of single latencies: 1 in the bucket where it belongs, 0 in all others; null: no latency."""
    count, wide = len(latency_ms), len(LATENCY_BOUNDS_MS) + 1
    known = pc.fill_null(latency_ms, 0.0).to_numpy(zero_copy_only=False)
    ones = np.zeros((count, wide), np.int64)
    ones[np.arange(count), np.searchsorted(LATENCY_BOUNDS_MS, known)] = 1
    ends = pa.array(np.arange(0, count * wide + 1, wide), pa.int32())
    return pa.ListArray.from_arrays(ends, pa.array(ones.reshape(-1)), mask=pc.is_null(latency_ms))
