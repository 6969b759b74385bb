"""Pushed client metrics (KIP-714): their config, their names, their gauges, and the reader of payloads.

    telemetry:
      serve: auto
      metrics: standard
      interval: 60s
      to: [metrics]
      labels: [client_id, software]

Counters are lines of a `LabelTable`, so its limit holds for their labels. A gauge is the state of one client. For a
series, the mean over its clients is reported, or the largest or smallest if the metric is one itself. Single clients
are not stored. A cell adds the values of the current and of the previous interval; every client pushes once in each.

Clients choose names if non-standard metrics are requested. So the number of names is bounded, and each is a counter or
a gauge for good. Payloads are decompressed and parsed outside the traffic's path.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec
from pydantic import AfterValidator, Discriminator, Field, Tag

from kproxy.base.errors import InputError
from kproxy.protocol.otlp import MetricPoint, read_metrics
from kproxy.rules.values.model import Model, Wrong
from kproxy.rules.values.quantities import Seconds

from .table import BIRTHS, OTHER, LabelLine, LabelSeries, label_text

if TYPE_CHECKING:
    from kproxy.session.telemetry import TelemetryPush

KAFKA: Final = "org.apache.kafka."
"""Beginning of the names of Kafka's own metrics, which clients of other languages use as well."""
SHORTEST_INTERVAL, LONGEST_INTERVAL = 1, 3600
MOST_PREFIXES: Final = 100
_PREFIX = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,99}")

STANDARD: Final = tuple(
    f"{KAFKA}{role}.{name}"
    for role, names in {
        "producer": (
            "connection.creation.total", "node.request.latency.avg", "node.request.latency.max",
            "produce.throttle.time.avg", "produce.throttle.time.max", "record.queue.time.avg", "record.queue.time.max",
        ),
        "consumer": (
            "connection.creation.total", "node.request.latency.avg", "node.request.latency.max", "poll.idle.ratio.avg",
            "coordinator.commit.latency.avg", "coordinator.commit.latency.max", "coordinator.assigned.partitions",
            "coordinator.rebalance.latency.avg", "coordinator.rebalance.latency.max",
            "coordinator.rebalance.latency.total", "fetch.manager.fetch.latency.avg", "fetch.manager.fetch.latency.max",
        ),
    }.items()
    for name in names
)  # fmt: skip
"""KIP-714's standard metrics without rates, which users derive from counters."""


def _prefix(text: str) -> str:
    if not _PREFIX.fullmatch(text):
        raise ValueError(
            f'expected a prefix of a metric name (a letter, then a-z A-Z 0-9 . _ -, at most 100), got "{text}"'
        )
    return text


Prefixes = Annotated[
    list[Annotated[str, AfterValidator(_prefix)]], Field(min_length=1, max_length=MOST_PREFIXES)
]  # fmt: skip


def _form(value: Any) -> str:
    return "list" if isinstance(value, list) else "word"


TelemetryLabel = Literal["client_id", "principal", "role", "listener", "software", "topic"]
TelemetryTarget = Literal["metrics", "audit"]


class TelemetryConfig(Model):
    """Settings of clients' own metrics."""

    serve: Literal["auto", "always", "never"] = Field(
        default="auto",
        description="auto: request metrics from clients if the broker does not; always: instead of the broker; never: "
        "only read metrics that clients push to brokers",
    )
    listeners: list[str] | None = Field(
        default=None, description="listeners with clients to request metrics from (default: all)"
    )
    metrics: Annotated[
        Annotated[Literal["standard", "all"], Tag("word")] | Annotated[Prefixes, Tag("list")], Discriminator(_form)
    ] = Field(
        default="standard",
        description="requested metrics: standard (required by KIP-714), all, or prefixes of names such as "
        "org.apache.kafka.producer.",
    )
    interval: Annotated[Seconds, Field(ge=SHORTEST_INTERVAL, le=LONGEST_INTERVAL)] = Field(
        default=60.0, description="time between two pushes of a client"
    )
    to: list[TelemetryTarget] = Field(
        default=["metrics"],
        min_length=1,
        description="destinations of pushed metrics: metrics (at the admin address) or audit (an event per push)",
    )
    labels: list[TelemetryLabel] = Field(
        default=["client_id", "software"],
        description="labels in /metrics: any of client_id, principal, role, listener, software, topic",
    )

    @classmethod
    def cross_check(cls, raw: dict[Any, Any]) -> Iterable[Wrong]:
        for name in ("to", "labels"):
            given = raw.get(name)
            listed = given if isinstance(given, list) else []
            for index, one in enumerate(listed):
                if one in listed[:index]:
                    yield (name, index), f'"{one}" stands here twice'

    @property
    def requested(self) -> tuple[str, ...]:
        """Return the beginnings of the names that clients are asked for; ("",) for all."""
        if self.metrics == "standard":
            return STANDARD
        return ("",) if self.metrics == "all" else tuple(self.metrics)

    def takes(self, name: str) -> bool:
        """Return True if a pushed metric is accepted; rates are covered by counters."""
        if name.endswith(".rate"):
            return False
        return name in _STANDARD if self.metrics == "standard" else name.startswith(self.requested)


