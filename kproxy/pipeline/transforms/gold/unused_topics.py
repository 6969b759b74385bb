"""Answer: topics without writers or without readers, as far as kproxy saw.

Strategy: what the clusters say they have (topology events) beside what was written and read through kproxy, under the
broker's names. Clients that go past kproxy are not seen, and their topics look unused.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from kproxy.pipeline.transforms.gold.bases import Bases
from kproxy.pipeline.transforms.gold.partial import (
    EVER,
    FIRST,
    LAST,
    LATEST,
    LATEST_TEXT,
    TOTAL,
    Partial,
    latest,
)

TOLD_WITHIN = "5 minutes"
"""Topics of one state of a cluster may be told in several events, and by several proxies, within this time."""

PARTIAL = Partial(
    keys=("cluster", "topic"),
    measures={
        "last_told": LAST,
        "latest_id": LATEST_TEXT,
        "latest_partitions": LATEST,
        "internal": EVER,
        "first_told": FIRST,
        "last_written": LAST,
        "last_read": LAST,
        "records_written": TOTAL,
        "records_read": TOTAL,
    },
)


def daily(bases: Bases) -> DataFrame:
    """Merge what the cluster told of each topic with what was written and read."""
    written = bases.writes.where(F.col("error").isNull()).select(
        "dt",
        "cluster",
        F.col("broker_topic").alias("topic"),
        F.col("last_seen").alias("last_written"),
        F.col("records").alias("records_written"),
    )
    read = bases.reads.where(F.col("error").isNull()).select(
        "dt",
        "cluster",
        F.col("broker_topic").alias("topic"),
        F.col("last_seen").alias("last_read"),
        F.col("records").alias("records_read"),
    )
    everything = (
        topology_topics(bases.topology)
        .unionByName(written, allowMissingColumns=True)
        .unionByName(read, allowMissingColumns=True)
    )
    summed = (
        everything.where(F.col("topic").isNotNull())
        .groupBy("dt", "cluster", "topic")
        .agg(
            F.max("time").alias("last_told"),
            latest("time", "topic_id").alias("latest_id"),
            latest("time", "partitions").alias("latest_partitions"),
            F.max("internal").alias("internal"),
            F.min("time").alias("first_told"),
            F.max("last_written").alias("last_written"),
            F.max("last_read").alias("last_read"),
            F.sum("records_written").alias("records_written"),
            F.sum("records_read").alias("records_read"),
        )
    )
    return PARTIAL.select(summed)


def topology_topics(topology: DataFrame) -> DataFrame:
    """Return one row per topic and event: dt, cluster, time, topic, topic_id, partitions, internal."""
    exploded = topology.select("dt", "cluster", "time", F.explode("topics").alias("one"))
    return exploded.select("dt", "cluster", "time", "one.topic", "one.topic_id", "one.partitions", "one.internal")


def combine(partials: DataFrame) -> DataFrame:
    """Decide on each topic that was told or used. The cluster's last state is so short that it is broadcast."""
    topics = PARTIAL.merged(partials)
    states = topics.groupBy("cluster").agg(F.max("last_told").alias("state"))
    state = states.select(F.col("cluster").alias("of_cluster"), "state")
    known = F.coalesce(F.col("last_told") >= F.col("state") - F.expr(f"INTERVAL {TOLD_WITHIN}"), F.lit(False))
    verdict = (
        F.when(F.col("internal"), "internal")
        .when(F.col("last_told").isNotNull() & ~known, "gone")
        .when(F.col("last_written").isNull() & F.col("last_read").isNull(), "unused")
        .when(F.col("last_read").isNull(), "never read")
        .when(F.col("last_written").isNull(), "never written")
        .otherwise("in use")
    )
    beside = topics.join(F.broadcast(state), topics["cluster"].eqNullSafe(state["of_cluster"]), how="left")
    return beside.select(
        "cluster",
        "topic",
        F.col("latest_id.value").alias("topic_id"),
        F.col("latest_partitions.value").alias("partitions"),
        F.coalesce("internal", F.lit(False)).alias("internal"),
        known.alias("known"),
        "last_written",
        "last_read",
        F.coalesce("records_written", F.lit(0)).alias("records_written"),
        F.coalesce("records_read", F.lit(0)).alias("records_read"),
        verdict.alias("verdict"),
    )
