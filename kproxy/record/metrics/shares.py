"""Totals by label that workers tell, put together by the process that is asked for metrics.

Strategy. A worker tells its totals as they stand, with names that it chose itself. Here what is new since it told them
last is added to tables like its own, so the limit holds once more for all of them together; a name without room here
counts as `other` from then on. A worker that is started again begins at zero, which makes no counter fall: what was
told by the process before stays. A name may lose its series in a worker, too, and get another one that begins at zero:
series are told apart by numbers, since the second may have counted more than the first by the time it is asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import msgspec

from .lag import CommitRow, EndRow
from .table import LabelLine
from .telemetry import CLIENT_TELEMETRY, GaugeRow
from .totals import LabelTotals

PARTITIONS = "partition"
"""Word for the partitions of groups that were forgotten, where overflow is told by label."""
POINTS = "point"
"""Word for the numbers of clients that were not taken, where workers tell their overflow."""


MOST_ROWS = 1000
"""Partitions that are taken in one step: two milliseconds."""


class NameShare(msgspec.Struct, frozen=True, array_like=True):
    """Numbers of one name: (name of the sample, its second label, number) each. `born`: number of the series, which
    another one of that name does not have."""

    born: int
    name: str
    lines: list[tuple[str, str, float]]


class LabelShare(msgspec.Struct, frozen=True, array_like=True):
    """Totals of one worker: by label, its names and its overflow, with the number of what has counted that; offsets of
    groups, and ends of partitions; what clients tell of how things stand. `labels`: those of what clients tell."""

    names: dict[str, list[NameShare]] = {}
    overflow: dict[str, tuple[int, float]] = {}
    commits: list[CommitRow] = []
    ends: list[EndRow] = []
    gauges: list[GaugeRow] = []
    labels: list[str] = []


def share_of(totals: LabelTotals, now: float = 0.0) -> LabelShare:
    """Return the totals of this process in a form that can be sent."""
    made: list[LabelShare] = []
    for _ in make_share(totals, now, made):
        pass
    return made[0]


def make_share(totals: LabelTotals, now: float, into: list[LabelShare]) -> Iterator[None]:
    """Put the totals of this process into a list, in a form that can be sent; a name or a gauge a step, since clients
    may have named a hundred thousand numbers."""
    lags, telemetry = totals.lags, totals.telemetry
    births = {label: table.other.born for label, table in totals.tables.items()}
    if lags is not None:
        births[PARTITIONS] = lags.born
    overflow = {label: (births[label], number) for label, number in overflows(totals).items()}
    if telemetry is not None:
        overflow[POINTS] = telemetry.born, float(telemetry.refused)
    names: dict[str, list[NameShare]] = {}
    for label, table in list(totals.tables.items()):
        found = names[label] = []
        for series in table.everything():
            lines = [(*line, number) for line, number in series.values.items()]
            found.append(NameShare(series.born, series.name, lines))
            yield
    gauges: list[GaugeRow] = []
    for metric in [] if telemetry is None else list(telemetry.gauges.cells):
        assert telemetry is not None
        gauges += telemetry.gauges.rows_of(metric, now)
        yield
    into.append(
        LabelShare(
            names,
            overflow,
            [] if lags is None else lags.commit_rows(),
            [] if lags is None else lags.end_rows(),
            gauges,
            [] if telemetry is None else telemetry.labels,
        )
    )


def overflows(totals: LabelTotals) -> dict[str, float]:
    """Return what was counted as `other` for want of room, by label, and the partitions that were forgotten."""
    found = {label: table.overflow for label, table in totals.tables.items()}
    if totals.lags is not None:
        found[PARTITIONS] = float(totals.lags.forgotten)
    return found


class ToldShares:
    """Totals of all workers. `told`: numbers that each of them told last, by the number of the series. `begun`: how
    many processes each of them has been so far."""

    def __init__(self, totals: LabelTotals) -> None:
        self.totals = totals
        self.told: dict[int, dict[int, dict[LabelLine, float]]] = {}
        self.overflow: dict[int, dict[str, tuple[int, float]]] = {}
        self.begun: Counter[int] = Counter()

    def begins(self, worker: int) -> None:
        """Take note that a worker counts from zero, since another process is in its place."""
        self.begun[worker] += 1
        self.told.pop(worker, None)
        self.overflow.pop(worker, None)
        if self.totals.telemetry is not None:
            self.totals.telemetry.forget_worker(worker)

    def take(self, worker: int, share: LabelShare, now: float) -> Iterator[None]:
        """Add what a worker has counted since it told last, a name or some partitions a step."""
        totals = self.totals
        totals.tick(now)
        before = self.told.get(worker, {})
        latest: dict[int, dict[LabelLine, float]] = {}
        self.told[worker] = latest
        for label, names in share.names.items():
            for one in names:
                if label == CLIENT_TELEMETRY and not self.is_alike(share):  # looked at each time: a step may be long
                    break
                known = before.get(one.born, {})
                lines = {(sample, second): number for sample, second, number in one.lines}
                latest[one.born] = lines
                new = [(line, grown(known.get(line, 0.0), number)) for line, number in lines.items()]
                if any(number for _, number in new):
                    totals.add(label, one.name, new, now)
                yield
        self.take_overflow(worker, share.overflow)
        telemetry = totals.telemetry
        if telemetry is not None and self.is_alike(share):
            yield from telemetry.take_rows(worker, share.gauges)
            for series in {row.series for row in share.gauges} if telemetry is totals.telemetry else ():
                totals.tables[CLIENT_TELEMETRY].add(series, (), now, weight=0, count=0)
            yield
        for first in range(0, max(len(share.commits), len(share.ends)), MOST_ROWS):
            if totals.lags is None:
                break
            rows = slice(first, first + MOST_ROWS)
            totals.lags.take_rows(share.commits[rows], share.ends[rows], totals.tables["group"].series)
            yield

    def is_alike(self, share: LabelShare) -> bool:
        """Return True if a worker tells of its clients by the labels that are told here, not by those of another
        config."""
        return self.totals.telemetry is not None and self.totals.telemetry.labels == share.labels

    def take_overflow(self, worker: int, overflow: dict[str, tuple[int, float]]) -> None:
        before, self.overflow[worker] = self.overflow.get(worker, {}), overflow
        for label, (born, number) in overflow.items():
            known = before.get(label, (0, 0.0))
            new = grown(known[1] if known[0] == born else 0.0, number)
            if label in self.totals.tables:
                self.totals.tables[label].overflow += new
            elif label == PARTITIONS and self.totals.lags is not None:
                self.totals.lags.forgotten += int(new)
            elif label == POINTS and self.totals.telemetry is not None:
                self.totals.telemetry.refused += int(new)


def grown(before: float, number: float) -> float:
    """Return how much a counter has grown; it has begun anew if it is smaller than before."""
    return number - before if number >= before else number