_STANDARD = frozenset(STANDARD)


CLIENT_TELEMETRY: Final = "client_telemetry"
"""Label for the number of series."""
PREFIX: Final = "kproxy_client_telemetry_"
MOST_NAMES: Final = 300
"""Names of non-standard metrics. Java's clients have about 110 each, most of them equal."""
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
        """Go on to this interval; older ones than the previous are discarded."""
        if period > self.period:
            self.before = self.now if period == self.period + 1 else None
            self.now, self.period = None, period


class GaugeTotals:
    """Gauges of one process by metric and series. They are reported one metric at a time, since there may be a hundred
    thousand cells. `interval`: seconds between two pushes of a client."""

    def __init__(self, interval: float) -> None:
        self.interval = interval
        self.cells: dict[str, dict[str, GaugeCell]] = {}

    def use(self, interval: float) -> None:
        """Follow another interval. The previous interval's values are discarded: each client pushes them again."""
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
        """Return True if a number of this metric is accepted, as a counter if it `grows`, otherwise as a gauge; count
        rejections."""
        told = self.is_told(metric, grows=grows)
        self.refused += not told
        return told

    def is_told(self, metric: str, *, grows: bool) -> bool:
        """Return True if a metric of this name is reported, as a counter if it `grows`, otherwise as a gauge."""
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
        """Replace the gauges of a worker by the new ones, some in each step."""
        found, refused = dict[str, list[GaugeRow]](), 0
        for first in range(0, len(rows), MOST_ROWS):
            for row in rows[first : first + MOST_ROWS]:
                if self.is_told(row.metric, grows=False):
                    found.setdefault(row.metric, []).append(row)
                else:
                    refused += 1
            yield
        self.refused += max(0, refused - self.refused_rows.get(worker, 0))  # it repeats its previous report
        self.told[worker], self.refused_rows[worker] = found, refused

    def forget_worker(self, worker: int) -> None:
        self.told.pop(worker, None)
        self.refused_rows.pop(worker, None)

    def forget_workers(self) -> None:
        """Remove the gauges of all workers, which now report others."""
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
    """Return the local name of a client's metric without the common prefix: its name without Kafka's prefix, in one
    spelling. Counters end with `_total`."""
    text = _NOT_IN_NAMES.sub("_", name.removeprefix(KAFKA).lower()).strip("_")
    return text.removesuffix("_total") + "_total" if grows else text


def gauge_value(row: GaugeRow) -> float:
    """Return the reported value of a gauge: its largest or smallest if it is one, otherwise the mean."""
    if row.metric.endswith("_max"):
        return row.largest
    return row.smallest if row.metric.endswith("_min") else row.total / row.count


def series_name(values: Iterable[str]) -> str:
    """Return the name of the series with these values of its labels, which clients choose. If each part is the word for
    names without a series, the result is that word, so series stay unique."""
    texts = [label_text(one) for one in values]
    return OTHER if texts and all(one == OTHER for one in texts) else BETWEEN.join(texts)


def label_values(series: str, number: int) -> list[str]:
    if series == OTHER:
        return [OTHER] * number
    return series.split(BETWEEN) if number else []


MOST_UNPACKED: Final = 8 << 20
"""Bytes of a payload at most, unpacked."""
MOST_CELLS: Final = 2000
"""Numbers of one payload that are taken, after those of one series and metric are added up: some milliseconds."""
ROLES: Final = frozenset(("producer", "consumer", "admin"))
TOPIC: Final = frozenset(("topic",))
NO_ATTRIBUTES: Final = frozenset[str]()
STANDARD_NAMES: Final = frozenset(sample_name(name, grows=grows(name)) for name in STANDARD)


