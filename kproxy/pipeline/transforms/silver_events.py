"""Silver tables whose rows are events as they are: connections, rules, topology, recovered."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame

from kproxy.events.column import EventType
from kproxy.pipeline.table import Table
from kproxy.pipeline.transforms.reading import read, shaped


def as_they_are(event: EventType, table: Table) -> Callable[[DataFrame], DataFrame]:
    """A transform of bronze rows of this type to rows of the table."""

    def rows(lines: DataFrame) -> DataFrame:
        return shaped(read(lines, event.columns), table)

    return rows
