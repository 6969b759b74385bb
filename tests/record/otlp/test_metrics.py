"""Metrics of a scrape, as the collector gets them."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    SummaryMetricFamily,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector as MetricsCollector

from kproxy.record.metrics.merged import MetricSamples, collect_samples
from kproxy.record.metrics.traffic import exposition, registry_of
from kproxy.record.otlp.export import Exporter, OtlpCollector, OtlpCounters, OtlpSettings
from kproxy.record.otlp.metrics_export import MetricsExport, in_requests
from kproxy.record.otlp.payload import RequestEncoder
from tests.record.audit.conftest import Log
from tests.support.otlp_collector import Collector, Reply, samples_of
from tests.support.wait import until

Settings = Callable[..., OtlpSettings]


class Everything(MetricsCollector):
    """Collector of a metric of each type, with hostile names and numbers."""

    number = 7.0

    def collect(self) -> Iterator[Metric]:
        counter = CounterMetricFamily("kproxy_requests", "Requests.", labels=["api", "client_id"])
        counter.add_metric(["Produce", "shop"], self.number)
        counter.add_metric(["Fetch", 'evil "\\\n\x00 ☃ \udc80'.encode("utf-8", "replace").decode()], 2**53)
        yield counter
        yield GaugeMetricFamily("kproxy_buffered_bytes", "Bytes.", value=-1.5)
        lag = GaugeMetricFamily("kproxy_odd", "Numbers that JSON lacks.", labels=["what"])
        for word, value in (("nan", math.nan), ("much", math.inf), ("little", -math.inf)):
            lag.add_metric([word], value)
        yield lag
        seconds = HistogramMetricFamily("kproxy_upstream_request_duration_seconds", "Seconds.", labels=["api"])
        seconds.add_metric(["Produce"], [("0.001", 1), ("0.25", 4), ("+Inf", 9)], 3.5)
        seconds.add_metric(["Fetch"], [("0.001", 0), ("0.25", 0), ("+Inf", 0)], 0.0)
        yield seconds
        told = SummaryMetricFamily("kproxy_client_upstream_request_duration_seconds", "Seconds.", labels=["client_id"])
        told.add_metric(["shop"], 4, 0.25)
        yield told
        yield CounterMetricFamily("kproxy_nothing", "It has no samples.", labels=["api"])


def of_prometheus(collector: MetricsCollector) -> dict[Any, float]:
    """What a scrape of the same says, by Prometheus' own parser."""
    text = b"".join(exposition(registry_of(collector))).decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def of_collector(collector: Collector) -> dict[Any, float]:
    return {key: value for metric in collector.metrics().values() for key, value in samples_of(metric).items()}


@pytest.fixture
def export(settings: Settings) -> Iterator[Callable[..., MetricsExport]]:
    """Makes started exports; closed after the test."""
    made: list[MetricsExport] = []

    def make(log: Any = None, **own: Any) -> MetricsExport:
        made.append(MetricsExport(settings(**own), OtlpCounters(), log or Log()))
        made[-1].start()
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.mark.parametrize("encoding", ["json", "protobuf"])
def test_the_numbers_are_those_of_a_scrape(collector: Collector, export: Any, encoding: str) -> None:
    """Sample by sample, by the proto's classes here and Prometheus' parser there."""
    own = export(encoding=encoding)
    own.offer(collect_samples([Everything()]))
    until(lambda: collector.taken)
    found, expected = of_collector(collector), of_prometheus(Everything())

    assert found.keys() == expected.keys()
    assert {key: repr(value) for key, value in found.items()} == {
        key: repr(float(value) if key[0][-6:] != "_count" and key[0][-7:] != "_bucket" else int(value))
        for key, value in expected.items()
    }
    metric = collector.metrics()["kproxy.requests"]
    assert (metric.sum.is_monotonic, metric.sum.aggregation_temporality) == (True, 2)
    assert 0 < metric.sum.data_points[0].start_time_unix_nano <= metric.sum.data_points[0].time_unix_nano
    assert {name: one.unit for name, one in collector.metrics().items() if one.unit} == {
        "kproxy.buffered.bytes": "By", "kproxy.upstream.request.duration.seconds": "s",
        "kproxy.client.upstream.request.duration.seconds": "s",
    }  # fmt: skip
    resource = {one.key: one.value.string_value for one in collector.taken[0].resource_metrics[0].resource.attributes}
    assert resource.keys() == {"service.name", "service.instance.id", "service.version"}
    assert (resource["service.name"], resource["service.instance.id"]) == ("kproxy", "host/3")
    assert collector.headers[0]["x-tenant"] == "shop"


def test_many_samples_go_in_several_requests() -> None:
    """Each has at most so many, but for a metric that has more; nothing is left out and nothing sent twice."""
    sizes = (3, 0, 4, 2, 20, 1)
    metrics = [MetricSamples(f"m{index}", "", "gauge", [("", {}, 0.0)] * size) for index, size in enumerate(sizes)]

    groups = [[one.name for one in group] for group in in_requests(metrics, 7)]
    assert groups == [["m0", "m2"], ["m3"], ["m4"], ["m5"]]


def test_the_newest_goes_next(collector: Collector, export: Any) -> None:
    """While one export is under way the snapshots in between are replaced, and counted."""
    held, numbers = threading.Event(), Everything()
    collector.replies = [Reply(before=lambda: held.wait(60) or None)]
    own = export()
    for number in (1.0, 2.0, 3.0):
        numbers.number = number
        own.offer(collect_samples([numbers]))
        until(lambda: collector.paths)
    held.set()
    until(lambda: len(collector.taken) == 2)

    sent = [
        next(iter(samples_of(one.resource_metrics[0].scope_metrics[0].metrics[0]).values())) for one in collector.taken
    ]
    assert sent == [1.0, 3.0]
    assert own.exporter.counters.dropped["metrics"] == 1


