"""Everything that one process has counted by label: a table for each label, and the lag of groups."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kproxy.config.metrics import MetricsConfig
from kproxy.config.telemetry import TelemetryConfig
from kproxy.rules.select.match import text_test

from .lag import GroupLags
from .table import LabelLine, LabelTable
from .telemetry import CLIENT_TELEMETRY, GaugeRow, TelemetryTotals

MINUTE = 60.0


class LabelledMetric(NamedTuple):
    """Metric of a label. `second`: its other label, empty if it has none. `kind`: counter or summary."""

    name: str
    text: str
    second: str
    kind: str = "counter"


def who_metrics(who: str, of: str) -> tuple[LabelledMetric, ...]:
    """Return the metrics of a label that says who has sent requests."""
    return (
        LabelledMetric(f"kproxy_{who}_requests", f"Requests that are over, by {of} and class of API.", "api"),
        LabelledMetric(f"kproxy_{who}_bytes", f"Bytes of requests and responses, by {of} and class of API.", "api"),
        LabelledMetric(
            f"kproxy_{who}_broker_seconds",
            f"Seconds from request to response of what brokers answered, by {of} and class of API.", "api", "summary",
        ),
    )  # fmt: skip


METRICS: dict[str, tuple[LabelledMetric, ...]] = {
    "topic": (
        LabelledMetric("kproxy_topic_bytes", "Bytes of record batches written and read, by topic.", "direction"),
        LabelledMetric("kproxy_topic_records", "Records written and read, by topic.", "direction"),
        LabelledMetric("kproxy_topic_errors", "Errors of partitions written and read, by topic.", "error"),
    ),
    "client_id": who_metrics("client", "client id"),
    "principal": who_metrics("principal", "principal"),
    "group": (
        LabelledMetric("kproxy_group_commits", "Requests that committed offsets of a group.", ""),
        LabelledMetric("kproxy_group_joins", "Requests by which a member joined a group.", ""),
    ),
    CLIENT_TELEMETRY: (),  # clients name them: telemetry_collector.py
}
"""Metrics by the label that they have."""
WEIGHTS = {
    "topic": "kproxy_topic_bytes_total",
    "client_id": "kproxy_client_bytes_total",
    "principal": "kproxy_principal_bytes_total",
    "group": "",
}
"""Sample by whose sum names are compared, by label; empty: all samples. Of what clients tell numbers are counted."""
COUNTS = {
    "topic": "kproxy_topic_records_total",
    "client_id": "kproxy_client_requests_total",
    "principal": "kproxy_principal_requests_total",
    "group": "",
}
"""Sample by whose sum the overflow is told, by label, as of weights."""


class LabelTotals:
    """Tables of one process, by label, the lag of the groups that have series, and what clients tell of themselves."""

    def __init__(self, config: MetricsConfig, telemetry: TelemetryConfig | None = None) -> None:
        self.tables: dict[str, LabelTable] = {
            label: LabelTable(config.series, chosen_names(config, label)) for label in config.by
        }
        self.lags = GroupLags(config.series) if "group" in config.by else None
        if self.lags is not None:
            self.tables["group"].gone = self.lags.forget
        self.telemetry: TelemetryTotals | None = None
        if telemetry is not None and "metrics" in telemetry.to:
            self.telemetry = TelemetryTotals(telemetry)
            table = self.tables[CLIENT_TELEMETRY] = LabelTable(config.series, text=str)
            table.gone = self.telemetry.gauges.forget
        self.minute_ends: float | None = None

    def add(
        self, label: str, name: str, lines: list[tuple[LabelLine, float]], now: float, *, known: bool = True
    ) -> None:
        """Add numbers to the lines of a name of this label, which must be one that is told."""
        if label == CLIENT_TELEMETRY and self.telemetry is not None:
            lines = [line for line in lines if self.telemetry.admits(line[0][0], grows=True)]
            weight = count = float(sum(number > 0 for _, number in lines))  # what a client claims has no weight
        else:
            weight = sum_of(WEIGHTS[label], lines)
            count = weight if WEIGHTS[label] == COUNTS[label] else sum_of(COUNTS[label], lines)
        self.tables[label].add(name, lines, now, weight=weight, count=count, known=known)

    def add_gauges(self, rows: Iterable[GaugeRow], now: float) -> None:
        """Add what clients tell of how things stand. Rows of names without series count as those of `other`."""
        table = self.tables[CLIENT_TELEMETRY]
        assert self.telemetry is not None
        for row in rows:
            if self.telemetry.admits(row.metric, grows=False):
                series = table.add(row.series, (), now, weight=1, count=1)
                self.telemetry.gauges.add(row, series.name, now)

    def tick(self, now: float) -> None:
        """Choose anew which names have series, once a minute."""
        if self.minute_ends is None:
            self.minute_ends = now + MINUTE
        elif now >= self.minute_ends:
            self.minute_ends = now + MINUTE
            for table in self.tables.values():
                table.end_minute(now)


def sum_of(sample: str, lines: Iterable[tuple[LabelLine, float]]) -> float:
    return sum(number for line, number in lines if not sample or line[0] == sample)


def chosen_names(config: MetricsConfig, label: str) -> ChosenNames | None:
    """Return the test for names of a label that may have series; None if all may."""
    patterns = next((texts for one, texts in config.only.items() if one == label), None)
    return None if patterns is None else ChosenNames(patterns)


class ChosenNames:
    """Test of the names that the config chooses for a label."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self.tests = [text_test(one) for one in patterns]

    def __call__(self, name: str) -> bool:
        return any(test(name) for test in self.tests)
