"""Silver's groups and commits: what members of groups did, and the offsets that were committed."""

from __future__ import annotations

from pyspark.sql import DataFrame

from kproxy.events.schema import REQUEST_EVENT
from kproxy.pipeline.tables import COMMITS, GROUPS
from kproxy.pipeline.transforms.reading import read, shaped
from kproxy.pipeline.transforms.silver_partitions import partitions_of


def groups(lines: DataFrame) -> DataFrame:
    """Bronze rows of the group protocols to rows of GROUPS."""
    columns = [column for column in REQUEST_EVENT.columns if column.name in GROUPS.names]
    return shaped(read(lines, columns), GROUPS)


def commits(lines: DataFrame) -> DataFrame:
    """Bronze rows of OffsetCommit and TxnOffsetCommit to rows of COMMITS."""
    return shaped(partitions_of(lines, COMMITS), COMMITS)