def test_a_collector_that_is_down_and_comes_back(collector: Collector, export: Any) -> None:
    """The log says so twice, not at each attempt; what is sent in between is left to the next turn."""
    log = Log()
    own = export(log)
    collector.down()
    own.offer(collect_samples([Everything()]))
    until(lambda: own.exporter.counters.dropped["metrics"] == 1)
    own.offer(collect_samples([Everything()]))  # it is not asked again at once
    until(lambda: own.exporter.counters.dropped["metrics"] == 2)
    collector.up()
    own.exporter.ready_at = 0.0
    own.offer(collect_samples([Everything()]))
    until(lambda: collector.taken)
    until(lambda: log.texts("info"))

    assert log.texts("warning") == ["otlp: the collector does not accept requests, kproxy retries"]
    assert dict(own.exporter.counters.exports) == {("metrics", "unreachable"): 1, ("metrics", "ok"): 1}
    text = b"".join(exposition(registry_of(OtlpCollector(own.exporter.counters)))).decode()
    assert 'kproxy_otlp_exports_total{outcome="ok",signal="metrics"} 1.0' in text
    assert 'kproxy_otlp_dropped_total{signal="metrics"} 2.0' in text


@pytest.mark.parametrize(
    ("reply", "outcome", "waits"),
    [
        (Reply(429, {"Retry-After": "60"}), "busy", 60),
        (Reply(503, {"Retry-After": "60"}), "busy", 60),
        (Reply(503), "busy", 1),
        (Reply(503, {"Retry-After": "0"}), "busy", 1),
        (Reply(429, {"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}), "busy", 1),
        (Reply(401), "refused", 1),
        (Reply(302, {"Location": "http://127.0.0.1:1/"}), "refused", 1),
        (Reply(400), "refused", 0),
        (Reply(200, {}, b"<html>welcome</html>"), "unreadable", 1),
        (Reply(200, {}, b"[]"), "unreadable", 1),
        (Reply(200, {}, b'{"partialSuccess": 7}'), "unreadable", 1),
        (Reply(200, {}, b'{"partialSuccess": {"rejectedDataPoints": "many"}}'), "unreadable", 1),
        (Reply(200, {}, b'{"partialSuccess": {"rejectedDataPoints": [1]}}'), "unreadable", 1),
        (Reply(200, {}, b'{"partialSuccess": {"rejectedDataPoints": 1e308}}'), "unreadable", 1),
        (Reply(200, {}, b'{"partialSuccess": {"rejectedDataPoints": ' + b"9" * 5000 + b"}}"), "unreadable", 1),
        (Reply(200, {}, b"[" * 60_000), "unreadable", 1),
        (Reply(200, {}, b"x" * 100_000), "unreadable", 1),
        (Reply(200, {}, b'{"partialSuccess": {"rejectedDataPoints": "3", "errorMessage": "no"}}'), "partial", 0),
        (Reply(200, {}, b""), "ok", 0),
        (Reply(204), "ok", 0),
    ],
)  # fmt: skip
def test_what_becomes_of_an_answer(collector: Collector, export: Any, reply: Reply, outcome: str, waits: float) -> None:
    """Each answer is one outcome, and says when the collector may be asked again."""
    collector.replies = [reply]
    own = export()
    own.offer(collect_samples([Everything()]))
    until(lambda: own.exporter.counters.exports)

    assert dict(own.exporter.counters.exports) == {("metrics", outcome): 1}
    left = max(0.0, own.exporter.ready_at - own.exporter.clock())
    assert left == pytest.approx(waits, rel=0.3, abs=0.3)


@pytest.mark.parametrize(
    ("body", "message"),
    [(b"[7]", "an object with a"),
     (b'{"partialSuccess": {"rejectedSpans": [1]}}', "a number of rejected items, got list"),
     (b"[" * 60_000, "an OTLP response, got JSON that is nested too deep")],
)  # fmt: skip
def test_malformed_response_raises_what_was_expected(body: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=f"^expected {message}"):
        RequestEncoder("traces", "a", "json").rejected(body)


def test_why_some_is_thrown_away_is_told_once_a_minute(collector: Collector, settings: Settings) -> None:
    """Else nobody would know: counters say only that it was."""
    log, now = Log(), [0.0]
    exporter = Exporter("metrics", settings(), OtlpCounters(), log, lambda: now[0])
    body = b'{"partialSuccess": {"rejectedDataPoints": "2", "errorMessage": "too many series"}}'
    collector.replies = [Reply(200, {}, body) for _ in range(3)]
    told = []
    for second in (0.0, 59.0, 61.0):
        now[0] = second
        assert exporter.send([], 5).outcome == "partial"
        told.append(len(log.lines))
    exporter.close()

    assert told == [1, 1, 2]
    level, _, words = log.lines[0]
    assert (level, words) == ("warning", {"signal": "metrics", "rejected": 2, "error": "too many series"})


def test_the_last_numbers_are_sent(collector: Collector, export: Any) -> None:
    """A process that ends says what it has counted, if that does not take long."""
    own = export()
    own.offer(collect_samples([Everything()]))
    own.close()

    assert len(collector.taken) == 1