@dataclass(slots=True)
class PushRead:
    """Contents of a payload: counters by series, gauges, and how many points were left out. `size`: bytes, unpacked.
    `names`: how many metrics. `standard`: numbers of the standard metrics, for events. `labels`: labels whose values
    form the names of series."""

    counters: dict[str, dict[LabelLine, float]] = field(default_factory=dict)
    gauges: list[GaugeRow] = field(default_factory=list)
    left_out: int = 0
    size: int = 0
    names: int = 0
    standard: dict[str, float] = field(default_factory=dict)
    labels: tuple[str, ...] = ()


class PushReader:
    """Reader of payloads on the config's terms. It has no state, so a thread may use it."""

    def __init__(self, config: TelemetryConfig) -> None:
        self.config = config
        self.attributes = TOPIC if "topic" in config.labels else NO_ATTRIBUTES

    def read(self, push: TelemetryPush) -> PushRead | None:
        """Return the contents of a payload; None if it cannot be read."""
        from kproxy.protocol.records.compression import (
            decompress,  # the config's models are here, too: codecs load late
        )

        try:
            data = bytes(decompress(push.codec, push.payload, MOST_UNPACKED))
            if len(data) > MOST_UNPACKED:
                return None
            found = read_metrics(data, self.config.takes, self.attributes)
        except InputError:
            return None
        read = PushRead(left_out=found.left_out, size=len(data), names=len({one.name for one in found.points}))
        read.labels = tuple(self.config.labels)
        self.add_up(read, push, found.points)
        read.standard = standard_numbers(read)
        return read

    def add_up(self, read: PushRead, push: TelemetryPush, points: list[MetricPoint]) -> None:
        """Add the points of one series and metric up, such as those of several nodes."""
        gauges: dict[tuple[str, str], GaugeRow] = {}
        cells, series_of = 0, dict[tuple[str, str], str]()
        for point in points:
            who = role_of(point.name), point.attributes.get("topic", "")
            series = series_of.get(who)
            if series is None:
                series = series_of[who] = series_name(self.values(push, *who))
            metric = sample_name(point.name, grows=point.grows)
            key: object = (metric, "") if point.grows else (series, metric)
            known = key in (read.counters.get(series, ()) if point.grows else gauges)
            cells += not known
            if not metric or cells > MOST_CELLS:
                read.left_out += 1
                cells -= not known
            elif point.grows:
                lines = read.counters.setdefault(series, {})
                lines[metric, ""] = lines.get((metric, ""), 0.0) + point.value
            else:
                row = GaugeRow(series, metric, 1, point.value, point.value, point.value)
                gauges[series, metric] = joined_rows(gauges.get((series, metric)), row, series)
        read.gauges = list(gauges.values())

    def values(self, push: TelemetryPush, role: str, topic: str) -> Iterator[str]:
        """Yield the values of the config's labels. A topic has the broker's name, as in all other metrics."""
        for label in self.config.labels:
            if label == "topic":
                yield broker_topic(push, topic)
            elif label == "role":
                yield role
            else:
                yield str(getattr(push, label))


def standard_numbers(read: PushRead) -> dict[str, float]:
    """Return the numbers of the standard metrics in a payload, whatever series they are of."""
    found: dict[str, float] = {}
    for lines in read.counters.values():
        for (metric, _), number in lines.items():
            if metric in STANDARD_NAMES:
                found[metric] = found.get(metric, 0.0) + number
    gauges: dict[str, GaugeRow] = {}
    for row in read.gauges:
        if row.metric in STANDARD_NAMES:
            gauges[row.metric] = joined_rows(gauges.get(row.metric), row, "")
    return found | {metric: gauge_value(row) for metric, row in gauges.items()}


def role_of(name: str) -> str:
    """Return the role of a client metric of Kafka: producer, consumer or admin; empty for other metrics."""
    first = name.removeprefix(KAFKA).partition(".")[0]
    return first if first in ROLES else ""


def broker_topic(push: TelemetryPush, topic: str) -> str:
    names = None if push.names is None else push.names.topics
    return topic if names is None or not topic else names.to_broker(topic.encode()).decode("utf-8", "replace")
