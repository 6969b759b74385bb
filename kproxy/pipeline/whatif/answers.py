"""Answers from findings: what each rule would have done, to whom, with samples. Pure transforms."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from .finding_sums import SAMPLES


def rules(findings: DataFrame) -> DataFrame:
    """Return what each rule would have done, one row a rule.

    Columns: rule, kind, matched, fired, applied (of live rules), requests (that it fired for, or changed), changed,
    answered, closed, lost, delay_ms_mean, delay_ms_max, clients, topics (how many), approximate. A rule that is about
    nothing in the recording has its row too.

    Only of a rule that was rehearsed alone it is known that the change is its own; with several live rules on one
    request, each is told what came of all of them.
    """
    counted = (
        findings.where(F.col("what") == "rule")
        .groupBy("rule", "kind")
        .agg(
            *(F.sum(name).alias(name) for name in ("matched", "fired", "applied")),
            F.max("approximate").alias("approximate"),
        )
    )
    groups = findings.where(F.col("what") == "group")
    did = groups.groupBy("rule").agg(
        F.sum("requests").alias("requests"),
        F.sum("changes").alias("changed"),
        F.sum("answers").alias("answered"),
        F.sum("closes").alias("closed"),
        F.sum("losses").alias("lost"),
        (F.sum("delay_ms") / F.sum("requests")).alias("delay_ms_mean"),
        F.max("delay_ms_max").alias("delay_ms_max"),
        F.count_distinct("client_id").alias("clients"),
    )
    topics = groups.select("rule", F.explode("topics").alias("topic")).groupBy("rule")
    named = topics.agg(F.count_distinct("topic").alias("topics"))
    return counted.join(did, "rule", "full").join(named, "rule", "left").orderBy("rule")


def affected(findings: DataFrame) -> DataFrame:
    """Return whom each rule would have affected.

    Columns: rule, client_id, client_address, api, topic, requests, first and last.
    """
    each = findings.where(F.col("what") == "group").withColumn("topic", F.explode_outer("topics"))
    return (
        each.groupBy("rule", "client_id", "client_address", "api", "topic")
        .agg(F.sum("requests").alias("requests"), F.min("time").alias("first"), F.max("last").alias("last"))
        .orderBy("rule", F.desc("requests"), "client_id", "api", "topic")
    )


def samples(findings: DataFrame, most: int = SAMPLES) -> DataFrame:
    """Return the first exchanges that each rule would have been about, at most `most`, and no more than `SAMPLES`."""
    order = Window.partitionBy("rule").orderBy("time", "capture", "connection", "number")
    return (
        findings.where(F.col("what") == "sample")
        .withColumn("place", F.row_number().over(order))
        .where(F.col("place") <= most)
        .select(
            "rule", "time", "capture", "connection", "number", "client_id", "api", "version", "topics",
            "request_changed", "response_changed", "answered", "closed", "lost", "delay_ms",
        )
        .orderBy("rule", "time", "number")
    )  # fmt: skip
