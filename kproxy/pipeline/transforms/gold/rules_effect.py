"""Answer: the effect of each rule, day by day, and the clients and topics that it met."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from kproxy.pipeline.transforms.gold.bases import Bases
from kproxy.pipeline.transforms.gold.partial import (
    FIRST,
    LAST,
    LATEST_TEXT,
    NAMES,
    SKETCH,
    TOTAL,
    Partial,
    latest,
    names_of,
    sketch_of,
)

PARTIAL = Partial(
    keys=("rule", "day"),
    measures={
        "latest_kind": LATEST_TEXT,
        "first_seen": FIRST,
        "last_seen": LAST,
        "matched": TOTAL,
        "fired": TOTAL,
        "applied": TOTAL,
        "requests": TOTAL,
        "answered": TOTAL,
        "clients": SKETCH,
        "topics": SKETCH,
        "client_names": NAMES,
        "topic_names": NAMES,
    },
)


def daily(bases: Bases) -> DataFrame:
    """Sum the rules' own counters, and the requests on record that they fired for: with `summary` detail there are
    none.
    """
    return PARTIAL.gathered(counters(bases.rules), requests(bases.ruled), topics(bases.ruled))


def counters(rules: DataFrame) -> DataFrame:
    """Sum the counts that rules give every minute."""
    fired = rules.where(F.col("what") == "fired")
    return fired.groupBy("dt", F.col("dt").alias("day"), "rule").agg(
        latest("time", "kind").alias("latest_kind"),
        F.min("time").alias("first_seen"),
        F.max("time").alias("last_seen"),
        *[F.sum(name).alias(name) for name in ("matched", "fired", "applied")],
    )


def requests(ruled: DataFrame) -> DataFrame:
    """Sum the requests and clients that a rule met."""
    return ruled.groupBy("dt", F.col("dt").alias("day"), "rule").agg(
        F.min("time").alias("first_seen"),
        F.max("time").alias("last_seen"),
        F.sum("count").alias("requests"),
        F.sum(F.when(F.col("answered_by") == "kproxy", F.col("count"))).alias("answered"),
        sketch_of("client_id").alias("clients"),
        names_of("client_id").alias("client_names"),
    )


def topics(ruled: DataFrame) -> DataFrame:
    """Collect the topics of the requests that a rule met."""
    named = ruled.select("dt", "rule", F.explode("topics_named").alias("topic"))
    return named.groupBy("dt", F.col("dt").alias("day"), "rule").agg(
        sketch_of("topic").alias("topics"), names_of("topic").alias("topic_names")
    )


def combine(partials: DataFrame) -> DataFrame:
    """Merge the days, one row per rule and day."""
    merged = PARTIAL.merged(partials)
    counts = ("matched", "fired", "applied", "requests", "answered")
    return merged.select(
        "rule",
        "day",
        F.col("latest_kind.value").alias("kind"),
        "first_seen",
        "last_seen",
        *[F.coalesce(name, F.lit(0)).alias(name) for name in counts],
        *[F.hll_sketch_estimate(F.coalesce(name, F.lit(None))).alias(name) for name in ("clients", "topics")],
        *("client_names", "topic_names"),
    )
