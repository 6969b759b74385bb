"""Answer: how producers are set: acks, idempotence, compression, size of batches."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from kproxy.pipeline.transforms.gold.bases import Bases
from kproxy.pipeline.transforms.gold.partial import FIRST, LAST, NAMES, TOTAL, Partial, names_of, ratio

CLIENT = ("cluster", "client_id", "principal", "software_name", "software_version")
PARTIAL = Partial(
    keys=(*CLIENT, "topic"),
    measures={
        "first_seen": FIRST,
        "last_seen": LAST,
        "writes": TOTAL,
        "acks_0": TOTAL,
        "acks_1": TOTAL,
        "idempotent": TOTAL,
        "told": TOTAL,
        "uncompressed": TOTAL,
        "codecs": NAMES,
        "records": TOTAL,
        "bytes": TOTAL,
        "batches": TOTAL,
        "produce_requests": TOTAL,
    },
)
"""`writes`: requests counted once per partition; `told`: those of them whose batches could be read."""

TINY_BATCH = 1024
"""Bytes of a mean batch that is called tiny: the header of a batch alone is 61, and the default target is 16,384."""
HUGE_BATCH = 1_000_000
"""Bytes of a mean batch that is called huge: brokers take about 1 MB unless told otherwise (message.max.bytes)."""
ENOUGH_BATCHES = 100
"""Below this, a mean says nothing about how a producer is set."""


def daily(bases: Bases) -> DataFrame:
    """Sum what was written by client and topic; and, without a topic, the requests that took by client."""
    return PARTIAL.gathered(writes(bases.writes), produce_requests(bases.requests))


def writes(totals: DataFrame) -> DataFrame:
    """Sum what was written by client and topic."""
    return totals.groupBy("dt", *PARTIAL.keys).agg(
        F.min("first_seen").alias("first_seen"),
        F.max("last_seen").alias("last_seen"),
        F.sum("count").alias("writes"),
        F.sum(F.when(F.col("acks") == 0, F.col("count"))).alias("acks_0"),
        F.sum(F.when(F.col("acks") == 1, F.col("count"))).alias("acks_1"),
        F.sum(F.when(F.col("idempotent"), F.col("count"))).alias("idempotent"),
        F.sum(F.when(F.col("codec").isNotNull(), F.col("count"))).alias("told"),
        F.sum(F.when(F.col("codec") == "none", F.col("count"))).alias("uncompressed"),
        names_of("codec").alias("codecs"),
        F.sum("records").alias("records"),
        F.sum("bytes").alias("bytes"),
        F.sum("batches").alias("batches"),
    )


def produce_requests(totals: DataFrame) -> DataFrame:
    """Count the Produce requests of each client."""
    produce = totals.where(F.col("api") == "Produce")
    return produce.groupBy("dt", *CLIENT).agg(F.sum("count").alias("produce_requests"))


def combine(partials: DataFrame) -> DataFrame:
    """Rate producers, one row per client and topic. Records per request are the client's, over all its topics."""
    client = Window.partitionBy(*CLIENT)
    merged = PARTIAL.merged(partials)
    of_client = merged.select(
        "*",
        F.sum("records").over(client).alias("client_records"),
        F.sum("produce_requests").over(client).alias("client_requests"),
    )
    topics = of_client.where(F.col("writes").isNotNull()).fillna(0, ["acks_0", "acks_1", "idempotent", "uncompressed"])
    rated = topics.select(
        *PARTIAL.keys,
        *("first_seen", "last_seen", "writes", "records", "bytes", "batches", "codecs"),
        ratio("acks_0", "writes").alias("acks_0"),
        ratio("acks_1", "writes").alias("acks_1"),
        ratio("idempotent", "told").alias("idempotent"),
        ratio("uncompressed", "told").alias("uncompressed"),
        ratio("records", "batches").alias("batch_records"),
        ratio("bytes", "batches").alias("batch_bytes"),
        ratio("client_records", "client_requests").alias("records_per_request"),
    )
    return rated.select("*", findings().alias("findings"))


def findings() -> Column:
    """Return the findings about a producer as an array of words."""
    enough = F.col("batches") >= ENOUGH_BATCHES
    words = {
        "acks=0": F.col("acks_0") > 0,
        "acks=1": F.col("acks_1") > 0,
        "not idempotent": F.col("idempotent") < 1,
        "uncompressed": F.col("uncompressed") > 0.5,
        "tiny batches": enough & (F.col("batch_bytes") < TINY_BATCH),
        "huge batches": enough & (F.col("batch_bytes") > HUGE_BATCH),
    }
    return F.array_compact(F.array(*[F.when(found, F.lit(word)) for word, found in words.items()]))
