"""Which ids have come, as bits: what finds duplicates without comparing all rows, and what is missing.

The ids of a source have no gaps, and files hold them nearly in order. So 64 neighbours fold into one row with a bit for
each, already where they are read: a hundredth of the rows is all that goes over the network.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from kproxy.pipeline.raw_tables import IDS

BITS = 6
"""An id's lowest bits: its place among the 64 of a block."""


def ids(bronze: DataFrame) -> DataFrame:
    """Rows of IDS, and dt, of bronze rows."""
    bit = F.expr(f"shiftleft(1L, CAST(event_id & {2**BITS - 1} AS INT))")
    folded = bronze.groupBy("source", F.shiftright("event_id", BITS).alias("block"), "dt").agg(
        F.bit_or(bit).alias("mask"),
        F.count("*").alias("lines"),
        F.min("time").alias("first"),
        F.max("time").alias("last"),
    )
    return folded.select(*IDS.names, "dt")


def doubled(ids: DataFrame) -> DataFrame:
    """`source` and `block` of the blocks in which some id has come twice. An event's dt is the same each time."""
    return ids.where(F.bit_count("mask") < F.col("lines")).select("source", "block").distinct()


def without_duplicates(bronze: DataFrame, doubled: DataFrame) -> DataFrame:
    """The bronze rows, those in `doubled` blocks compared one by one. All workers get `doubled`: it must be small."""
    block = F.shiftright("event_id", BITS)
    suspected = (F.col("bronze.source") == F.col("doubled.source")) & (block == F.col("doubled.block"))
    few = F.broadcast(doubled.alias("doubled"))
    rows = bronze.alias("bronze")
    sound = rows.join(few, suspected, how="left_anti")
    compared = rows.join(few, suspected, how="left_semi").dropDuplicates(["source", "event_id"])
    return sound.unionByName(compared)
