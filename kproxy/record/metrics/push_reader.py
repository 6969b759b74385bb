"""Payloads of clients' metrics, unpacked, read and added up by the series that they are of; done beside the traffic."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from kproxy.base.errors import InputError
from kproxy.protocol.otlp import MetricPoint, read_metrics
from kproxy.protocol.records.compression import decompress
from kproxy.session.telemetry import TelemetryPush

from .table import LabelLine
from .telemetry import GaugeRow, gauge_value, grows, joined_rows, sample_name, series_name
from .telemetry_config import KAFKA, STANDARD, TelemetryConfig

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
    `names`: how many metrics. `standard`: numbers of the standard metrics, as events tell them. `labels`: those whose
    values the names of series are made of."""

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
    """Return what kind of client a metric of Kafka's is about: producer, consumer or admin; empty for any other."""
    first = name.removeprefix(KAFKA).partition(".")[0]
    return first if first in ROLES else ""


def broker_topic(push: TelemetryPush, topic: str) -> str:
    """Return the name that the broker has for a client's topic."""
    names = None if push.names is None else push.names.topics
    return topic if names is None or not topic else names.to_broker(topic.encode()).decode("utf-8", "replace")
