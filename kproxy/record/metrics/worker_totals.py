"""Totals by label that workers report, merged by the process that serves metrics, as Prometheus metrics.

A worker reports its current totals, with names that it chose itself. The differences since its last report are added to
tables like its own. So the limit also holds for all workers together, and later counts of a name without room are
`other`. A restarted worker starts at zero. Counters do not fall: the totals of the previous process stay. A name may
also lose its series in a worker and get a new one that starts at zero. Series have numbers, since the second may have
counted more than the first at the next report.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, SummaryMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from .client_telemetry import CLIENT_TELEMETRY, PREFIX, GaugeRow, gauge_value, label_values
from .table import LabelLine, LabelTable
from .totals import METRICS, CommitRow, EndRow, LabelledMetric, LabelTotals

PARTITIONS = "partition"
"""Key of evicted partitions of groups in overflow by label."""
POINTS = "point"
"""Key of rejected client metrics in the workers' overflow."""


MOST_ROWS = 1000
"""Partitions that are taken in one step: two milliseconds."""


class NameShare(msgspec.Struct, frozen=True, array_like=True):
    """Numbers of one name: (name of the sample, its second label, number) each. `born`: number of the series, which
    another one of that name does not have."""

    born: int
    name: str
    lines: list[tuple[str, str, float]]


class LabelShare(msgspec.Struct, frozen=True, array_like=True):
    """Totals of one worker: by label, its names and its overflow, with the number of the counting table; offsets of
    groups, and ends of partitions; the clients' gauges. `labels`: labels of the client metrics."""

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
    """Return the counts of `other` for lack of room, by label, and the evicted partitions."""
    found = {label: table.overflow for label, table in totals.tables.items()}
    if totals.lags is not None:
        found[PARTITIONS] = float(totals.lags.forgotten)
    return found


class WorkerTotals:
    """Totals of all workers. `reported`: last reported numbers of each worker, by the number of the series.
    `begun`: number of processes so far, by worker."""

    def __init__(self, totals: LabelTotals) -> None:
        self.totals = totals
        self.reported: dict[int, dict[int, dict[LabelLine, float]]] = {}
        self.overflow: dict[int, dict[str, tuple[int, float]]] = {}
        self.begun: Counter[int] = Counter()

    def begins(self, worker: int) -> None:
        """Take note that a worker counts from zero, since another process is in its place."""
        self.begun[worker] += 1
        self.reported.pop(worker, None)
        self.overflow.pop(worker, None)
        if self.totals.telemetry is not None:
            self.totals.telemetry.forget_worker(worker)

    def take(self, worker: int, share: LabelShare, now: float) -> Iterator[None]:
        """Add the counts of a worker since its last report, a name or some partitions a step."""
        totals = self.totals
        totals.tick(now)
        before = self.reported.get(worker, {})
        latest: dict[int, dict[LabelLine, float]] = {}
        self.reported[worker] = latest
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
        """Return True if a worker reports client metrics by the labels that are used here, not by those of another
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
    """Return the growth of a counter; a smaller value is a restart."""
    return number - before if number >= before else number


class LabelCollector(Collector):
    """Collector of the totals by label, and of how full their tables are."""

    def __init__(self, totals: LabelTotals) -> None:
        self.totals = totals

    def collect(self) -> Iterator[Metric]:
        if not self.totals.tables:  # a config has turned off what another one had told
            return
        for label, table in self.totals.tables.items():
            for metric in METRICS[label]:
                yield summary(metric, label, table) if metric.kind == "summary" else counter(metric, label, table)
        lags = self.totals.lags
        if lags is not None:
            family = GaugeMetricFamily(
                "kproxy_group_lag",
                "Records between what a group has committed and the ends of its partitions, as far as seen here.",
                labels=["group", "topic"],
            )
            for pair, lag in lags.lags().items():
                family.add_metric(pair, lag)
            yield family
        used = GaugeMetricFamily("kproxy_label_series", "Names with series of their own, by label.", labels=["label"])
        for label, table in self.totals.tables.items():
            used.add_metric([label], len(table.series))
        yield used
        overflow = CounterMetricFamily(
            "kproxy_label_overflow",
            "Counts of names without a series: records of topics, requests of clients and principals, commits "
            "and joins of groups, and evicted partitions of groups.",
            labels=["label"],
        )
        for label, number in overflows(self.totals).items():
            overflow.add_metric([label], number)
        yield overflow


def counter(metric: LabelledMetric, label: str, table: LabelTable) -> Metric:
    family = CounterMetricFamily(metric.name, metric.text, labels=[label, *([metric.second] if metric.second else [])])
    sample = f"{metric.name}_total"
    for series in table.everything():
        for (name, second), number in list(series.values.items()):
            if name == sample:
                family.add_metric([series.name, second] if metric.second else [series.name], number)
    return family


def summary(metric: LabelledMetric, label: str, table: LabelTable) -> Metric:
    family = SummaryMetricFamily(metric.name, metric.text, labels=[label, metric.second])
    for series in table.everything():
        for (name, second), number in list(series.values.items()):
            if name == f"{metric.name}_count":
                seconds = series.values.get((f"{metric.name}_sum", second), 0.0)
                family.add_metric([series.name, second], int(number), seconds)
    return family


TEXTS = {"_max": "the largest of all", "_min": "the smallest of all"}


class TelemetryCollector(Collector):
    """Collector of clients' own metrics; each is a family. `clock`: the time of their addition."""

    def __init__(self, totals: LabelTotals, clock: Callable[[], float]) -> None:
        self.totals, self.clock = totals, clock

    def collect(self) -> Iterator[Metric]:
        totals, telemetry = self.totals, self.totals.telemetry
        if telemetry is None:
            return
        series = totals.tables[CLIENT_TELEMETRY].everything()
        known = totals.tables[CLIENT_TELEMETRY].series
        for metric, grows in sorted(telemetry.kinds.items()):
            family: CounterMetricFamily | GaugeMetricFamily
            if grows:
                family = CounterMetricFamily(
                    PREFIX + metric, "Sum of metrics that clients push (KIP-714).", labels=telemetry.labels
                )
                numbers = {one.name: one.values.get((metric, "")) for one in series}
            else:
                how = TEXTS.get(metric[-4:], "the mean of all")
                family = GaugeMetricFamily(
                    PREFIX + metric, f"As clients tell it of themselves (KIP-714), {how}.", labels=telemetry.labels
                )
                rows = telemetry.rows_of(metric, known, self.clock())
                numbers = {name: gauge_value(row) for name, row in rows.items()}
            for name, number in numbers.items():
                if number is not None:
                    family.add_metric(label_values(name, len(telemetry.labels)), number)
            if family.samples:
                yield family
        refused = CounterMetricFamily(
            "kproxy_telemetry_points_refused",
            "Numbers of clients that were not taken, since their metrics have too many names, or one that is taken.",
            value=telemetry.refused,
        )
        yield refused
