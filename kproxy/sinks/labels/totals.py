"""Everything that one process has counted by label: a table for each label, and the lag of groups."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kproxy.config.metrics import MetricsConfig
from kproxy.rules.select.match import text_test

from .lag import GroupLags
from .table import LabelLine, LabelTable

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
}
"""Metrics by the label that they have."""
WEIGHTS = {
    "topic": "kproxy_topic_bytes_total",
    "client_id": "kproxy_client_bytes_total",
    "principal": "kproxy_principal_bytes_total",
    "group": "",
}
"""Sample by whose sum names are compared, by label; empty: all samples."""
COUNTS = {
    "topic": "kproxy_topic_records_total",
    "client_id": "kproxy_client_requests_total",
    "principal": "kproxy_principal_requests_total",
    "group": "",
}
"""Sample by whose sum the overflow is told, by label; empty: all samples."""


class LabelTotals:
    """Tables of one process, by label, and the lag of the groups that have series."""

    def __init__(self, config: MetricsConfig) -> None:
        self.tables: dict[str, LabelTable] = {
            label: LabelTable(config.series, chosen_names(config, label)) for label in config.by
        }
        self.lags = GroupLags(config.series) if "group" in config.by else None
        if self.lags is not None:
            self.tables["group"].gone = self.lags.forget
        self.minute_ends: float | None = None

    def add(
        self, label: str, name: str, lines: list[tuple[LabelLine, float]], now: float, *, known: bool = True
    ) -> None:
        """Add numbers to the lines of a name of this label, which must be one that is told."""
        weight = sum_of(WEIGHTS[label], lines)
        count = weight if WEIGHTS[label] == COUNTS[label] else sum_of(COUNTS[label], lines)
        self.tables[label].add(name, lines, now, weight=weight, count=count, known=known)

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
