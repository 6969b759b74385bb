"""Which lines each silver table is made of, and how."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from kproxy.events.schema import CONNECTION_EVENT, RECOVERED_EVENT, RULE_EVENT, TOPOLOGY_EVENT
from kproxy.pipeline import tables
from kproxy.pipeline.table import Table
from kproxy.pipeline.transforms import kinds
from kproxy.pipeline.transforms.silver_events import as_they_are
from kproxy.pipeline.transforms.silver_groups import commits, groups
from kproxy.pipeline.transforms.silver_partitions import fetch_partitions, produce_partitions
from kproxy.pipeline.transforms.silver_requests import requests


@dataclass(frozen=True, slots=True)
class Recipe:
    """`table` is what `make` makes of the bronze rows of these `kinds`."""

    table: Table
    kinds: tuple[str, ...]
    make: Callable[[DataFrame], DataFrame]

    def rows(self, bronze: DataFrame) -> DataFrame:
        """The table's rows, with dt, of any bronze rows."""
        return self.make(bronze.where(F.col("kind").isin(*self.kinds)))


RECIPES = (
    Recipe(tables.CONNECTIONS, (kinds.CONNECTION,), as_they_are(CONNECTION_EVENT, tables.CONNECTIONS)),
    Recipe(tables.REQUESTS, (*kinds.REQUESTS, kinds.SUMMARY), requests),
    Recipe(tables.PRODUCE_PARTITIONS, (kinds.WRITE, kinds.SUMMARY_WRITE), produce_partitions),
    Recipe(tables.FETCH_PARTITIONS, (kinds.READ, kinds.SUMMARY_READ), fetch_partitions),
    Recipe(tables.COMMITS, (kinds.COMMIT,), commits),
    Recipe(tables.GROUPS, (kinds.GROUP,), groups),
    Recipe(tables.RULES, (kinds.RULE,), as_they_are(RULE_EVENT, tables.RULES)),
    Recipe(tables.TOPOLOGY, (kinds.TOPOLOGY,), as_they_are(TOPOLOGY_EVENT, tables.TOPOLOGY)),
    Recipe(tables.RECOVERED, (kinds.RECOVERED,), as_they_are(RECOVERED_EVENT, tables.RECOVERED)),
)
"""One for every silver table. Types that none of them wants stay in bronze."""
