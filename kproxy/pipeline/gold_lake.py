"""Where gold lies, and which days it was made of.

    <lake>/gold/daily/<answer>/dt=…/   partials, one folder a day
    <lake>/gold/<answer>/              the answer over all days
    <lake>/gold/daily/_days.json       of each day the silver batches that its partials were made of

Strategy: `_days.json` is written after the partials that it speaks of, so a run that was killed does its days again. A
day whose silver has gone (retention) keeps its partials.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import date
from hashlib import blake2s
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from kproxy.pipeline.answer import Answer
from kproxy.pipeline.lake import Lake
from kproxy.pipeline.ledger import Ledger
from kproxy.pipeline.schema import struct
from kproxy.pipeline.tables import TABLES
from kproxy.pipeline.transforms.gold.answers import HOW

REVISION = 1
"""Counts up when a transform gives other numbers for the same silver: all partials are then made anew."""

Batches = Mapping[str, list[str]]
"""Silver table → its batches on one day."""


@dataclass(slots=True)
class Days:
    """What gold was made of. `combined`: what the answers over all days were made of."""

    revision: str = ""
    days: dict[str, Batches] = field(default_factory=dict)
    combined: str = ""

    def made_of(self) -> str:
        """A short text that changes when any day does."""
        return blake2s(json.dumps([self.revision, self.days], sort_keys=True).encode()).hexdigest()


def revision() -> str:
    """Changes when the partials' columns or their making do."""
    shapes = {name: how.partial.ddl for name, how in HOW.items()}
    return f"{REVISION}-{blake2s(json.dumps(shapes).encode(), digest_size=8).hexdigest()}"


@dataclass(frozen=True, slots=True)
class GoldLake:
    """Gold in a lake."""

    lake: Lake

    def daily_path(self, name: str) -> str:
        return f"{self.lake.path}/gold/daily/{name}"

    def answer_path(self, name: str) -> str:
        return f"{self.lake.path}/gold/{name}"

    def made(self) -> Days:
        """What is there; after a change of the transforms, nothing."""
        if not self.lake.files.exists(self._state):
            return Days(revision())
        found: dict[str, Any] = json.loads(self.lake.files.read(self._state))
        return Days(**found) if found["revision"] == revision() else Days(revision())

    def note(self, days: Days) -> None:
        """Remember what is there now."""
        self.lake.files.write(self._state, json.dumps(asdict(days), indent=1, sort_keys=True))

    def silver_days(self) -> dict[str, Batches]:
        """Of each day the batches of each silver table. A batch that silver has not finished is marked: once it has,
        the day has changed."""
        finished = set(Ledger(self.lake, "silver").batches())
        found: dict[str, dict[str, list[str]]] = {}
        for table in TABLES:
            for day in self.lake.days(table):
                batches = self.lake.batches(table, day)
                marked = [batch if batch in finished else f"{batch} (not finished)" for batch in batches]
                found.setdefault(day.isoformat(), {})[table.name] = marked
        return {day: batches for day, batches in sorted(found.items()) if any(batches.values())}

    def replace_days(self, name: str, partials: DataFrame, days: Iterable[date]) -> None:
        """Make `partials` all there is of these days. Rows of a day are brought together, since they are few."""
        path = self.daily_path(name)
        staging = f"{path}/_staging"
        partials.hint("rebalance", F.col("dt")).write.mode("overwrite").partitionBy("dt").parquet(staging)
        for day in days:
            self.lake.files.delete(f"{path}/dt={day}")
            if self.lake.files.exists(f"{staging}/dt={day}"):
                self.lake.files.rename(f"{staging}/dt={day}", f"{path}/dt={day}")
        self.lake.files.delete(staging)

    def partials(self, name: str, first: date | None = None, last: date | None = None) -> DataFrame:
        """Daily partials of an answer, from `first` to `last`, both included."""
        schema, path = HOW[name].partial.ddl, self.daily_path(name)
        if not self.lake.files.glob(f"{path}/dt=*"):
            return self.lake.spark.createDataFrame([], schema)
        rows = self.lake.spark.read.schema(schema).parquet(path)
        rows = rows if first is None else rows.where(F.col("dt") >= F.lit(first))
        return rows if last is None else rows.where(F.col("dt") <= F.lit(last))

    def replace(self, name: str, rows: DataFrame) -> None:
        """Make `rows` the answer: written whole beside it, then put in its place."""
        staging = f"{self.lake.path}/gold/_staging/{name}"
        rows.write.mode("overwrite").parquet(staging)
        self.lake.files.delete(self.answer_path(name))
        self.lake.files.rename(staging, self.answer_path(name))

    def read(self, answer: Answer) -> DataFrame:
        """An answer over all days; no rows if it has not been made."""
        schema = struct(answer.columns)
        if not self.lake.files.exists(self.answer_path(answer.name)):
            return self.lake.spark.createDataFrame([], schema)
        return self.lake.spark.read.schema(schema).parquet(self.answer_path(answer.name))

    @property
    def _state(self) -> str:
        return f"{self.lake.path}/gold/daily/_days.json"
