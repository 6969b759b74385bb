"""Answer: the clients that write to each topic."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from kproxy.pipeline.transforms.gold.bases import WHO, Bases, failed, stored, unconfirmed
from kproxy.pipeline.transforms.gold.partial import FIRST, LAST, TOTAL, Partial

PARTIAL = Partial(
    keys=("cluster", "topic", "broker_topic", *WHO[1:]),
    measures={
        "first_seen": FIRST,
        "last_seen": LAST,
        "requests": TOTAL,
        "records": TOTAL,
        "bytes": TOTAL,
        "unconfirmed_records": TOTAL,
        "errors": TOTAL,
    },
)


def daily(bases: Bases) -> DataFrame:
    """Sum what a broker has said that it stored; a refused partition is one error."""
    written = bases.writes.groupBy("dt", *PARTIAL.keys).agg(
        F.min("first_seen").alias("first_seen"),
        F.max("last_seen").alias("last_seen"),
        F.sum("count").alias("requests"),
        F.sum(stored("records")).alias("records"),
        F.sum(stored("bytes")).alias("bytes"),
        F.sum(unconfirmed("records")).alias("unconfirmed_records"),
        F.sum(failed("count")).alias("errors"),
    )
    return PARTIAL.select(written)


def combine(partials: DataFrame) -> DataFrame:
    """Merge the days, one row per topic and client."""
    return PARTIAL.merged(partials).fillna(0, ["records", "bytes", "unconfirmed_records", "errors"])
