"""Silver's requests: one row per request event, and per line of a summary that is about an API as such."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from kproxy.events.schema import LATENCY_BOUNDS_MS, REQUEST_EVENT, SUMMARY_EVENT
from kproxy.pipeline.apis import READS
from kproxy.pipeline.table import find, of_event
from kproxy.pipeline.tables import REQUESTS
from kproxy.pipeline.transforms.reading import both, read, shaped

_TOPICS = find(REQUEST_EVENT.columns, "topics", REQUEST_EVENT.name)
_ALSO = (
    replace(_TOPICS, columns=(find(_TOPICS.columns, "topic", "a topic"),)),  # nothing else of it is read
    *of_event(SUMMARY_EVENT, "first", "records", "bytes"),
)
_READ = both(
    _ALSO,
    (column for column in both(REQUEST_EVENT.columns, SUMMARY_EVENT.columns) if column.name in REQUESTS.names),
)


def requests(lines: DataFrame) -> DataFrame:
    """Bronze rows of requests, and of summaries that are about an API as such, to rows of REQUESTS."""
    single = F.col("type") == F.lit(REQUEST_EVENT.name)
    is_empty = single & F.col("api").isin(*READS) & (F.col("total_bytes") == 0)
    rows = read(lines, _READ).withColumns(
        {
            "detail": F.when(single, "request").otherwise("summary"),
            "time": F.coalesce("first", "time"),
            "last": F.coalesce("last", "time"),
            "count": F.coalesce("count", F.lit(1)),
            "latency_max_ms": F.coalesce("latency_max_ms", "latency_ms"),
            "latency_buckets": F.coalesce("latency_buckets", buckets(F.col("latency_ms"))),
            "topics_named": F.col("topics.topic"),
            "total_records": F.coalesce("total_records", "records"),
            "total_bytes": F.coalesce("total_bytes", "bytes"),
            "empty": F.coalesce("empty", F.when(single & F.col("api").isin(*READS), is_empty.cast("long"))),
        }
    )
    return shaped(rows, REQUESTS)


def buckets(latency_ms: SparkColumn) -> SparkColumn:
    """The histogram of one latency: 1 in the bucket where it belongs, 0 in all others; null: no latency."""
    beyond = F.when(latency_ms.isNotNull(), _one_in(len(LATENCY_BOUNDS_MS)))
    for position in reversed(range(len(LATENCY_BOUNDS_MS))):
        beyond = F.when(latency_ms <= F.lit(float(LATENCY_BOUNDS_MS[position])), _one_in(position)).otherwise(beyond)
    return beyond


def _one_in(position: int) -> SparkColumn:
    ones = [F.lit(int(place == position)).cast("long") for place in range(len(LATENCY_BOUNDS_MS) + 1)]
    return F.array(*ones)
