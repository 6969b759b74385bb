"""Exports of whole proxies to a collector: the numbers of /metrics, and the audit's events."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from prometheus_client.parser import text_string_to_metric_families

from kproxy.testing.cluster import MockCluster
from tests.support.otlp_collector import Collector, TakenTelemetry, samples_of
from tests.support.raw_client import RawClient
from tests.support.wait import until

MOVING = ("process_", "kproxy_otlp_", "kproxy_audit_", "kproxy_processing_duration_seconds", "kproxy_certificate_")
"""Numbers that change while nothing passes."""


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.down()
    assert made.wrong == []


def exported(collector: TakenTelemetry) -> dict[Any, float]:
    """What came last, by name and labels; empty while nothing has come."""
    return {key: value for metric in collector.metrics().values() for key, value in samples_of(metric).items()}


def scraped(proxy: Any) -> dict[Any, float]:
    return samples_in(proxy.get("/metrics")[1])


def samples_in(text: str) -> dict[Any, float]:
    """What Prometheus would read, by name and labels."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def resting(samples: dict[Any, float]) -> dict[Any, float]:
    return {key: value for key, value in samples.items() if not key[0].startswith(MOVING)}


def requests(samples: dict[Any, float]) -> float:
    """How many Metadata requests were counted, in all versions and plans."""
    return sum(value for (name, labels), value in samples.items()
               if name == "kproxy_requests_total" and ("api", "Metadata") in labels)  # fmt: skip


@pytest.mark.parametrize("workers", [1, 2])
def test_what_is_exported_is_what_is_scraped(
    fake: Callable[..., Any], proxy_with: Callable[..., Any], collector: Collector, workers: int
) -> None:
    """The same names, labels and numbers, of all workers together, and each event of the audit once."""
    otlp = {"endpoint": collector.endpoint, "metrics": "1s", "logs": "audit"}
    proxy = proxy_with(
        fake().address, otlp=otlp, workers=workers, audit={"level": "requests", "flush": "50ms"},
        metrics={"by": ["client_id"]},
    )  # fmt: skip
    for _ in range(4):
        with RawClient(proxy.bootstrap) as client:
            for _ in range(5):
                client.brokers()
    until(lambda: resting(exported(collector)) == resting(scraped(proxy)))
    found, expected = exported(collector), scraped(proxy)

    moving = {key[0] for key in expected if not key[0].startswith("kproxy_otlp_")}
    assert moving <= {key[0] for key in found}
    assert found["kproxy_connections_opened_total", (("listener", "main"),)] == 4
    assert requests(found) == 20
    until(lambda: sum("request" in line["type"] for line in collector.log_lines()) == 20)
    code = proxy.stop()

    assert code == 0
    ids = [(line["source"], line["id"]) for line in collector.log_lines()]
    assert len(set(ids)) == len(ids)
    for source in {source for source, _ in ids}:
        numbers = sorted(int(number) for own, number in ids if own == source)
        assert numbers == list(range(1, len(numbers) + 1))
    # the end is told, too
    assert sum(line["type"] == "kproxy.connection.v1" for line in collector.log_lines()) == 8  # beginnings and ends
    assert exported(collector)["kproxy_connections_open", (("listener", "main"),)] == 0


def test_spans_of_real_clients(proxy_with: Callable[..., Any], collector: Collector) -> None:
    """A write and a read of traced records are spans of their trace, and the records stay as they are. The cluster's id
    comes from the clients' Metadata."""
    parent = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
    headers = [("traceparent", f"00-{parent[0]}-{parent[1]}-01".encode())]
    with MockCluster(1) as cluster:
        cluster.create_topic("orders", 1)
        traces = {"endpoint": collector.endpoint, "traces": {"topics": ["orders"]}, "semconv": "1.44"}
        proxy = proxy_with(cluster.bootstrap, otlp=traces)
        producer = Producer({"bootstrap.servers": proxy.bootstrap, "compression.type": "gzip", "linger.ms": 50})
        for number in range(20):
            producer.produce("orders", b"s3cr3t" * 20, b"k3y-%d" % number, headers=headers)
        assert producer.flush(30) == 0
        consumer = Consumer({"bootstrap.servers": proxy.bootstrap, "group.id": "readers"})
        consumer.assign([TopicPartition("orders", 0, OFFSET_BEGINNING)])
        read: list[Any] = []
        until(lambda: read.extend(consumer.consume(20 - len(read), 0.2)) or len(read) == 20)
        until(lambda: {span.name for span in collector.spans()} == {"send orders", "poll orders"})
        cluster_id = producer.list_topics(timeout=30).cluster_id
        consumer.close()
        assert proxy.stop() == 0

    told = [{one.key: one.value.string_value for one in span.attributes} for span in collector.spans()]
    assert cluster_id and {one.get("messaging.kafka.cluster.id") for one in told} == {cluster_id}
    assert {one.headers()[0] for one in read} == set(headers)
    assert len({tuple(one.headers()) for one in read}) == 1
    assert {(span.trace_id.hex(), span.parent_span_id.hex()) for span in collector.spans()} == {parent}
    assert not any(b"s3cr3t" in raw or b"k3y" in raw for raw in collector.raw)


@pytest.mark.deep
def test_a_proxy_without_an_admin_address_exports(
    fake: Callable[..., Any], proxy_with: Callable[..., Any], collector: Collector
) -> None:
    """And one whose collector is not there starts and carries traffic all the same, and ends in time."""
    collector.down()
    proxy = proxy_with(
        fake().address, wait=False, admin=None, workers=2, otlp={"endpoint": collector.endpoint, "metrics": "1s"}
    )  # fmt: skip
    with RawClient(proxy.bootstrap) as client:
        client.brokers()
        until(lambda: proxy.logged("otlp: the collector does not accept requests, kproxy retries"))
        client.brokers()
        collector.up()
        until(
            lambda: (
                sum(value for (name, _), value in exported(collector).items() if name == "kproxy_requests_total") >= 2
            )
        )
    assert proxy.stop() == 0
