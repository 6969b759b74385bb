"""Metrics of several processes become those of one."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from kproxy.record.metrics.merged import MergedCollector, MetricSamples, collect_samples, growing_metrics, merge_metrics


class Given(Collector):
    """Says what it was given."""

    def __init__(self, *metrics: Metric) -> None:
        self.metrics = metrics

    def collect(self) -> list[Metric]:
        return list(self.metrics)


def process(requests: int, fast: int, slow: int, **gauges: float) -> list[MetricSamples]:
    counter = CounterMetricFamily("requests", "Requests.", labels=["api"])
    counter.add_metric(["Produce"], requests)
    if requests > 5:
        counter.add_metric(["Fetch"], 1)
    times = HistogramMetricFamily("seconds", "Times.")
    times.add_metric([], [("0.1", fast), ("+Inf", fast + slow)], fast * 0.05 + slow)
    return collect_samples(
        [Given(counter, times, *(GaugeMetricFamily(name, "G.", value=value) for name, value in gauges.items()))]
    )


def numbers(families: list[MetricSamples], name: str) -> list[tuple[dict[str, str], float]]:
    return [(labels, number) for one in families for sample, labels, number in one.samples if sample == name]


def test_counters_are_added_up_line_by_line() -> None:
    """A line that only one process has is there, too."""
    found = merge_metrics([process(3, 0, 0), process(9, 0, 0)])

    assert numbers(found, "requests_total") == [({"api": "Produce"}, 12.0), ({"api": "Fetch"}, 1.0)]


def test_histograms_are_added_up() -> None:
    """Buckets, count and sum; as one process would have counted all of it."""
    found = merge_metrics([process(0, 2, 1), process(0, 5, 4)])

    assert numbers(found, "seconds_bucket") == [({"le": "0.1"}, 7.0), ({"le": "+Inf"}, 12.0)]
    assert numbers(found, "seconds_count") == [({}, 12.0)]
    assert numbers(found, "seconds_sum") == [({}, 7 * 0.05 + 5)]


def test_gauges_are_amounts_but_for_those_that_are_named() -> None:
    """A limit is no sum, nor is a time or a yes."""
    one = process(
        0, 0, 0, kproxy_buffered_bytes=10, process_max_fds=100, kproxy_audit_failing=0, process_start_time_seconds=5
    )
    two = process(
        0, 0, 0, kproxy_buffered_bytes=5, process_max_fds=90, kproxy_audit_failing=1, process_start_time_seconds=7
    )
    found = merge_metrics([one, two])

    said = {name: numbers(found, name)[0][1] for name in (
        "kproxy_buffered_bytes", "process_max_fds", "kproxy_audit_failing", "process_start_time_seconds",
    )}  # fmt: skip
    assert said == {
        "kproxy_buffered_bytes": 15.0, "process_max_fds": 90.0, "kproxy_audit_failing": 1.0,
        "process_start_time_seconds": 5.0,
    }  # fmt: skip


def test_what_a_process_had_counted_stays_and_what_it_had_goes() -> None:
    """Of one that has ended."""
    left = growing_metrics(process(4, 1, 0, kproxy_buffered_bytes=10))

    assert [one.name for one in left] == ["requests", "seconds"]


def test_the_exposition_is_that_of_the_parts() -> None:
    """One process alone reads as it would have by itself."""
    counter = CounterMetricFamily("requests", "Requests.", labels=["api"])
    counter.add_metric(["Produce"], 3)
    direct, through = CollectorRegistry(auto_describe=False), CollectorRegistry(auto_describe=False)
    direct.register(Given(counter))
    through.register(MergedCollector(lambda: [collect_samples([Given(counter)])]))

    assert generate_latest(through) == generate_latest(direct)
