"""Received ids as bitmaps (`lake/columnar/task.py`): finds duplicates without comparing all rows, and gaps.

A source numbers its events from 1 on without gaps. So an id missing between the first and the last received id was
lost, is in a file that is not in bronze yet, or was deleted by retention.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from kproxy.lake.tables import SOURCE, LakeTable
from kproxy.record.events.column import Column

MASK_BITS = 6
"""An id's lowest bits: its index in a block of 64."""
WIDE = 1 << MASK_BITS


def blocks(ids: DataFrame) -> DataFrame:
    """Return rows of IDS, one per source and block, merged from all tasks, days and batches."""
    return ids.groupBy("source", "block").agg(
        F.bit_or("mask").alias("mask"),
        F.sum("lines").alias("lines"),
        F.min("first").alias("first"),
        F.max("last").alias("last"),
    )


def doubled(ids: DataFrame) -> DataFrame:
    """Return `source` and `block` of the blocks with duplicate ids.

    Duplicates of an event have the same dt.
    """
    return blocks(ids).where(F.bit_count("mask") < F.col("lines")).select("source", "block")


def without_duplicates(bronze: DataFrame, doubled: DataFrame) -> DataFrame:
    """Return the bronze rows without duplicates. Only rows in `doubled` blocks are compared.

    `doubled` is broadcast, so it must be small.
    """
    block = F.shiftright("event_id", MASK_BITS)
    suspected = (F.col("bronze.source") == F.col("doubled.source")) & (block == F.col("doubled.block"))
    few = F.broadcast(doubled.alias("doubled"))
    rows = bronze.alias("bronze")
    sound = rows.join(few, suspected, how="left_anti")
    compared = rows.join(few, suspected, how="left_semi").dropDuplicates(["source", "event_id"])
    return sound.unionByName(compared)


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
    """Return the blocks that have missing ids in them or right before them, in order.

    Columns: `source`, `block`, `mask` and `before`, as for `missing`. `before` is the source's last id below the block,
    null for its first block.
    """
    by_source = Window.partitionBy("source").orderBy("block")
    ranked = blocks(ids).select("source", "block", "mask", F.lag(_edge("max")).over(by_source).alias("before"))
    follows = F.col("before") == F.shiftleft("block", MASK_BITS) - F.lit(1)
    sound = (F.col("mask") == F.lit(-1)) & F.coalesce(follows, F.lit(True))
    return ranked.where(~sound).orderBy("source", "block")


def _edge(which: str) -> SparkColumn:
    """Return the lowest (`min`) or highest (`max`) id of a block."""
    bits = "lpad(bin(mask), 64, '0')"
    place = {
        "min": f"64 - length(trim(trailing '0' from {bits}))",
        "max": f"length(trim(leading '0' from {bits})) - 1",
    }[which]
    return F.shiftleft("block", MASK_BITS) + F.expr(place).cast("long")


class MissingIds(NamedTuple):
    """Range of missing ids from `first` to `last`, inclusive."""

    first: int
    last: int


def missing_ids(ids: DataFrame) -> Iterator[tuple[str, MissingIds]]:
    """Yield the ranges of missing ids, by source and in order, from rows of IDS."""
    for row in gaps(ids).toLocalIterator():
        for missed in missing(row["block"], row["mask"], row["before"]):
            yield row["source"], missed


def missing(block: int, mask: int, before: int | None) -> Iterator[MissingIds]:
    """Yield the missing ranges right before a block of 64 ids, and in the block up to its last received id.

    Bit n of `mask`, a signed 64-bit number, is set if block × 64 + n was received; at least one bit is set. `before` is
    the source's last received id below the block; None for the source's first block.
    """
    expected = None if before is None else before + 1
    for bit in range(WIDE):
        if mask >> bit & 1:
            number = block * WIDE + bit
            if expected is not None and number > expected:
                yield MissingIds(expected, number - 1)
            expected = number + 1
