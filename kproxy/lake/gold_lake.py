"""Gold tables in a lake, and the job that makes them from silver.

    <lake>/gold/daily/<answer>/dt=…/   partials, one folder a day
    <lake>/gold/<answer>/              the table over all days
    <lake>/gold/daily/_days.json       for each day, the silver batches that its partials were made of

`_days.json` is written after the partials that it describes, so a killed run repeats its days. A day whose silver was
deleted by retention keeps its partials.

A day has changed if its silver batches differ from those in `_days.json`. For the changed days, each large silver table
is aggregated once, and the aggregates are cached. The partials of each table are written day by day. Then each table is
combined from all its partials and swapped in.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import date
from hashlib import blake2s
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from kproxy.base.errors import plural
from kproxy.lake.gold_tables import ANSWERS
from kproxy.lake.lake import BatchLedger, Lake, spark_type, struct
from kproxy.lake.spark import SMALL, Run, side_by_side, suited_to
from kproxy.lake.tables import TABLES
from kproxy.lake.transforms.gold.aggregates import Bases, bases, cast
from kproxy.lake.transforms.gold.client_telemetry import CLIENT_METRICS
from kproxy.lake.transforms.gold.clients import EMPTY_FETCHES, KAFKA4_READINESS, PRODUCER_HYGIENE, ZONES
from kproxy.lake.transforms.gold.groups import GROUP_HEALTH, GROUP_LAG
from kproxy.lake.transforms.gold.health import (
    CLIENT_LATENCY,
    ERRORS_AND_DENIALS,
    LATENCY,
    RULES_EFFECT,
    STORMS,
    THROTTLED,
)
from kproxy.lake.transforms.gold.topics import (
    DORMANT_CLIENTS,
    PARTITION_SKEW,
    TOPIC_CONSUMERS,
    TOPIC_PRODUCERS,
    TRAFFIC,
    UNUSED_TOPICS,
)
from kproxy.lake.transforms.gold.violations import VIOLATIONS

from .answers import GoldAnswer

ANSWER_TRANSFORMS = {
    "traffic": TRAFFIC,
    "zones": ZONES,
    "topic_producers": TOPIC_PRODUCERS,
    "topic_consumers": TOPIC_CONSUMERS,
    "kafka4_readiness": KAFKA4_READINESS,
    "unused_topics": UNUSED_TOPICS,
    "dormant_clients": DORMANT_CLIENTS,
    "latency": LATENCY,
    "client_latency": CLIENT_LATENCY,
    "client_metrics": CLIENT_METRICS,
    "throttled": THROTTLED,
    "errors_and_denials": ERRORS_AND_DENIALS,
    "group_health": GROUP_HEALTH,
    "group_lag": GROUP_LAG,
    "producer_hygiene": PRODUCER_HYGIENE,
    "partition_skew": PARTITION_SKEW,
    "empty_fetches": EMPTY_FETCHES,
    "rules_effect": RULES_EFFECT,
    "storms": STORMS,
    "violations": VIOLATIONS,
}
"""In the order of the report."""


def conform(rows: DataFrame, answer: GoldAnswer) -> DataFrame:
    """Return rows with exactly the columns that the answer declares; Spark's error names a column that is missing."""
    return rows.selectExpr(*[cast(column.name, spark_type(column).simpleString()) for column in answer.columns])


REVISION = 2
"""Increment when a transform computes other numbers from the same silver; all partials are then recomputed."""

BatchesByTable = Mapping[str, list[str]]
"""Batches on one day by silver table."""


@dataclass(slots=True)
class GoldState:
    """State of gold: the silver batches of each day's partials. `combined`: digest of the days in the answers."""

    revision: str = ""
    days: dict[str, BatchesByTable] = field(default_factory=dict)
    combined: str = ""

    def made_of(self) -> str:
        """Return a digest that changes when any day does."""
        return blake2s(json.dumps([self.revision, self.days], sort_keys=True).encode()).hexdigest()


