"""Which lines each silver table is made of, and how."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame

from kproxy.events.schema import CONNECTION_EVENT, RECOVERED_EVENT, RULE_EVENT, TOPOLOGY_EVENT
from kproxy.pipeline import tables
from kproxy.pipeline.table import Table
from kproxy.pipeline.transforms import silver_groups, silver_partitions, silver_requests
from kproxy.pipeline.transforms.silver_events import as_they_are, wanted


@dataclass(frozen=True, slots=True)
class Recipe:
    """`table` is what `make` makes of the bronze rows that are `wanted`."""

    table: Table
    wanted: Callable[[], SparkColumn]
    make: Callable[[DataFrame], DataFrame]

    def rows(self, bronze: DataFrame) -> DataFrame:
        """The table's rows, with dt, of any bronze rows."""
        return self.make(bronze.where(self.wanted()))


RECIPES = (
    Recipe(tables.CONNECTIONS, wanted(CONNECTION_EVENT), as_they_are(CONNECTION_EVENT, tables.CONNECTIONS)),
    Recipe(tables.REQUESTS, silver_requests.wanted, silver_requests.requests),
    Recipe(tables.PRODUCE_PARTITIONS, silver_partitions.wanted_of_writes, silver_partitions.produce_partitions),
    Recipe(tables.FETCH_PARTITIONS, silver_partitions.wanted_of_reads, silver_partitions.fetch_partitions),
    Recipe(tables.COMMITS, silver_groups.wanted_of_commits, silver_groups.commits),
    Recipe(tables.GROUPS, silver_groups.wanted_of_groups, silver_groups.groups),
    Recipe(tables.RULES, wanted(RULE_EVENT), as_they_are(RULE_EVENT, tables.RULES)),
    Recipe(tables.TOPOLOGY, wanted(TOPOLOGY_EVENT), as_they_are(TOPOLOGY_EVENT, tables.TOPOLOGY)),
    Recipe(tables.RECOVERED, wanted(RECOVERED_EVENT), as_they_are(RECOVERED_EVENT, tables.RECOVERED)),
)
"""One for every silver table. Types that none of them wants stay in bronze."""
