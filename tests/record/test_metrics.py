"""The collector: plain counters in, Prometheus' text out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

import kproxy
from kproxy.record.metrics.traffic import EVENT_COUNTERS, TrafficCollector, exposition, registry
from kproxy.runtime.capacity import ConnectionCounts
from kproxy.session.counters import BROKER_BOUNDS, Counters, Histogram, Tallies


class Live:
    """Two connections on one listener."""

    def open_by_listener(self) -> Mapping[str, int]:
        return {"outside": 2}

    def bytes_read(self) -> tuple[int, int]:
        return 10, 20


def samples(collector: TrafficCollector) -> dict[tuple[str, tuple[str, ...]], float]:
    text = b"".join(exposition(registry(collector))).decode()
    return {
        (sample.name, tuple(sorted(sample.labels.values()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_what_was_counted_is_shown() -> None:
    """Steps of several plans add up by api, version and plan; every count has its labels."""
    counters, counts = Counters(), ConnectionCounts()
    tallies = Tallies()
    for key, version, api, depth in (
        (0, 9, "Produce", "header"),
        (0, 9, "Produce", "header"),
        (3, 12, "Metadata", "fields"),
        (12, 77, "Heartbeat", "none"),
        (12, 78, "Heartbeat", "none"),
    ):
        tally = tallies.of(key, version, api, depth)
        tally.requests += 5
        tally.latency.add(0.002, times=3)
    counters.rewritten["brokers"] = 3
    counters.stopped["Vote"] = 4
    counters.count("nodes_hidden", 2)
    counters.proxy_time.add(0.00001, times=16)
    counts.closed["client_closed"] = 7

    found = samples(TrafficCollector(counters, counts, tallies.values, Live(), lambda: {"request": 50}))

    assert found["kproxy_requests_total", ("9", "Produce", "header")] == 10
    assert found["kproxy_responses_total", ("9", "Produce", "header")] == 6
    assert found["kproxy_requests_total", ("12", "Metadata", "fields")] == 5
    assert found["kproxy_requests_total", ("Heartbeat", "none", "unknown")] == 10
    assert found["kproxy_upstream_request_duration_seconds_count", ("Produce",)] == 6
    assert found["kproxy_upstream_request_duration_seconds_bucket", ("0.001", "Produce")] == 0
    assert found["kproxy_upstream_request_duration_seconds_bucket", ("0.0025", "Produce")] == 6
    assert abs(found["kproxy_upstream_request_duration_seconds_sum", ("Produce",)] - 0.012) < 1e-9
    assert found["kproxy_processing_duration_seconds_count", ()] == 16
    assert found["kproxy_rewritten_total", ("brokers",)] == 3
    assert found["kproxy_addresses_withheld_total", ("blocked",)] == 4
    assert found["kproxy_addresses_withheld_total", ("hidden",)] == 2
    assert found["kproxy_connections_closed_total", ("client_closed",)] == 7
    assert found["kproxy_connections_open", ("outside",)] == 2
    assert found["kproxy_read_bytes_total", ("broker",)] == 20
    assert found["kproxy_buffered_bytes", ("request",)] == 50


def test_a_histogram_counts_at_its_bounds_and_beyond() -> None:
    """A duration on a bound belongs to that bucket, one above all to the last."""
    histogram = Histogram(BROKER_BOUNDS)
    for seconds in (0.0, BROKER_BOUNDS[0], BROKER_BOUNDS[-1], 1e6):
        histogram.add(seconds)
    other = Histogram(BROKER_BOUNDS)
    other.merge(histogram)
    other.merge(histogram)

    assert (histogram.buckets[0], histogram.buckets[-2], histogram.buckets[-1]) == (2, 1, 1)
    assert (histogram.count, other.count) == (4, 8)
    assert other.total == 2 * histogram.total


def test_every_counted_event_has_a_metric() -> None:
    folder = Path(kproxy.__file__).parent
    texts = [file.read_text() for part in ("session", "app") for file in (folder / part).rglob("*.py")]
    literals = {word for text in texts for word in re.findall(r"""ount(?:ers)?\.count\("(\w+)\"""", text)}
    literals |= {word for text in texts for word in re.findall(r"""context\.count\("(\w+)\"""", text)}

    assert len(literals) > 25
    assert literals <= EVENT_COUNTERS.keys()
