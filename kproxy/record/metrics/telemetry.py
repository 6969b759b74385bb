"""Clients' own metrics (KIP-714), added up over them: their names, and how gauges come together.

Strategy. Counters are lines of a table as other labels have one, so its limit holds for who they are of. A gauge says
how things stand at one client; of all that a series stands for the mean is told, or the largest or smallest where the
metric is one itself. Nothing is kept of a single client: a cell adds up what was said in the interval under way and in
the one before, and every client says it once in each.

Names are chosen by clients, where others than the standard ones are asked for: so many are known at most, and each is
a counter or a gauge for good.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Final

import msgspec

from .table import BIRTHS, OTHER, LabelSeries, label_text
from .telemetry_config import KAFKA, STANDARD, TelemetryConfig

CLIENT_TELEMETRY: Final = "client_telemetry"
"""Label under which it is told how many series there are."""
PREFIX: Final = "kproxy_client_telemetry_"
MOST_NAMES: Final = 300
"""Names of metrics beside the standard ones: Java's clients have some 110 each, of which most are the same."""
MOST_ROWS: Final = 1000
"""Gauges that are taken in one step: a millisecond."""
BETWEEN: Final = "\x1f"
"""Stands between the values of labels in the name of a series; no value has it."""

_NOT_IN_NAMES = re.compile(r"[^a-z0-9]+")


class GaugeRow(msgspec.Struct, frozen=True, array_like=True):
    """Numbers that one or more clients of a series told of a gauge: how many, their sum, the largest, the smallest."""

    series: str
    metric: str
    count: int
    total: float
    largest: float
    smallest: float


class GaugeCell:
    """Numbers of one gauge and series in the interval `period`, and in the one before."""

    __slots__ = ("before", "now", "period")

    def __init__(self, period: int) -> None:
        self.period = period
        self.now: GaugeRow | None = None
        self.before: GaugeRow | None = None

    def move_to(self, period: int) -> None:
        """Go on to this interval; what is older than the one before it is forgotten."""
        if period > self.period:
            self.before = self.now if period == self.period + 1 else None
            self.now, self.period = None, period


class GaugeTotals:
    """Gauges of one process by metric and series: what is told is told a metric at a time, since there may be a hundred
    thousand cells. `interval`: seconds in which each client tells them once."""

    def __init__(self, interval: float) -> None:
        self.interval = interval
        self.cells: dict[str, dict[str, GaugeCell]] = {}

    def use(self, interval: float) -> None:
        """Follow another interval. What was told in the one before is forgotten: each client tells it again."""
        if interval != self.interval:
            self.interval = interval
            self.cells = {}

    def period(self, now: float) -> int:
        return int(now / self.interval)

    def add(self, row: GaugeRow, series: str, now: float) -> None:
        cells, period = self.cells.setdefault(row.metric, {}), self.period(now)
        cell = cells.get(series)
        if cell is None:
            cell = cells[series] = GaugeCell(period)
        cell.move_to(period)
        cell.now = joined_rows(cell.now, row, series)

    def rows_of(self, metric: str, now: float) -> list[GaugeRow]:
        """Return the numbers of one gauge in the interval under way and the one before, a row for each series."""
        cells, period, found = self.cells.get(metric, {}), self.period(now), []
        for series, cell in list(cells.items()):
            cell.move_to(period)
            if cell.now is None and cell.before is None:
                del cells[series]
            elif cell.now is None or cell.before is None:
                found.append(cell.now or cell.before)
            else:
                found.append(joined_rows(cell.before, cell.now, series))
        if not cells:
            self.cells.pop(metric, None)
        return [row for row in found if row is not None]

    def forget(self, series: LabelSeries) -> None:
        for cells in self.cells.values():
            cells.pop(series.name, None)


