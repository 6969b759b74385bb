"""Silver's groups and commits: what members of groups did, and the offsets that were committed."""

from __future__ import annotations

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame

from kproxy.events.schema import REQUEST_EVENT
from kproxy.pipeline import apis
from kproxy.pipeline.tables import COMMITS, GROUPS
from kproxy.pipeline.transforms.reading import is_a, shaped, told
from kproxy.pipeline.transforms.silver_partitions import partitions_of


def wanted_of_groups() -> SparkColumn:
    """The bronze rows that groups are made of."""
    return is_a(REQUEST_EVENT, *apis.GROUPS)


def groups(lines: DataFrame) -> DataFrame:
    """Bronze rows of the group protocols to rows of GROUPS."""
    columns = [column for column in REQUEST_EVENT.columns if column.name in GROUPS.names]
    return shaped(told(lines, columns), GROUPS)


def wanted_of_commits() -> SparkColumn:
    """The bronze rows that commits are made of."""
    return is_a(REQUEST_EVENT, *apis.COMMITS)


def commits(lines: DataFrame) -> DataFrame:
    """Bronze rows of OffsetCommit and TxnOffsetCommit to rows of COMMITS."""
    return shaped(partitions_of(lines, COMMITS), COMMITS)
