"""Duplicates found by the ids that have come, as bits (`columnar/ids.py`), without comparing all rows."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

BITS = 6
"""An id's lowest bits: its place among the 64 of a block."""


def blocks(ids: DataFrame) -> DataFrame:
    """Return rows of IDS, one per source and block: what several tasks, days and batches have of it put together."""
    return ids.groupBy("source", "block").agg(
        F.bit_or("mask").alias("mask"),
        F.sum("lines").alias("lines"),
        F.min("first").alias("first"),
        F.max("last").alias("last"),
    )


def doubled(ids: DataFrame) -> DataFrame:
    """Return `source` and `block` of the blocks in which some id has come twice.

    An event's dt is the same each time.
    """
    return blocks(ids).where(F.bit_count("mask") < F.col("lines")).select("source", "block")


def without_duplicates(bronze: DataFrame, doubled: DataFrame) -> DataFrame:
    """Return the bronze rows, those in `doubled` blocks compared one by one.

    All workers get `doubled`: it must be small.
    """
    block = F.shiftright("event_id", BITS)
    suspected = (F.col("bronze.source") == F.col("doubled.source")) & (block == F.col("doubled.block"))
    few = F.broadcast(doubled.alias("doubled"))
    rows = bronze.alias("bronze")
    sound = rows.join(few, suspected, how="left_anti")
    compared = rows.join(few, suspected, how="left_semi").dropDuplicates(["source", "event_id"])
    return sound.unionByName(compared)
