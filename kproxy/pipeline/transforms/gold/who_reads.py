"""Answer: the clients that read each topic."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from kproxy.pipeline.transforms.gold.bases import WHO, Bases, failed, went_well
from kproxy.pipeline.transforms.gold.partial import FIRST, LAST, TOTAL, Partial

PARTIAL = Partial(
    keys=("cluster", "topic", "broker_topic", *WHO[1:]),
    measures={
        "first_seen": FIRST,
        "last_seen": LAST,
        "requests": TOTAL,
        "empty": TOTAL,
        "records": TOTAL,
        "bytes": TOTAL,
        "errors": TOTAL,
    },
)


def daily(bases: Bases) -> DataFrame:
    """Sum what was read. A partition that was answered with an error counts as one error and brought nothing."""
    read = bases.reads.groupBy("dt", *PARTIAL.keys).agg(
        F.min("first_seen").alias("first_seen"),
        F.max("last_seen").alias("last_seen"),
        F.sum("count").alias("requests"),
        F.sum("empty").alias("empty"),
        F.sum(went_well("records")).alias("records"),
        F.sum(went_well("bytes")).alias("bytes"),
        F.sum(failed("count")).alias("errors"),
    )
    return PARTIAL.select(read)


def combine(partials: DataFrame) -> DataFrame:
    """Merge the days, one row per topic and client."""
    return PARTIAL.merged(partials).fillna(0, ["empty", "records", "bytes", "errors"])
