"""completeness: which events are missing, from the ids that have come."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from kproxy.pipeline.missing import Missing, missing
from kproxy.pipeline.raw_tables import BRONZE_CORRUPT, IDS
from kproxy.pipeline.run import Run
from kproxy.pipeline.transforms.completeness import completeness, gaps


def completeness_of(run: Run) -> DataFrame:
    """A row of COMPLETENESS for each source, by name."""
    return completeness(run.lake.read(IDS)).orderBy("source")


def missing_of(run: Run) -> Iterator[tuple[str, Missing]]:
    """Of each source, by name, the ranges of ids that have not come, in their order."""
    for row in gaps(run.lake.read(IDS)).toLocalIterator():
        for one in missing(row["block"], row["mask"], row["before"]):
            yield row["source"], one


def corrupt_of(run: Run) -> DataFrame:
    """`reason` and `lines`: how many lines were no events, and why."""
    return run.lake.read(BRONZE_CORRUPT).groupBy("reason").agg(F.count("*").alias("lines")).orderBy("reason")
