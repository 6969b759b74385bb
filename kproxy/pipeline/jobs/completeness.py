"""completeness: which events are missing, from the ids that have come."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from kproxy.pipeline.raw_tables import BRONZE_CORRUPT, IDS
from kproxy.pipeline.run import Run
from kproxy.pipeline.transforms.completeness import completeness


def completeness_of(run: Run) -> DataFrame:
    """A row of COMPLETENESS for each source, by name."""
    return completeness(run.lake.read(IDS)).orderBy("source")


def corrupt_of(run: Run) -> DataFrame:
    """`reason` and `lines`: how many lines were no events, and why."""
    return run.lake.read(BRONZE_CORRUPT).groupBy("reason").agg(F.count("*").alias("lines")).orderBy("reason")
