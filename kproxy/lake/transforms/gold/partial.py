"""Daily partials: which columns an answer keeps of a day, and how those of several days merge.

Strategy: a partial has dt, key columns, and measures. Each measure names its way of merging, which is associative and
commutative, so days may come late, twice as far as they are recomputed, or in any order. Nothing that cannot be merged
(a mean, a percentile, a distinct count) is ever kept; sums, buckets and sketches are, and the answer is made of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from kproxy.record.events.schema import LATENCY_BOUNDS_MS

BUCKETS = len(LATENCY_BOUNDS_MS) + 1
"""Buckets of a latency histogram; the last has no upper bound."""
SKETCH_SIZE = 12
"""log2 of a HyperLogLog sketch's slots: 4 KB at most, and a standard error of 1.6 %."""
MOST_NAMES = 10
"""Names that are told of those that were met, the first in alphabetical order: enough to know whom to ask."""


@dataclass(frozen=True, slots=True)
class Merge:
    """Merging of a measure: Spark's type of it, and the aggregate that makes one value of several."""

    type: str
    merge: Callable[[str], Column]


def cast(name: str, kind: str, value: str | None = None) -> str:
    """Return SQL for a column of that name and type: the column as it is, or `value`. Of many columns, text is made
    ten times as fast as PySpark's expressions, each of which is several questions to Java."""
    return f"cast({f'`{name}`' if value is None else value} as {kind}) as `{name}`"


def _buckets(name: str) -> Column:
    return F.expr(f"array({', '.join(f'sum(get(`{name}`, {number}))' for number in range(BUCKETS))})")


def first_names(names: Column) -> Column:
    """Return the first `MOST_NAMES` of an array of names, each once; an empty array for none."""
    return F.slice(F.array_sort(F.array_distinct(F.coalesce(names, F.array().cast("array<string>")))), 1, MOST_NAMES)


def names_of(column: str) -> Column:
    """Aggregate the names in a column, as `NAMES` keeps them."""
    return first_names(F.collect_set(column))


def sketch_of(column: str | Column) -> Column:
    """Aggregate a sketch of the distinct values in a column, as `SKETCH` keeps it."""
    return F.hll_sketch_agg(column, SKETCH_SIZE)


TOTAL = Merge("bigint", F.sum)
AMOUNT = Merge("double", F.sum)
FIRST = Merge("timestamp", F.min)
LAST = Merge("timestamp", F.max)
LARGEST = Merge("bigint", F.max)
LONGEST = Merge("double", F.max)
EVER = Merge("boolean", F.max)
HISTOGRAM = Merge("array<bigint>", _buckets)
SKETCH = Merge("binary", F.hll_union_agg)
NAMES = Merge("array<string>", lambda name: first_names(F.flatten(F.collect_set(name))))
NUMBERS = Merge("array<int>", lambda name: F.array_sort(F.array_distinct(F.flatten(F.collect_list(name)))))
LATEST = Merge("struct<time:timestamp,value:bigint>", F.max)
EARLIEST = Merge("struct<time:timestamp,value:bigint>", F.min)
LATEST_TEXT = Merge("struct<time:timestamp,value:string>", F.max)
PEAK = Merge("struct<value:bigint,time:timestamp>", F.max)

KEY_TYPES = {
    "node": "int",
    "version": "int",
    "acks": "int",
    "partition": "int",
    "minute": "timestamp",
    "day": "date",
}
"""Spark's types of key columns; all others are strings."""


@dataclass(frozen=True, slots=True)
class Partial:
    """Columns that an answer keeps of a day: `keys` tell rows apart, `measures` say how the other columns merge."""

    keys: tuple[str, ...]
    measures: Mapping[str, Merge]

    @property
    def types(self) -> dict[str, str]:
        """Return Spark's types by column, in the order on disk; dt, which is the path, is not in it."""
        keys = {key: KEY_TYPES.get(key, "string") for key in self.keys}
        return keys | {name: measure.type for name, measure in self.measures.items()}

    @property
    def ddl(self) -> str:
        """Return the schema of the daily table as Spark reads it, dt included."""
        return ", ".join(f"`{name}` {kind}" for name, kind in (self.types | {"dt": "date"}).items())

    def select(self, rows: DataFrame) -> DataFrame:
        """Select dt and the columns in their order and types: what `daily` ends with."""
        return rows.selectExpr("dt", *[cast(name, kind) for name, kind in self.types.items()])

    def gathered(self, *parts: DataFrame) -> DataFrame:
        """Merge parts that have some of the columns each, with dt, into one daily partial."""
        shaped = [self._with_all_columns(part) for part in parts]
        whole = reduce(DataFrame.unionByName, shaped)
        return self.select(whole.groupBy("dt", *self.keys).agg(*self._merging()))

    def merged(self, partials: DataFrame) -> DataFrame:
        """Merge days into one row for each key; without dt."""
        return partials.groupBy(*self.keys).agg(*self._merging())

    def _merging(self) -> list[Column]:
        return [measure.merge(name).alias(name) for name, measure in self.measures.items()]

    def _with_all_columns(self, part: DataFrame) -> DataFrame:
        there = set(part.columns)
        columns = [cast(name, kind, None if name in there else "null") for name, kind in self.types.items()]
        return part.selectExpr("dt", *columns)


def latest(time: str, value: str) -> Column:
    """Aggregate the value that came last, as LATEST keeps it; a null value counts for nothing."""
    return F.max(F.when(F.col(value).isNotNull(), F.struct(F.col(time).alias("time"), F.col(value).alias("value"))))


def ratio(part: str, whole: str) -> Column:
    """Return part / whole as a column; null where there is no whole."""
    return F.try_divide(F.col(part), F.col(whole)).cast("double")
