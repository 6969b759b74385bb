"""Answer: how much went through, hour by hour; the partials have it minute by minute, for charts of short times."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from kproxy.pipeline.transforms.gold.bases import Bases
from kproxy.pipeline.transforms.gold.partial import TOTAL, Partial

PARTIAL = Partial(
    keys=("cluster", "minute", "api"),
    measures={"requests": TOTAL, "errors": TOTAL, "request_bytes": TOTAL, "response_bytes": TOTAL},
)


def daily(bases: Bases) -> DataFrame:
    """Sum by minute and API. Minutes are UTC, as days are.

    A summary belongs to the minute in which its first request came.
    """
    counted = bases.minutes.groupBy("dt", *PARTIAL.keys).agg(
        F.sum("count").alias("requests"),
        F.sum("errors").alias("errors"),
        F.sum("request_bytes").alias("request_bytes"),
        F.sum("response_bytes").alias("response_bytes"),
    )
    return PARTIAL.select(counted)


def combine(partials: DataFrame) -> DataFrame:
    """Sum the minutes, one row per hour and API."""
    by_hour = partials.groupBy("cluster", F.date_trunc("hour", "minute").alias("hour"), "api")
    summed = by_hour.agg(*[F.sum(name).alias(name) for name in PARTIAL.measures])
    return summed.fillna(0, ["errors", "request_bytes", "response_bytes"])
