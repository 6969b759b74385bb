"""Counters of one process by label: the config, a table for each label, and the lag of groups.

metrics:
  by: [topic, client_id, principal, group]
  series: 200
  only: {topic: ["orders*"]}
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterable
from functools import lru_cache
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field

from kproxy.base.bounded_map import BoundedMap, unheld
from kproxy.rules.select.match import Texts, text_test
from kproxy.rules.values.model import Model, Wrong

from .client_telemetry import CLIENT_TELEMETRY, GaugeRow, TelemetryConfig, TelemetryTotals
from .table import BIRTHS, OTHER, LabelLine, LabelSeries, LabelTable

MetricLabel = Literal["topic", "client_id", "principal", "group"]
"""Label of metrics."""
MOST_SERIES = 500
"""Names with a series of their own for one label: some twenty lines each. Prometheus keeps all of them, and a scrape
renders those of one metric in one step."""


class MetricsConfig(Model):
    """Settings of the metrics by topic, client, principal and group."""

    by: list[MetricLabel] = Field(
        default_factory=list,
        description="labels of counted traffic: topic, client_id, principal, group (default: none)",
    )
    series: Annotated[int, Field(ge=1, le=MOST_SERIES)] = Field(
        default=200, description="maximum series per label; further names are summed as other"
    )
    only: dict[MetricLabel, Texts] = Field(
        default_factory=dict,
        description="names that may have series, exact, with * or as a /regular expression/, by label; all others are "
        "added up as other, and not counted as overflow",
    )

    @classmethod
    def cross_check(cls, raw: dict[Any, Any]) -> Iterable[Wrong]:
        """Check that labels are unique, and that names are chosen only for enabled labels."""
        by, only = raw.get("by"), raw.get("only")
        labels = by if isinstance(by, list) else []
        for index, label in enumerate(labels):
            if label in labels[:index]:
                yield ("by", index), f'"{label}" stands here twice'
        if isinstance(only, dict):
            for label in only:
                if label not in labels:
                    yield ("only", label), f'nothing is told by "{label}": it is not in `by`'


MOST_PARTITIONS = 20_000
"""Partitions of groups, and ends, that one process remembers of each: some 10 MB. Kafka clusters have 200,000 at most,
and groups commit for a few hundred."""
TOPICS = 5
"""Pairs of group and topic with lines of their own, for each group that can have a series."""

LaggedPartition = tuple[str, str, int]
"""(cluster, topic, partition), by the broker's names."""
CommitRow = tuple[str, str, str, int, int, float]
"""(group, cluster, topic, partition, offset, when)"""
EndRow = tuple[str, str, int, int, float]
"""(cluster, topic, partition, offset, when)"""


# A partition's end is its last observed one: the high watermark of a Fetch, or the offset after the last record of a
# Produce. A group's lag in a topic is the sum of end less offset, over the partitions with a committed offset. Commits
# and reads may be on connections of different workers. So each worker reports both, and the process with the admin
# address computes the sums. The number of remembered partitions of all groups is bounded, as is that of ends. Beyond
# that, those without news for the longest time are evicted and counted.
class GroupLags:
    """Committed offsets of groups and ends of partitions. `forgotten`: evicted partitions, counted under the number
    `born`.

    `series`: groups that can have series.
    """

    def __init__(self, series: int, most: int = MOST_PARTITIONS) -> None:
        self.most = most
        self.use(series)
        self.commits: BoundedMap[tuple[str, LaggedPartition], tuple[int, float]] = BoundedMap(
            most, on_evict=self._leave_group
        )
        self.of_group: dict[str, set[LaggedPartition]] = {}
        """Partitions with an offset of each group: hundreds of groups may be removed together."""
        self.ends: BoundedMap[LaggedPartition, tuple[int, float]] = BoundedMap(most)
        self.forgotten, self.born = 0, next(BIRTHS)

    def use(self, series: int) -> None:
        self.most_pairs = TOPICS * series

    def commit(self, group: str, partition: LaggedPartition, offset: int, at: float) -> None:
        """Store the offset that a group committed at this time; older commits are ignored."""
        key = group, partition
        known = self.commits.get(key)
        if known is None or known[1] <= at:
            self.commits[key] = offset, at
            self.of_group.setdefault(group, set()).add(partition)

    def _leave_group(self, commit: tuple[str, LaggedPartition], _: tuple[int, float]) -> None:
        group, partition = commit
        self.of_group[group].discard(partition)
        if not self.of_group[group]:
            del self.of_group[group]
        self.forgotten += 1

    def end(self, partition: LaggedPartition, offset: int, at: float) -> None:
        """Store the end of a partition at this time; older ends are ignored. Within one read, in any order, the larger
        offset wins."""
        known = self.ends.get(partition)
        if known is None or (known[1], known[0]) <= (at, offset):
            self.ends[partition] = offset, at

    def forget(self, group: LabelSeries) -> None:
        for partition in self.of_group.pop(group.name, ()):
            del self.commits[group.name, partition]

    def lags(self) -> dict[tuple[str, str], int]:
        """Return records between what was committed and the end, by group and topic.

        The topics of a group beyond all lines that there may be are added up as `other`.
        """
        lags: dict[tuple[str, str], int] = defaultdict(int)
        for (group, partition), (offset, _) in self.commits.items():
            end = self.ends.get(partition)
            if end is None:
                continue
            pair = group, partition[1]
            if pair not in lags and len(lags) >= self.most_pairs:
                pair = group, OTHER
            lags[pair] += max(end[0] - offset, 0)
        return lags

    def take_rows(self, commits: Iterable[CommitRow], ends: Iterable[EndRow], groups: Container[str]) -> None:
        """Take what another process remembers of these groups, as far as there is room and it is news."""
        for group, cluster, topic, number, offset, at in commits:
            key = group, (cluster, topic, number)
            if group in groups and (key in self.commits or len(self.commits) < self.most):
                self.commit(*key, offset, at)
        for cluster, topic, number, offset, at in ends:
            partition = cluster, topic, number
            if partition in self.ends or len(self.ends) < self.most:
                self.end(partition, offset, at)

    def commit_rows(self) -> list[CommitRow]:
        """Return the offsets that groups have committed, for a process that puts those of several together."""
        return [(group, *partition, offset, at) for (group, partition), (offset, at) in self.commits.items()]

    def end_rows(self) -> list[EndRow]:
        """Return the ends of partitions, for a process that puts those of several together."""
        return [(*partition, offset, at) for partition, (offset, at) in self.ends.items()]


