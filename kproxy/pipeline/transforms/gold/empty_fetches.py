"""Answer: how much readers get for their fetches."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from kproxy.pipeline.transforms.gold.bases import Bases, went_well
from kproxy.pipeline.transforms.gold.partial import FIRST, LAST, TOTAL, Partial, ratio

FETCHES = ("Fetch", "ShareFetch")
PARTIAL = Partial(
    keys=("cluster", "client_id", "principal", "software_name", "software_version"),
    measures={
        "first_seen": FIRST,
        "last_seen": LAST,
        "fetches": TOTAL,
        "empty": TOTAL,
        "records": TOTAL,
        "bytes": TOTAL,
    },
)

MOSTLY = 0.9
"""Part of the fetches that bring nothing, from which on it is worth a word."""
OFTEN = 120.0
"""Fetches a minute from which empty ones are a waste: who waits the default 500 ms makes 120 per broker."""


def daily(bases: Bases) -> DataFrame:
    """Sum fetches from the requests, and records from the partitions."""
    fetches = bases.requests.where(F.col("api").isin(*FETCHES))
    requests = fetches.groupBy("dt", *PARTIAL.keys).agg(
        F.min("first_seen").alias("first_seen"),
        F.max("last_seen").alias("last_seen"),
        F.sum("count").alias("fetches"),
        F.sum("empty").alias("empty"),
    )
    brought = bases.reads.groupBy("dt", *PARTIAL.keys).agg(
        F.sum(went_well("records")).alias("records"), F.sum(went_well("bytes")).alias("bytes")
    )
    return PARTIAL.gathered(requests, brought)


def combine(partials: DataFrame) -> DataFrame:
    """Rate each client's fetches, one row per client."""
    merged = PARTIAL.merged(partials).fillna(0, ["fetches", "empty", "records", "bytes"])
    seconds = F.unix_timestamp("last_seen") - F.unix_timestamp("first_seen")
    rated = merged.where(F.col("fetches") > 0).select(
        "*",
        ratio("empty", "fetches").alias("empty_part"),
        (F.col("fetches") / F.greatest(seconds / 60, F.lit(1.0))).alias("fetches_per_minute"),
        ratio("records", "fetches").alias("records_per_fetch"),
        ratio("bytes", "fetches").alias("bytes_per_fetch"),
    )
    return rated.select("*", findings().alias("findings"))


def findings() -> Column:
    """Return the findings about a client as an array of words."""
    in_vain = (F.col("empty_part") >= MOSTLY) & (F.col("fetches_per_minute") > OFTEN)
    return F.array_compact(F.array(F.when(in_vain, F.lit("polls in vain"))))
