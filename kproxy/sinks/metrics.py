"""Prometheus metrics, made from plain counters when somebody scrapes; the hot path knows nothing of it.

Labels are bounded by the protocol's table and by the configuration: api, version, plan, listener, cause, event.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from kproxy.core.counters import Counters
from kproxy.core.histogram import BROKER_BOUNDS, Histogram
from kproxy.core.memory import HeldMemory
from kproxy.core.tally import Tally


class Connections(Protocol):
    """Counts of the connections' beginnings and ends, by listener, cause or cluster."""

    opened: dict[str, int]
    closed: dict[str, int]
    refused: dict[str, int]
    unreachable: dict[str, int]
    logins: dict[str, int]
    logins_refused: dict[str, int]


class Live(Protocol):
    """Connections that are open now, as the driver counts them."""

    def open_by_listener(self) -> Mapping[str, int]: ...

    def bytes_read(self) -> tuple[int, int]:
        """Return the bytes from clients and from brokers, of open and ended connections together."""


Counted = Callable[[], Iterable[Tally]]


class TrafficCollector(Collector):
    """Collector of the metrics of connections and frames. `tallies` gives what is counted of frames."""

    def __init__(
        self, counters: Counters, connections: Connections, tallies: Counted, live: Live, held: Mapping[str, HeldMemory]
    ) -> None:
        self.counters, self.ends, self.tallies, self.live, self.held = counters, connections, tallies, live, held

    def collect(self) -> Iterator[Metric]:
        yield from self.connections()
        yield from self.frames()
        counters = self.counters
        yield counted("kproxy_events", "Things worth counting, by event.", "event", counters.events)
        yield counted("kproxy_rewritten", "Values changed on their way, by what.", "what", counters.rewritten)
        yield counted("kproxy_address_leaks", "Brokers' addresses kept from clients, by how.", "how", self.leaks())
        yield counted("kproxy_stopped", "Frames not let through, by API.", "api", counters.stopped)
        held = GaugeMetricFamily("kproxy_held_bytes", "Memory of frames held back now.", labels=["direction"])
        for direction, memory in self.held.items():
            held.add_metric([direction], memory.used)
        yield held

    def leaks(self) -> dict[str, int]:
        """Return how often a broker's own address was kept from a client: stopped, left out, or blanked."""
        events = self.counters.events
        return {
            "stopped": sum(self.counters.stopped.values()) - events.get("stopped_by_rule", 0),
            "hidden": events.get("nodes_hidden", 0),
            "blanked": events.get("endpoints_blanked", 0),
        }

    def connections(self) -> Iterator[Metric]:
        ends = self.ends
        yield counted("kproxy_connections_opened", "Client connections accepted.", "listener", ends.opened)
        yield counted("kproxy_connections_closed", "Client connections ended, by cause.", "cause", ends.closed)
        yield counted("kproxy_connections_refused", "Client connections refused, by cause.", "cause", ends.refused)
        yield counted("kproxy_unreachable", "Times that no broker could be reached.", "cluster", ends.unreachable)
        yield counted("kproxy_broker_logins", "kproxy's own logins at brokers.", "cluster", ends.logins)
        refused = ends.logins_refused
        yield counted("kproxy_broker_logins_failed", "Those that brokers refused.", "cluster", refused)
        active = GaugeMetricFamily("kproxy_connections_open", "Client connections open now.", labels=["listener"])
        for listener, number in self.live.open_by_listener().items():
            active.add_metric([listener], number)
        yield active
        read = CounterMetricFamily("kproxy_read_bytes", "Bytes read, by side.", labels=["side"])
        for side, number in zip(("client", "broker"), self.live.bytes_read(), strict=True):
            read.add_metric([side], number)
        yield read

    def frames(self) -> Iterator[Metric]:
        requests: dict[tuple[str, str, str], int] = defaultdict(int)
        responses: dict[tuple[str, str, str], int] = defaultdict(int)
        latency: dict[str, Histogram] = defaultdict(lambda: Histogram(BROKER_BOUNDS))
        for tally in list(self.tallies()):
            if tally.requests or tally.responses:
                labels = (tally.api, tally.version, tally.depth)
                requests[labels] += tally.requests
                responses[labels] += tally.responses
                latency[tally.api].merge(tally.latency)
        for name, numbers in (("requests", requests), ("responses", responses)):
            family = CounterMetricFamily(
                f"kproxy_{name}", f"Kafka {name} by API, version and plan.", labels=["api", "version", "plan"]
            )
            for labels, number in numbers.items():
                family.add_metric(labels, number)
            yield family
        broker = HistogramMetricFamily(
            "kproxy_broker_seconds", "From a request's header read to its response's.", labels=["api"]
        )
        for api, times in latency.items():
            broker.add_metric([api], cumulative(times), times.total)
        yield broker
        for name, text, times in (
            (
                "kproxy_proxy_seconds",
                "How long kproxy is at work on one read, one turn in 16.",
                self.counters.proxy_time,
            ),
            ("kproxy_held_seconds", "How long frames were held, for their rest or an answer.", self.counters.held_time),
        ):
            histogram = HistogramMetricFamily(name, text)
            histogram.add_metric([], cumulative(times), times.total)
            yield histogram


class LogCollector(Collector):
    """Collector of the lines that the log of a process has lost."""

    def __init__(self, lost: Callable[[], int]) -> None:
        self.lost = lost

    def collect(self) -> Iterator[Metric]:
        yield CounterMetricFamily(
            "kproxy_log_lines_lost", "Lines of the log that nobody has read in time.", value=self.lost()
        )


def counted(name: str, text: str, label: str, numbers: Mapping[str, int]) -> Metric:
    family = CounterMetricFamily(name, text, labels=[label])
    for word, number in dict(numbers).items():
        family.add_metric([word], number)
    return family


def cumulative(times: Histogram) -> list[tuple[str, float]]:
    """Return a histogram in Prometheus' form: each bucket holds all that are smaller, too."""
    total, found = 0, []
    for bound, number in zip((*times.bounds, None), times.buckets, strict=True):
        total += number
        found.append(("+Inf" if bound is None else repr(bound), float(total)))
    return found


def registry(*collectors: Collector) -> CollectorRegistry:
    """Return a registry with these collectors and those of the process."""
    made = registry_of(*collectors)
    ProcessCollector(registry=made)
    PlatformCollector(registry=made)
    return made


def registry_of(*collectors: Collector) -> CollectorRegistry:
    """Return a registry with these collectors only."""
    made = CollectorRegistry(auto_describe=False)
    for collector in collectors:
        made.register(collector)
    return made


def exposition(made: CollectorRegistry) -> Iterator[bytes]:
    """Yield the text that Prometheus reads, a piece for each metric."""
    for metric in made.collect():
        yield generate_latest(_Alone(metric))


class _Alone:
    """Registry of one metric."""

    def __init__(self, metric: Metric) -> None:
        self.metric = metric

    def collect(self) -> Iterator[Metric]:
        yield self.metric