MINUTE = 60.0
MOST_RESTING = 8
"""Tables that are kept after a config has disabled them. There are four labels, and sets of labels of client
metrics."""
MOST_KNOWN = 1000
"""Names with a remembered decision about a series."""


class LabelledMetric(NamedTuple):
    """Metric of a label. `second`: its other label, empty if it has none. `kind`: counter or summary."""

    name: str
    text: str
    second: str
    kind: str = "counter"


def who_metrics(who: str, of: str) -> tuple[LabelledMetric, ...]:
    """Return the metrics of a label that identifies the sender of requests."""
    return (
        LabelledMetric(f"kproxy_{who}_requests", f"Requests that are over, by {of} and class of API.", "api"),
        LabelledMetric(f"kproxy_{who}_bytes", f"Bytes of requests and responses, by {of} and class of API.", "api"),
        LabelledMetric(
            f"kproxy_{who}_upstream_request_duration_seconds",
            f"Seconds from request to response of what brokers answered, by {of} and class of API.", "api", "summary",
        ),
        LabelledMetric(
            f"kproxy_{who}_throttle_duration_seconds",
            f"Seconds of throttles by brokers and rules, by {of} and class of API.", "api",
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
        LabelledMetric("kproxy_group_joins", "Requests of members to join a group.", ""),
    ),
    CLIENT_TELEMETRY: (),  # clients choose the names: worker_totals.py
}
"""Metrics by the label that they have."""
WEIGHTS = {
    "topic": "kproxy_topic_bytes_total",
    "client_id": "kproxy_client_bytes_total",
    "principal": "kproxy_principal_bytes_total",
    "group": "",
}
"""Sample whose sum ranks names, by label; empty: all samples. For client metrics, numbers are counted."""
COUNTS = {
    "topic": "kproxy_topic_records_total",
    "client_id": "kproxy_client_requests_total",
    "principal": "kproxy_principal_requests_total",
    "group": "",
}
"""Sample whose sum is the overflow, by label, as for weights."""


