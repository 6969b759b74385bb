"""Silver to gold: partials of the days that have changed, and the answers over all days.

Strategy: the days are told apart by the silver batches that they are made of. Of the changed days each large silver
table is summed once, the sums are cached on purpose (many answers are made of them), and each answer's partials are
written day by day. Then each answer is combined from all its partials, which are small, written, and swapped.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from datetime import date
from typing import Any

from pyspark import StorageLevel

from kproxy.lake.answer import GoldAnswer
from kproxy.lake.gold_lake import ANSWER_TRANSFORMS, GoldLake, GoldState, conform, revision
from kproxy.lake.gold_tables import ANSWERS
from kproxy.lake.spark import SMALL, Run, side_by_side, suited_to
from kproxy.lake.tables import TABLES
from kproxy.lake.transforms.gold.bases import Bases, bases

DAYS_AT_ONCE = 31
"""Days whose sums are cached together: what a kill loses at most, and what bounds the cache."""
CACHED = (
    *("requests", "minutes", "ruled", "writes", "reads", "memberships", "commit_names"),
    *("log_writes", "log_answers", "log_batches"),
)


@dataclass(slots=True)
class GoldMade:
    """Result of the job: the days and answers that were made anew, and the seconds of each step."""

    days: list[date] = field(default_factory=list)
    combined: bool = False
    seconds: dict[str, float] = field(default_factory=dict)


def gold(run: Run, *, again: bool = False) -> GoldMade:
    """Make partials of the days that have changed, and the answers.

    `again`: everything, as after silver was typed again.
    """
    lake, done = GoldLake(run.lake), GoldMade()
    state, silver = GoldState(revision()) if again else lake.state(), lake.silver_days()
    changed = [day for day, batches in silver.items() if state.days.get(day) != batches]
    for some in _in_parts(changed):
        days = [date.fromisoformat(day) for day in some]
        run.tell(f"gold: {some[0]} to {some[-1]}, {len(days)} of {len(changed)} days that have changed")
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
    """Yield the sums in memory, or on disk where they do not fit, and release them at the end."""
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
