"""From findings to answers: what each rule would have done, to whom, with samples. Pure transforms."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

SAMPLES = 5
"""Of each rule."""
CHANGED = ("request_changed", "response_changed", "answered", "lost")


def by_rule(findings: DataFrame) -> DataFrame:
    """One row per finding and rule: live rules that fired in the run of all rules, and rules that were rehearsed alone.

    Only of a rule that was rehearsed alone it is known that the change is its own; with several live rules on one
    request, each is told what came of all of them.
    """
    found = findings.where(F.col("what") == "finding")
    live = found.where(F.col("rule").isNull()).withColumn("rule", F.explode("rules"))
    alone = found.where(F.col("rule").isNotNull())
    return live.unionByName(alone)


def rules(findings: DataFrame) -> DataFrame:
    """What each rule would have done.

    Columns: rule, kind, matched, fired, applied (of live rules), requests (that it fired for, or changed), changed,
    answered, closed, lost, delay_ms_mean, delay_ms_max, clients, topics (how many), approximate. A rule that is about
    nothing in the recording has its row too.
    """
    counted = (
        findings.where(F.col("what") == "rule")
        .groupBy("rule", "kind")
        .agg(
            *(F.sum(name).alias(name) for name in ("matched", "fired", "applied")),
            F.max("approximate").alias("approximate"),
        )
    )
    each = by_rule(findings)
    changed = F.col("request_changed") | F.col("response_changed")
    did = each.groupBy("rule").agg(
        F.count("*").alias("requests"),
        F.count_if(changed).alias("changed"),
        F.count_if("answered").alias("answered"),
        F.count_if(F.col("closed").isNotNull()).alias("closed"),
        F.count_if("lost").alias("lost"),
        F.avg("delay_ms").alias("delay_ms_mean"),
        F.max("delay_ms").alias("delay_ms_max"),
        F.count_distinct("client_id").alias("clients"),
    )
    topics = each.select("rule", F.explode("topics").alias("topic")).groupBy("rule")
    named = topics.agg(F.count_distinct("topic").alias("topics"))
    return counted.join(did, "rule", "full").join(named, "rule", "left").orderBy("rule")


def affected(findings: DataFrame) -> DataFrame:
    """Whom each rule would have affected: rule, client_id, client_address, api, topic, requests, first and last."""
    each = by_rule(findings).withColumn("topic", F.explode_outer("topics"))
    return (
        each.groupBy("rule", "client_id", "client_address", "api", "topic")
        .agg(F.count("*").alias("requests"), F.min("time").alias("first"), F.max("time").alias("last"))
        .orderBy("rule", F.desc("requests"), "client_id", "api", "topic")
    )


def samples(findings: DataFrame, most: int = SAMPLES) -> DataFrame:
    """The first exchanges that each rule would have been about, at most so many of each."""
    order = Window.partitionBy("rule").orderBy("time", "capture", "connection", "number")
    return (
        by_rule(findings)
        .withColumn("place", F.row_number().over(order))
        .where(F.col("place") <= most)
        .select(
            "rule", "time", "capture", "connection", "number", "client_id", "api", "version", "topics",
            "request_changed", "response_changed", "answered", "closed", "lost", "delay_ms",
        )
        .orderBy("rule", "time", "number")
    )  # fmt: skip