def revision() -> str:
    """Return a text that changes with the partials' columns or REVISION."""
    shapes = {name: how.partial.ddl for name, how in ANSWER_TRANSFORMS.items()}
    return f"{REVISION}-{blake2s(json.dumps(shapes).encode(), digest_size=8).hexdigest()}"


@dataclass(frozen=True, slots=True)
class GoldLake:
    """Gold tables of one lake."""

    lake: Lake

    def daily_path(self, name: str) -> str:
        return f"{self.lake.path}/gold/daily/{name}"

    def answer_path(self, name: str) -> str:
        return f"{self.lake.path}/gold/{name}"

    def state(self) -> GoldState:
        """Return the stored state; an empty one after a change of the transforms."""
        if not self.lake.files.exists(self._state):
            return GoldState(revision())
        saved: dict[str, Any] = json.loads(self.lake.files.read(self._state))
        return GoldState(**saved) if saved["revision"] == revision() else GoldState(revision())

    def save_state(self, days: GoldState) -> None:
        self.lake.files.write(self._state, json.dumps(asdict(days), indent=1, sort_keys=True))

    def silver_days(self) -> dict[str, BatchesByTable]:
        """Return the batches of each silver table by day.

        A batch that silver has not finished is marked, so the day changes when it is finished.
        """
        finished = set(BatchLedger(self.lake, "silver").batches())
        by_day: dict[str, dict[str, list[str]]] = {}
        for table in TABLES:
            for day in self.lake.days(table):
                batches = self.lake.batches(table, day)
                marked = [batch if batch in finished else f"{batch} (not finished)" for batch in batches]
                by_day.setdefault(day.isoformat(), {})[table.name] = marked
        return {day: batches for day, batches in sorted(by_day.items()) if any(batches.values())}

    def size(self) -> int:
        """Return the bytes of all gold tables."""
        return self.lake.files.size(f"{self.lake.path}/gold")

    def silver_size(self, days: Iterable[date], enough: int) -> int:
        """Return the bytes of silver tables on these days. Counting ends at `enough` bytes."""
        size = 0
        for day in days:
            for table in TABLES:
                size += self.lake.files.size(f"{self.lake.table_path(table)}/dt={day}")
                if size >= enough:
                    return size
        return size

    def replace_days(self, name: str, partials: DataFrame, days: Iterable[date]) -> None:
        """Replace the partials of these days. Each day's rows are shuffled together, since they are few."""
        path = self.daily_path(name)
        staging = f"{path}/_staging"
        partials.hint("rebalance", F.col("dt")).write.mode("overwrite").partitionBy("dt").parquet(staging)
        for day in days:
            self.lake.files.delete(f"{path}/dt={day}")
            if self.lake.files.exists(f"{staging}/dt={day}"):
                self.lake.files.rename(f"{staging}/dt={day}", f"{path}/dt={day}")
        self.lake.files.delete(staging)

    def partials(self, name: str, first: date | None = None, last: date | None = None) -> DataFrame:
        """Return the daily partials of an answer, from `first` to `last`, both inclusive."""
        schema, path = ANSWER_TRANSFORMS[name].partial.ddl, self.daily_path(name)
        if not self.lake.files.glob(f"{path}/dt=*"):
            return self.lake.spark.createDataFrame([], schema)
        rows = self.lake.spark.read.schema(schema).parquet(path)
        rows = rows if first is None else rows.where(F.col("dt") >= F.lit(first))
        return rows if last is None else rows.where(F.col("dt") <= F.lit(last))

    def replace(self, name: str, rows: DataFrame) -> None:
        """Replace the answer's rows: write them to a second folder, then swap it in."""
        staging = f"{self.lake.path}/gold/_staging/{name}"
        rows.write.mode("overwrite").parquet(staging)
        self.lake.files.delete(self.answer_path(name))
        self.lake.files.rename(staging, self.answer_path(name))

    def read(self, answer: GoldAnswer) -> DataFrame:
        """Return an answer over all days; no rows if it has not been made."""
        schema = struct(answer.columns)
        if not self.lake.files.exists(self.answer_path(answer.name)):
            return self.lake.spark.createDataFrame([], schema)
        return self.lake.spark.read.schema(schema).parquet(self.answer_path(answer.name))

    @property
    def _state(self) -> str:
        return f"{self.lake.path}/gold/daily/_days.json"