class TelemetryTotals:
    """Names and gauges of the clients' own metrics in one process; counters are in the table.

    `told`: the gauges of each worker by metric, where several are put together. `refused`: numbers that were not taken,
    counted under the number `born`.
    """

    def __init__(self, config: TelemetryConfig) -> None:
        self.labels: list[str] = list(config.labels)
        self.gauges = GaugeTotals(config.interval)
        self.told: dict[int, dict[str, list[GaugeRow]]] = {}
        self.refused_rows: dict[int, int] = {}
        """Gauges that each worker told last and that were not taken here."""
        self.kinds = {sample_name(name, grows=grows(name)): grows(name) for name in STANDARD}
        self.refused, self.born = 0, next(BIRTHS)

    def admits(self, metric: str, *, grows: bool) -> bool:
        """Return True if a number of this metric is taken, as a counter if it `grows`, else as a gauge; count it if it
        is not."""
        told = self.is_told(metric, grows=grows)
        self.refused += not told
        return told

    def is_told(self, metric: str, *, grows: bool) -> bool:
        """Return True if a metric of this name is told, as a counter if it `grows`, else as a gauge."""
        kind = self.kinds.get(metric)
        if kind is None and len(self.kinds) < MOST_NAMES + len(STANDARD):
            base = metric.removesuffix("_total")
            if {base, base + "_total"} & self.kinds.keys() or (not grows and base != metric):
                kind = not grows  # it would be taken for the other one
            else:
                kind = self.kinds[metric] = grows
        return kind is grows

    def rows_of(self, metric: str, known: Container[str], now: float) -> dict[str, GaugeRow]:
        """Return the rows of one gauge of all workers or of this process, by series; those of series that are not
        `known` are `other`'s."""
        found: dict[str, GaugeRow] = {}
        for rows in (self.gauges.rows_of(metric, now), *(told.get(metric, ()) for told in self.told.values())):
            for row in rows:
                series = row.series if row.series in known else OTHER
                found[series] = joined_rows(found.get(series), row, series)
        return found

    def take_rows(self, worker: int, rows: Sequence[GaugeRow]) -> Iterator[None]:
        """Take the gauges that a worker tells in place of those that it told before, some of them a step."""
        found, refused = dict[str, list[GaugeRow]](), 0
        for first in range(0, len(rows), MOST_ROWS):
            for row in rows[first : first + MOST_ROWS]:
                if self.is_told(row.metric, grows=False):
                    found.setdefault(row.metric, []).append(row)
                else:
                    refused += 1
            yield
        self.refused += max(0, refused - self.refused_rows.get(worker, 0))  # it tells the same ones again and again
        self.told[worker], self.refused_rows[worker] = found, refused

    def forget_worker(self, worker: int) -> None:
        self.told.pop(worker, None)
        self.refused_rows.pop(worker, None)

    def forget_workers(self) -> None:
        """Forget the gauges of all workers, which tell others now."""
        self.told.clear()
        self.refused_rows.clear()


def joined_rows(one: GaugeRow | None, other: GaugeRow, series: str) -> GaugeRow:
    """Return two rows of one gauge as one, of this series."""
    if one is None:
        return msgspec.structs.replace(other, series=series)
    return GaugeRow(
        series, other.metric, one.count + other.count, one.total + other.total, max(one.largest, other.largest),
        min(one.smallest, other.smallest),
    )  # fmt: skip


def grows(name: str) -> bool:
    """Return True if a standard metric is a counter."""
    return name.endswith(".total")


def sample_name(name: str, *, grows: bool) -> str:
    """Return what a client's metric is called here, without the beginning that all have: its name without Kafka's, in
    one spelling; counters end with `_total`."""
    text = _NOT_IN_NAMES.sub("_", name.removeprefix(KAFKA).lower()).strip("_")
    return text.removesuffix("_total") + "_total" if grows else text


def gauge_value(row: GaugeRow) -> float:
    """Return the number that is told of a gauge: the largest or the smallest where it is one, else the mean."""
    if row.metric.endswith("_max"):
        return row.largest
    return row.smallest if row.metric.endswith("_min") else row.total / row.count


def series_name(values: Iterable[str]) -> str:
    """Return the name of the series with these values of its labels, which clients choose. If each of them is the word
    for what has no series, that is meant, so that no two series are told alike."""
    texts = [label_text(one) for one in values]
    return OTHER if texts and all(one == OTHER for one in texts) else BETWEEN.join(texts)


def label_values(series: str, number: int) -> list[str]:
    if series == OTHER:
        return [OTHER] * number
    return series.split(BETWEEN) if number else []
