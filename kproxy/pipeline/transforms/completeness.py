"""Completeness of sources: the ids that have come against those that should have, and which came twice.

A source numbers its events from 1 on without gaps. So between the first and the last id that have come, what has not
come was lost, is in a file that has not been taken over yet, or was deleted by retention.
"""

from __future__ import annotations

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from kproxy.events.column import Column
from kproxy.pipeline.lake_table import SOURCE, LakeTable
from kproxy.pipeline.transforms.ids import BITS, blocks

COMPLETENESS = LakeTable(
    "completeness",
    "the events of one source",
    (
        SOURCE,
        Column("events", "long", "different events that have come", "events"),
        Column("doubles", "long", "events that came once more; silver has them once after `compact`", "events"),
        Column("missing", "long", "ids between first_id and last_id that have not come", "events"),
        Column("first_id", "long", "the lowest id that has come"),
        Column("last_id", "long", "the highest"),
        Column("first", "timestamp", "time of the earliest event"),
        Column("last", "timestamp", "time of the latest"),
    ),
    key=("source",),
)


def completeness(ids: DataFrame) -> DataFrame:
    """Return a row of COMPLETENESS for each source, from rows of IDS."""
    of_sources = (
        blocks(ids)
        .groupBy("source")
        .agg(
            F.sum(F.bit_count("mask")).alias("events"),
            F.sum("lines").alias("lines"),
            F.min(_edge("min")).alias("first_id"),
            F.max(_edge("max")).alias("last_id"),
            F.min("first").alias("first"),
            F.max("last").alias("last"),
        )
    )
    return of_sources.select(
        "source",
        "events",
        (F.col("lines") - F.col("events")).alias("doubles"),
        (F.col("last_id") - F.col("first_id") + 1 - F.col("events")).alias("missing"),
        "first_id",
        "last_id",
        "first",
        "last",
    )


def gaps(ids: DataFrame) -> DataFrame:
    """Return the blocks in or right before which ids are missing, in their order.

    Columns: `source`, `block`, `mask` and `before`, the last id of the source below the block, null for its first: what
    `missing` in jobs/completeness.py needs of a block.
    """
    by_source = Window.partitionBy("source").orderBy("block")
    ranked = blocks(ids).select("source", "block", "mask", F.lag(_edge("max")).over(by_source).alias("before"))
    follows = F.col("before") == F.shiftleft("block", BITS) - F.lit(1)
    sound = (F.col("mask") == F.lit(-1)) & F.coalesce(follows, F.lit(True))
    return ranked.where(~sound).orderBy("source", "block")


def _edge(which: str) -> SparkColumn:
    """Return the lowest (`min`) or highest (`max`) id of a block."""
    bits = "lpad(bin(mask), 64, '0')"
    place = {
        "min": f"64 - length(trim(trailing '0' from {bits}))",
        "max": f"length(trim(leading '0' from {bits})) - 1",
    }[which]
    return F.shiftleft("block", BITS) + F.expr(place).cast("long")
