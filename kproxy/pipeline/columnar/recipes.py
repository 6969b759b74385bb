"""Recipes of the silver tables: which lines each is made of, and how."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from kproxy.events.column import Column
from kproxy.events.schema import (
    CONNECTION_EVENT,
    RECOVERED_EVENT,
    REQUEST_EVENT,
    RULE_EVENT,
    SUMMARY_EVENT,
    TOPOLOGY_EVENT,
)
from kproxy.pipeline import silver_tables
from kproxy.pipeline.columnar import partitions, requests
from kproxy.pipeline.columnar.reading import read
from kproxy.pipeline.columnar.rows import ArrowColumns, shaped
from kproxy.pipeline.lake_table import LakeTable
from kproxy.pipeline.transforms import kinds

OF_BRONZE = ("source", "event_id", "time")
"""Columns that every table has from bronze."""

MakeRows = Callable[[ArrowColumns, LakeTable], Any]
"""Makes rows of a table of columns of events."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """Recipe of a table that is made of bronze rows of some kinds: how, is said for each kind."""

    table: LakeTable
    make: Mapping[str, MakeRows]


RECIPES = (
    Recipe(silver_tables.CONNECTIONS, {kinds.CONNECTION: shaped}),
    Recipe(silver_tables.REQUESTS, {**dict.fromkeys(kinds.REQUESTS, requests.single), kinds.SUMMARY: requests.summed}),
    Recipe(silver_tables.PRODUCE_PARTITIONS, {kinds.WRITE: partitions.written, kinds.SUMMARY_WRITE: partitions.summed}),
    Recipe(silver_tables.FETCH_PARTITIONS, {kinds.READ: partitions.read, kinds.SUMMARY_READ: partitions.summed}),
    Recipe(silver_tables.COMMITS, {kinds.COMMIT: partitions.each}),
    Recipe(silver_tables.GROUPS, {kinds.GROUP: shaped}),
    Recipe(silver_tables.RULES, {kinds.RULE: shaped}),
    Recipe(silver_tables.TOPOLOGY, {kinds.TOPOLOGY: shaped}),
    Recipe(silver_tables.RECOVERED, {kinds.RECOVERED: shaped}),
)
"""One for every silver table. Types that none of them wants stay in bronze."""

_EVENTS = {
    **dict.fromkeys(kinds.REQUESTS, REQUEST_EVENT),
    **dict.fromkeys((kinds.SUMMARY, kinds.SUMMARY_WRITE, kinds.SUMMARY_READ), SUMMARY_EVENT),
    kinds.CONNECTION: CONNECTION_EVENT,
    kinds.RULE: RULE_EVENT,
    kinds.TOPOLOGY: TOPOLOGY_EVENT,
    kinds.RECOVERED: RECOVERED_EVENT,
}
_ALSO = ("topics", "first", "records", "bytes", "outcome", "error_level")
"""Columns that recipes look at beside those of their tables."""


def rows_of(kind: str, lines: Any, of_bronze: ArrowColumns, wanted: frozenset[str]) -> Iterator[tuple[LakeTable, Any]]:
    """Yield the tables of these names that lines of a kind go into, with the rows. The lines are read once."""
    recipes = [recipe for recipe in RECIPES if kind in recipe.make and recipe.table.name in wanted]
    if not recipes:
        return
    data = read(lines, columns_of(kind))
    columns = {name: data[name].combine_chunks() for name in data.column_names} | of_bronze
    for recipe in recipes:
        yield recipe.table, recipe.make[kind](columns, recipe.table)


def kinds_of(table: LakeTable) -> Sequence[str]:
    """Return the kinds of lines that go into a table; of IDS, all."""
    return next((tuple(recipe.make) for recipe in RECIPES if recipe.table is table), kinds.KINDS)


@cache
def columns_of(kind: str) -> Sequence[Column]:
    """Return the columns that recipes look at in events of a kind."""
    names = {name for recipe in RECIPES if kind in recipe.make for name in recipe.table.names}
    return tuple(column for column in _EVENTS[kind].columns if column.name in names.union(_ALSO))