class LabelTotals:
    """Tables of one process, by label, the lag of the groups with series, and the pushed client metrics.

    `rests`: numbers that another config leaves no place for are kept, and go on where they were if one gives them a
    place again. Used by the process that serves them; those of workers are added by their growth.
    """

    def __init__(self, config: MetricsConfig, telemetry: TelemetryConfig | None = None, *, rests: bool = False) -> None:
        self.rests = rests
        self.tables: dict[str, LabelTable] = {}
        self.lags: GroupLags | None = None
        self.forgotten = 0
        """Partitions evicted until lag metrics were disabled."""
        self.telemetry: TelemetryTotals | None = None
        self.resting: dict[tuple[str, ...], tuple[LabelTable, TelemetryTotals | None]] = {}
        """Disabled tables, by their labels."""
        self.minute_ends: float | None = None
        self.prepare(config, telemetry)()

    def prepare(self, config: MetricsConfig, telemetry: TelemetryConfig | None) -> Callable[[], None]:
        """Return a function that applies these settings. Expressions are compiled before that, and asked of the names
        that there are: it may take longer than the loop should wait."""
        chosen = {label: chosen_names(config, label) for label in config.by}
        for label, test in chosen.items():
            table = self.tables.get(label) or self.resting.get((label,), (None,))[0]
            if test is not None and table is not None:
                for name in (*table.series, *table.resting):
                    test(name)
        if telemetry is not None and "metrics" not in telemetry.to:
            telemetry = None

        def use() -> None:
            before, self.tables = self.tables, {}
            told = self.telemetry
            for label in config.by:
                table = (
                    before.pop(label, None)
                    or self._take_disabled(label)[0]
                    or LabelTable(config.series, rests=self.rests)
                )
                table.use(config.series, chosen[label])
                self.tables[label] = table
            self._use_lags(config)
            self._use_telemetry(config, telemetry, before.get(CLIENT_TELEMETRY))
            for name, left in before.items():
                if name != CLIENT_TELEMETRY:
                    self._disable((name,), left)
                elif told is not None and told is not self.telemetry:
                    self._disable((name, *told.labels), left, told)

        return use

    def _use_lags(self, config: MetricsConfig) -> None:
        table = self.tables.get("group")
        if table is None:
            self.forgotten, self.lags = self.forgotten if self.lags is None else self.lags.forgotten, None
        elif self.lags is None:
            self.lags = GroupLags(config.series)
            self.lags.forgotten = self.forgotten if self.rests else 0
        else:
            self.lags.use(config.series)
        if table is not None and self.lags is not None:
            table.gone = self.lags.forget

    def _use_telemetry(self, config: MetricsConfig, wanted: TelemetryConfig | None, table: LabelTable | None) -> None:
        """Apply the settings of client metrics; `table`: their previous table."""
        if wanted is None:
            self.telemetry = None
            return
        if self.telemetry is None or table is None or self.telemetry.labels != list(wanted.labels):
            table, self.telemetry = self._take_disabled(CLIENT_TELEMETRY, *wanted.labels)
        if table is None or self.telemetry is None:
            table = LabelTable(config.series, text=str, rests=self.rests)
            self.telemetry = TelemetryTotals(wanted)
        table.use(config.series, None)
        table.gone = self.telemetry.gauges.forget
        self.telemetry.gauges.use(wanted.interval)
        self.tables[CLIENT_TELEMETRY] = table

    def _disable(self, labels: tuple[str, ...], table: LabelTable, telemetry: TelemetryTotals | None = None) -> None:
        if self.rests:
            if telemetry is not None:
                telemetry.forget_workers()
            self.resting[labels] = table, telemetry

    def _take_disabled(self, *labels: str) -> tuple[LabelTable | None, TelemetryTotals | None]:
        return self.resting.pop(labels, (None, None))

    def add(
        self, label: str, name: str, lines: list[tuple[LabelLine, float]], now: float, *, known: bool = True
    ) -> None:
        """Add numbers to the series of a name, if this label is enabled."""
        table = self.tables.get(label)
        if table is None:
            return
        if label == CLIENT_TELEMETRY and self.telemetry is not None:
            lines = [line for line in lines if line[1] and self.telemetry.admits(line[0][0], grows=True)]
            weight = count = float(sum(number > 0 for _, number in lines))  # values that a client claims have no weight
        else:
            weight = sum_of(WEIGHTS[label], lines)
            count = weight if WEIGHTS[label] == COUNTS[label] else sum_of(COUNTS[label], lines)
        table.add(name, lines, now, weight=weight, count=count, known=known)

    def add_gauges(self, rows: Iterable[GaugeRow], now: float) -> None:
        """Add the clients' gauges. Rows of names without series count as those of `other`."""
        table = self.tables[CLIENT_TELEMETRY]
        assert self.telemetry is not None
        for row in rows:
            if self.telemetry.admits(row.metric, grows=False):
                series = table.add(row.series, (), now, weight=1, count=1)
                self.telemetry.gauges.add(row, series.name, now)

    def tick(self, now: float) -> None:
        """Choose the names with series again, once a minute."""
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
    """Test of the names that the config chooses for a label. Answers are remembered: it may have many patterns."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self.tests = [text_test(one) for one in patterns]
        self.known = lru_cache(MOST_KNOWN)(unheld(self.is_chosen))

    def __call__(self, name: str) -> bool:
        return self.known(name)

    def is_chosen(self, name: str) -> bool:
        return any(test(name) for test in self.tests)