DAYS_AT_ONCE = 31
"""Days whose aggregates are cached together. It bounds the cache and the work lost by a kill."""
CACHED = (
    *("requests", "minutes", "ruled", "writes", "reads", "memberships", "commit_names"),
    *("log_writes", "log_answers", "log_batches"),
)


@dataclass(slots=True)
class GoldMade:
    """Result of the job: recomputed days and answers, and the seconds of each step."""

    days: list[date] = field(default_factory=list)
    combined: bool = False
    seconds: dict[str, float] = field(default_factory=dict)


def gold(run: Run, *, again: bool = False) -> GoldMade:
    """Make partials of the changed days, and the answers.

    `again`: all days, for silver that was rebuilt.
    """
    lake, done = GoldLake(run.lake), GoldMade()
    state, silver = GoldState(revision()) if again else lake.state(), lake.silver_days()
    changed = [day for day, batches in silver.items() if state.days.get(day) != batches]
    for some in _in_parts(changed):
        days = [date.fromisoformat(day) for day in some]
        run.tell(f"gold: {some[0]} to {some[-1]}, {len(days)} of {plural(len(changed), 'changed day')}")
        _make_days(run, lake, days, done)
        state.days = {**state.days, **{day: silver[day] for day in some}}
        lake.save_state(state)
        done.days += days
    if state.combined != state.made_of():
        _combine(run, lake, done)
        state.combined = state.made_of()
        lake.save_state(state)
        done.combined = True
    return done


def _in_parts(days: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(days), DAYS_AT_ONCE):
        yield days[start : start + DAYS_AT_ONCE]


def _make_days(run: Run, lake: GoldLake, days: list[date], done: GoldMade) -> None:
    def make(answer: GoldAnswer) -> None:
        with _timed(f"days of {answer.name}", run, done):
            lake.replace_days(answer.name, ANSWER_TRANSFORMS[answer.name].daily(sums), days)

    with suited_to(run.spark, lake.silver_size(days, SMALL)) as read:
        silver = {table.name: read(run.lake.read(table, days)) for table in TABLES}
        with _cached(bases(silver)) as sums:
            side_by_side(make, ANSWERS)


def _combine(run: Run, lake: GoldLake, done: GoldMade) -> None:
    def combine(answer: GoldAnswer) -> None:
        with _timed(answer.name, run, done):
            rows = ANSWER_TRANSFORMS[answer.name].combine(read(lake.partials(answer.name)))
            lake.replace(answer.name, conform(rows, answer))

    with suited_to(run.spark, lake.size()) as read:
        side_by_side(combine, ANSWERS)


@contextmanager
def _cached(sums: Bases) -> Iterator[Bases]:
    """Yield the aggregates cached in memory, or on disk if they do not fit; release them at the end."""
    kept: dict[str, Any] = {}
    for base in fields(sums):
        if base.name in CACHED:
            kept[base.name] = getattr(sums, base.name).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        yield replace(sums, **kept)
    finally:
        for rows in kept.values():
            rows.unpersist()


@contextmanager
def _timed(what: str, run: Run, done: GoldMade) -> Iterator[None]:
    began = time.monotonic()
    yield
    done.seconds[what] = done.seconds.get(what, 0.0) + time.monotonic() - began
    run.tell(f"gold: {what}, {done.seconds[what]:.1f} s")
