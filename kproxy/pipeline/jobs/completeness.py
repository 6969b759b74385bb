"""completeness: which events are missing, from the ids that have come."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from kproxy.pipeline.raw_tables import BRONZE_CORRUPT, IDS
from kproxy.pipeline.run import Run
from kproxy.pipeline.transforms.completeness import completeness, gaps
from kproxy.pipeline.transforms.ids import BITS

WIDE = 1 << BITS


class MissingIds(NamedTuple):
    """Range of ids `first` to `last` that have not come, nor any between them."""

    first: int
    last: int


def completeness_of(run: Run) -> DataFrame:
    """Return a row of COMPLETENESS for each source, by name."""
    return completeness(run.lake.read(IDS)).orderBy("source")


def missing_of(run: Run) -> Iterator[tuple[str, MissingIds]]:
    """Yield the ranges of ids that have not come, by source and in their order."""
    for row in gaps(run.lake.read(IDS)).toLocalIterator():
        for ids in missing(row["block"], row["mask"], row["before"]):
            yield row["source"], ids


def corrupt_of(run: Run) -> DataFrame:
    """Return `reason` and `lines`: how many lines were no events, and why."""
    return run.lake.read(BRONZE_CORRUPT).groupBy("reason").agg(F.count("*").alias("lines")).orderBy("reason")


def missing(block: int, mask: int, before: int | None) -> Iterator[MissingIds]:
    """Yield the ranges that are missing in a block of 64 ids up to the last that has come there, and right before it.

    Bit n of `mask`, a signed 64-bit number, says that block × 64 + n has come; some bit is set. `before` is the last id
    of its source that has come below the block; None: the block is the source's first.
    """
    expected = None if before is None else before + 1
    for bit in range(WIDE):
        if mask >> bit & 1:
            number = block * WIDE + bit
            if expected is not None and number > expected:
                yield MissingIds(expected, number - 1)
            expected = number + 1
