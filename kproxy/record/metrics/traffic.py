"""Prometheus metrics, made from plain counters at each scrape; the hot path does not use Prometheus.

Labels are bounded by the protocol's table and by the configuration: api, version, decode_depth, listener, cause.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from kproxy.session.counters import BROKER_BOUNDS, ApiTally, Counters, Histogram

if TYPE_CHECKING:
    from kproxy.app.app import ProxyProcess
    from kproxy.runtime.capacity import ConnectionCounts


OPEN_METRICS = "text/plain; version=0.0.4; charset=utf-8"
"""Media type of `exposition`."""
MOST_AT_ONCE = 500
"""Lines that are written in one go: a few milliseconds."""

EVENT_COUNTERS = {
    "acks0_response_dropped": "Responses to Produce with acks=0 that were dropped.",
    "acl_deletions_refused": "ACL deletions that were refused, since they concern hidden names.",
    "acl_prefix_straddles": "ACLs with a prefix that covers names inside and outside of a tenant.",
    "api_versions_unreadable": "ApiVersions responses that could not be decoded.",
    "broker_renewals_failed": "Failed renewals of kproxy's SASL sessions at brokers.",
    "broker_sessions_renewed": "Renewed SASL sessions of kproxy at brokers.",
    "client_logins": "Successful SASL logins of clients at kproxy.",
    "client_logins_refused": "Failed SASL logins of clients at kproxy.",
    "client_sessions_ended": "SASL sessions of clients that expired without a new login.",
    "elect_leaders_refused": "ElectLeaders requests for all partitions that were refused.",
    "endpoints_blanked": "Broker addresses in responses that were replaced by empty ones.",
    "fetch_session_too_large": "Fetch and share sessions beyond the limit of partitions of a connection.",
    "fetch_session_unknown": "Requests for fetch and share sessions that kproxy does not know.",
    "fetch_sessions_unreachable": "Fetches of hidden topics.",
    "group_bytes_unreadable": "Subscriptions and assignments of groups that could not be decoded.",
    "groups_hidden": "Groups that were removed from responses.",
    "groups_unreachable": "Requests for hidden groups.",
    "hold_passed_over": "Requests that a rule could not hold.",
    "nodes_hidden": "Brokers that were removed from responses.",
    "own_metadata_unreadable": "Responses to kproxy's own Metadata requests that could not be decoded.",
    "principal_unreadable": "SASL messages with an unreadable principal.",
    "requests_blocked_by_rule": "Requests that rules blocked; also counted in kproxy_requests_blocked_total.",
    "response_unreadable": "Responses that could not be decoded for a rule.",
    "rules_failed": "Rules that failed with an error.",
    "sessions_without_room": "Fetch and share sessions beyond limits.session_partitions.",
    "telemetry_invalid": "Telemetry requests with an invalid field.",
    "telemetry_points_left_out": "Data points of telemetry that were left out.",
    "telemetry_pushes": "Accepted pushes of telemetry.",
    "telemetry_subscriptions": "Telemetry subscriptions that clients received.",
    "telemetry_throttled": "Telemetry requests that came too early.",
    "telemetry_too_large": "Pushes of telemetry beyond the size limit.",
    "telemetry_unknown_subscriptions": "Pushes of telemetry for an old subscription.",
    "telemetry_unreadable": "Pushes of telemetry that could not be decoded.",
    "telemetry_without_room": "Pushes of telemetry that were dropped because the queue was full.",
    "throttle_not_told": "Throttle times that a response has no field for.",
    "topic_ids_hidden": "Topic ids that were removed from responses.",
    "topic_ids_unknown": "Requests with topic ids that kproxy does not know.",
    "topic_ids_unreachable": "Requests with ids of hidden topics.",
    "topic_regex_invalid": "Subscriptions with an invalid regular expression.",
    "topic_regex_too_dear": "Subscriptions with a regular expression beyond the limit of its automaton.",
    "topic_regex_too_long": "Subscriptions with a regular expression beyond the limit of its length.",
    "topics_hidden": "Topics that were removed from responses.",
    "topics_unreachable": "Requests for hidden topics.",
    "trailing_bytes": "Frames with bytes after the last field.",
    "transactional_id_regex_invalid": "Lists of transactions with an invalid regular expression.",
    "transactional_id_regex_too_dear": "Lists of transactions with a regular expression beyond the limit.",
    "transactional_ids_hidden": "Transactional ids that were removed from responses.",
    "transactional_ids_unreachable": "Requests for hidden transactional ids.",
}
"""Help texts of the metrics `kproxy_EVENT_total`, by event of `Counters.events`."""

ReadTallies = Callable[[], Iterable[ApiTally]]


class TrafficCollector(Collector):
    """Collector of the metrics of connections and frames. `tallies` gives what is counted of frames."""

    def __init__(
        self,
        counters: Counters,
        connections: ConnectionCounts,
        tallies: ReadTallies,
        live: ProxyProcess,
        held: Callable[[], Mapping[str, int]],
    ) -> None:
        self.counters, self.ends, self.tallies, self.live, self.held = counters, connections, tallies, live, held

    def collect(self) -> Iterator[Metric]:
        yield from self.connections()
        yield from self.frames()
        counters = self.counters
        events = dict(counters.events)
        for event, text in EVENT_COUNTERS.items():
            yield CounterMetricFamily(f"kproxy_{event}", text, value=events.get(event, 0))
        yield counter_family("kproxy_rewritten", "Changed values, by kind.", "what", counters.rewritten)
        yield counter_family(
            "kproxy_addresses_withheld", "Broker addresses withheld from clients, by action.", "action", self.withheld()
        )
        yield counter_family(
            "kproxy_requests_blocked", "Requests that were not forwarded, by API.", "api", counters.stopped
        )
        held = GaugeMetricFamily("kproxy_buffered_bytes", "Bytes of buffered frames.", labels=["direction"])
        for direction, size in self.held().items():
            held.add_metric([direction], size)
        yield held

    def withheld(self) -> dict[str, int]:
        """Return the number of withheld broker addresses: blocked with the API, hidden with the node, redacted."""
        events = self.counters.events
        return {
            "blocked": sum(self.counters.stopped.values()) - events.get("requests_blocked_by_rule", 0),
            "hidden": events.get("nodes_hidden", 0),
            "redacted": events.get("endpoints_blanked", 0),
        }

    def connections(self) -> Iterator[Metric]:
        ends = self.ends
        yield counter_family("kproxy_connections_opened", "Client connections accepted.", "listener", ends.opened)
        yield counter_family("kproxy_connections_closed", "Client connections ended, by cause.", "cause", ends.closed)
        yield counter_family(
            "kproxy_connections_refused", "Client connections refused, by cause.", "cause", ends.refused
        )
        yield counter_family(
            "kproxy_upstream_connect_failures",
            "Attempts that reached no broker of a cluster.",
            "cluster",
            ends.unreachable,
        )
        yield counter_family("kproxy_broker_logins", "kproxy's own logins at brokers.", "cluster", ends.logins)
        refused = ends.logins_refused
        yield counter_family(
            "kproxy_broker_logins_failed", "kproxy's own logins at brokers that failed.", "cluster", refused
        )
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
                f"kproxy_{name}",
                f"Kafka {name} by API, version and decode depth.",
                labels=["api", "version", "decode_depth"],
            )
            for labels, number in numbers.items():
                family.add_metric(labels, number)
            yield family
        broker = HistogramMetricFamily(
            "kproxy_upstream_request_duration_seconds",
            "Seconds from sending a request to the broker to reading its response's header.",
            labels=["api"],
        )
        for api, times in latency.items():
            broker.add_metric([api], cumulative(times), times.total)
        yield broker
        for name, text, times in (
            (
                "kproxy_processing_duration_seconds",
                "Seconds of work on one read, measured in one turn of 16.",
                self.counters.proxy_time,
            ),
            (
                "kproxy_buffered_duration_seconds",
                "Seconds that frames were buffered, for the rest of their bytes or a lookup.",
                self.counters.held_time,
            ),
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
            "kproxy_log_lines_lost",
            "Log lines that were dropped because they were not read in time.",
            value=self.lost(),
        )


def counter_family(name: str, text: str, label: str, numbers: Mapping[str, int]) -> Metric:
    family = CounterMetricFamily(name, text, labels=[label])
    for word, number in dict(numbers).items():
        family.add_metric([word], number)
    return family


def cumulative(times: Histogram) -> list[tuple[str, float]]:
    """Return a histogram in Prometheus' form: each bucket includes all smaller ones."""
    total, buckets = 0, []
    for bound, number in zip((*times.bounds, None), times.buckets, strict=True):
        total += number
        buckets.append(("+Inf" if bound is None else repr(bound), float(total)))
    return buckets


def registry(*collectors: Collector) -> CollectorRegistry:
    """Return a registry with these collectors and those of the process."""
    collected = registry_of(*collectors)
    ProcessCollector(registry=collected)
    PlatformCollector(registry=collected)
    return collected


def registry_of(*collectors: Collector) -> CollectorRegistry:
    """Return a registry with these collectors only."""
    collected = CollectorRegistry(auto_describe=False)
    for collector in collectors:
        collected.register(collector)
    return collected


def exposition(collected: CollectorRegistry) -> Iterator[bytes]:
    """Yield the text that Prometheus reads, a piece for some hundred lines of a metric."""
    for metric in collected.collect():
        samples = metric.samples
        metric.samples = samples[:MOST_AT_ONCE]
        yield generate_latest(_SingleMetric(metric))
        for first in range(MOST_AT_ONCE, len(samples), MOST_AT_ONCE):
            metric.samples = samples[first : first + MOST_AT_ONCE]
            yield generate_latest(_SingleMetric(metric)).split(b"\n", 2)[2]  # its help and type are already present


class _SingleMetric:
    """Registry of one metric."""

    def __init__(self, metric: Metric) -> None:
        self.metric = metric

    def collect(self) -> Iterator[Metric]:
        yield self.metric
