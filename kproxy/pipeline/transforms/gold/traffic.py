"""How much went through, hour by hour."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from kproxy.pipeline.transforms.gold.bases import Bases
from kproxy.pipeline.transforms.gold.partial import TOTAL, Partial

PARTIAL = Partial(
    keys=("cluster", "hour", "api"),
    measures={"requests": TOTAL, "errors": TOTAL, "request_bytes": TOTAL, "response_bytes": TOTAL},
)


def daily(bases: Bases) -> DataFrame:
    """Hours are UTC, as days are."""
    hour = F.date_trunc("hour", "minute").alias("hour")
    counted = bases.minutes.groupBy("dt", "cluster", hour, "api").agg(
        F.sum("count").alias("requests"),
        F.sum("errors").alias("errors"),
        F.sum("request_bytes").alias("request_bytes"),
        F.sum("response_bytes").alias("response_bytes"),
    )
    return PARTIAL.select(counted)


def combine(partials: DataFrame) -> DataFrame:
    """One row per hour and API."""
    return PARTIAL.merged(partials).fillna(0, ["errors", "request_bytes", "response_bytes"])
