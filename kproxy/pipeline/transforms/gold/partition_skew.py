"""Answer: how evenly topics are spread over their partitions.

Strategy: sums per partition are kept; of them come the mean, the largest and the spread per topic. Partitions without
writes count, too: how many there are is what the cluster says, or else one more than the highest number seen.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, GroupedData
from pyspark.sql import functions as F

from kproxy.pipeline.transforms.gold.bases import Bases, went_well
from kproxy.pipeline.transforms.gold.partial import LARGEST, TOTAL, Partial
from kproxy.pipeline.transforms.gold.unused_topics import topology_topics

PARTIAL = Partial(
    keys=("cluster", "topic", "partition"),
    measures={
        "records": TOTAL,
        "bytes": TOTAL,
        "records_read": TOTAL,
        "bytes_read": TOTAL,
        "partitions": LARGEST,
    },
)
_AMOUNTS = ("records", "bytes", "records_read", "bytes_read")


def daily(bases: Bases) -> DataFrame:
    """Sum by partition, in the broker's names; and, in rows without a partition, tell how many a topic has."""
    written = _by_partition(bases.writes).agg(
        F.sum(went_well("records")).alias("records"), F.sum(went_well("bytes")).alias("bytes")
    )
    read = _by_partition(bases.reads).agg(
        F.sum(went_well("records")).alias("records_read"), F.sum(went_well("bytes")).alias("bytes_read")
    )
    topology = topology_topics(bases.topology)
    sizes = topology.groupBy("dt", "cluster", "topic").agg(F.max("partitions").alias("partitions"))
    return PARTIAL.gathered(written, read, sizes)


def _by_partition(totals: DataFrame) -> GroupedData:
    known = totals.where(F.col("broker_topic").isNotNull() & F.col("partition").isNotNull())
    return known.groupBy("dt", "cluster", F.col("broker_topic").alias("topic"), "partition")


def combine(partials: DataFrame) -> DataFrame:
    """Compute the skew, one row per topic that was written to or read."""
    merged = PARTIAL.merged(partials)
    topics = merged.groupBy("cluster", "topic").agg(
        F.greatest(F.max("partitions"), F.max("partition") + 1).alias("partitions"),
        F.count("partition").alias("seen"),
        *[F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in _AMOUNTS],
        *[F.max(name).alias(f"{name}_max") for name in _AMOUNTS],
        *[F.sum(F.col(name).cast("double") * F.col(name)).alias(f"{name}_squares") for name in _AMOUNTS],
        F.max(F.when(F.col("records").isNotNull(), F.struct("records", "partition"))).alias("largest"),
    )
    used = topics.where(F.col("seen") > 0)
    return used.select(
        "cluster",
        "topic",
        "partitions",
        *("records", "bytes"),
        F.col("largest.partition").alias("largest_partition"),
        F.col("largest.records").alias("largest_records"),
        *[max_to_mean(name).alias(f"{name}_max_to_mean") for name in ("records", "bytes")],
        *[variation(name).alias(f"{name}_variation") for name in ("records", "bytes")],
        *("records_read", "bytes_read"),
        max_to_mean("records_read").alias("records_read_max_to_mean"),
    )


def max_to_mean(name: str) -> Column:
    """Return the largest partition's share over an even share; 1: all alike; null: there is nothing in any."""
    return F.try_divide(F.col(f"{name}_max").cast("double") * F.col("partitions"), F.col(name))


def variation(name: str) -> Column:
    """Return the standard deviation over the mean, of all partitions; rounding may not make the variance negative."""
    mean = F.col(name) / F.col("partitions")
    variance = F.greatest(F.col(f"{name}_squares") / F.col("partitions") - mean * mean, F.lit(0.0))
    return F.try_divide(F.sqrt(variance), mean)
