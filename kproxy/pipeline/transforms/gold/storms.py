"""Answer: storms of connections, and of requests from clients that start or lose their way, by the minute."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from kproxy.pipeline.transforms.gold.bases import STORM_APIS, Bases, minute
from kproxy.pipeline.transforms.gold.partial import PEAK, TOTAL, Partial, ratio

PARTIAL = Partial(keys=("cluster", "client_address", "what"), measures={"total": TOTAL, "minutes": TOTAL, "peak": PEAK})

STORM = {"connections": 60, "Metadata": 300, "ApiVersions": 300, "FindCoordinator": 300}
"""Counts in a minute from one address that are a storm: one connection or five requests a second are more than any
client needs that runs; a host with hundreds of clients that all start at once is one, too."""


def daily(bases: Bases) -> DataFrame:
    """Count by address and kind: how many, in how many minutes, and the worst minute."""
    opened = bases.connections.where(F.col("what") == "open").drop("what")
    connections = opened.groupBy(
        "dt", "cluster", "client_address", F.lit("connections").alias("what"), minute().alias("minute")
    ).agg(F.count(F.lit(1)).alias("count"))
    starting = bases.minutes.where(F.col("api").isin(*STORM_APIS))
    requests = starting.select("dt", "cluster", "client_address", F.col("api").alias("what"), "minute", "count")
    by_minute = connections.unionByName(requests)
    summed = by_minute.groupBy("dt", *PARTIAL.keys).agg(
        F.sum("count").alias("total"),
        F.count(F.lit(1)).alias("minutes"),
        F.max(F.struct(F.col("count").alias("value"), F.col("minute").alias("time"))).alias("peak"),
    )
    return PARTIAL.select(summed)


def combine(partials: DataFrame) -> DataFrame:
    """Decide which are storms, one row per address and kind."""
    merged = PARTIAL.merged(partials)
    return merged.select(
        *PARTIAL.keys,
        "total",
        "minutes",
        ratio("total", "minutes").alias("mean_per_minute"),
        F.col("peak.value").alias("peak_per_minute"),
        F.col("peak.time").alias("peak_at"),
        (F.col("peak.value") >= threshold()).alias("storm"),
    )


def threshold() -> Column:
    """Return the count per minute that is a storm of this kind."""
    entries = [F.lit(part) for entry in STORM.items() for part in entry]
    return F.element_at(F.create_map(*entries), F.col("what"))
