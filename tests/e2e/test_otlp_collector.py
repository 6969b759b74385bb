"""Exports to the OpenTelemetry project's own collector: what it has written is what kproxy sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from kproxy.testing.cluster import MockCluster
from tests.support.raw_client import METADATA, RawClient
from tests.support.real_collector import RealCollector
from tests.support.wait import until

from .test_otlp import exported, resting, samples_in, scraped

pytestmark = pytest.mark.tools("otelcol")
PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SENDER = ("job", "instance", "otel_scope_")
"""How labels begin that say who has sent a number."""


@pytest.fixture
def collectors(tmp_path: Path) -> Iterator[Callable[..., RealCollector]]:
    """Makes collectors, which stop at the end."""
    made: list[RealCollector] = []

    def make(**http: Any) -> RealCollector:
        folder = tmp_path / f"collector-{len(made)}"
        folder.mkdir()
        made.append(RealCollector(folder, http))
        return made[-1]

    yield make
    for one in made:
        one.child.stop()


def numbers(collector: RealCollector) -> list[int]:
    """The numbers of the events that came, of one process."""
    lines = collector.log_lines()
    assert len({line["source"] for line in lines}) <= 1
    return [int(line["id"]) for line in lines]


@pytest.mark.parametrize("encoding", ["json", "protobuf"])
def test_a_real_collector_takes_all_signals(
    collectors: Callable[..., RealCollector], proxy_with: Callable[..., Any], encoding: str
) -> None:
    """Metrics with the numbers of /metrics, also as it serves them to Prometheus; each event; the spans of records."""
    collector = collectors()
    with MockCluster(1) as cluster:
        cluster.create_topic("orders", 1)
        otlp = {
            "endpoint": collector.endpoint, "encoding": encoding, "metrics": "1s", "logs": "audit",
            "traces": {"topics": ["orders"]},
        }  # fmt: skip
        proxy = proxy_with(
            cluster.bootstrap, otlp=otlp, metrics={"by": ["client_id", "topic"]},
            audit={"level": "requests", "flush": "50ms"},
        )  # fmt: skip
        producer = Producer({"bootstrap.servers": proxy.bootstrap, "client.id": "shop €", "compression.type": "gzip"})
        for number in range(20):
            producer.produce("orders", b"%d" % number, headers=[("traceparent", f"00-{PARENT[0]}-{PARENT[1]}-01")])
        assert producer.flush(30) == 0
        consumer = Consumer({"bootstrap.servers": proxy.bootstrap, "group.id": "readers", "client.id": "reader"})
        consumer.assign([TopicPartition("orders", 0, OFFSET_BEGINNING)])
        read: list[Any] = []
        until(lambda: read.extend(consumer.consume(20 - len(read), 0.2)) or len(read) == 20)
        consumer.close()
        del producer
        until(lambda: proxy.metric("kproxy_connections_open") == 0)
        until(lambda: resting(exported(collector)) == resting(scraped(proxy)))
        until(lambda: resting(served(collector)).items() >= resting(scraped(proxy)).items())
        assert proxy.metric("kproxy_otlp_exports_total", outcome="ok") > 0
        assert all(
            proxy.metric("kproxy_otlp_exports_total", outcome=outcome) == 0
            for outcome in ("partial", "busy", "refused", "unreadable", "unreachable")
        )
        assert proxy.stop() == 0

    collector.down()
    found = numbers(collector)
    assert found == list(range(1, len(found) + 1))
    assert {line["data"]["client_id"] for line in collector.log_lines() if "request" in line["type"]} >= {"shop €"}
    assert {span.name for span in collector.spans()} == {"send orders", "poll orders"}
    assert {(span.trace_id.hex(), span.parent_span_id.hex()) for span in collector.spans()} == {PARENT}


def served(collector: RealCollector) -> dict[Any, float]:
    """What the collector serves to Prometheus, by name and labels but for those that say who has sent it."""
    return {
        (name, tuple(sorted(label(*pair) for pair in labels if not pair[0].startswith(SENDER)))): value
        for (name, labels), value in samples_in(collector.scraped()).items()
    }


def label(name: str, value: str) -> tuple[str, str]:
    """A label as kproxy writes it: bounds of buckets with a digit after the point."""
    return name, str(float(value)).replace("inf", "+Inf") if name == "le" else value


def test_a_collector_that_ends_and_comes_back(
    collectors: Callable[..., RealCollector], proxy_with: Callable[..., Any], fake: Callable[..., Any]
) -> None:
    """Events wait for it, and each comes, in order."""
    collector = collectors()
    proxy = proxy_with(
        fake().address, otlp={"endpoint": collector.endpoint, "logs": "audit", "timeout": "2s"},
        audit={"level": "requests", "flush": "50ms"},
    )  # fmt: skip
    with RawClient(proxy.bootstrap) as client:
        for turn in range(4):
            for _ in range(5):
                client.brokers()
            if turn == 1:
                before = len(numbers(collector))
                collector.down()
                client.brokers()
                until(lambda: proxy.logged("otlp: the collector does not accept requests, kproxy retries"))
            elif turn == 2:
                collector.up()
    until(lambda: len(numbers(collector)) > before + 10)
    assert proxy.stop() == 0
    collector.down()
    found = numbers(collector)
    assert list(dict.fromkeys(found)) == list(range(1, max(found) + 1))


def test_an_event_that_a_collector_refuses(
    collectors: Callable[..., RealCollector], proxy_with: Callable[..., Any], fake: Callable[..., Any]
) -> None:
    """It takes no body of over 8 kB: what does not fit is found, dropped and told, and all others come."""
    collector = collectors(max_request_body_size=8_000)
    proxy = proxy_with(
        fake().address, otlp={"endpoint": collector.endpoint, "logs": "audit"},
        audit={"level": "requests", "flush": "50ms"},
    )  # fmt: skip
    large = {"topics": [{"name": f"{number:02d}".ljust(200, "x")} for number in range(60)]}
    with RawClient(proxy.bootstrap) as client:
        for _ in range(30):
            client.brokers()
        client.call(3, 4, METADATA | large)
        for _ in range(30):
            client.brokers()
    assert proxy.stop() == 0

    collector.down()
    found = numbers(collector)
    (told,) = [line["data"] for line in collector.log_lines() if "dropped" in line["data"]]
    assert (told["dropped"], told["message"]) == (1, "otlp: refused 1")
    assert told["first_id"] == told["last_id"]
    assert found == [number for number in range(1, max(found) + 1) if number != told["first_id"]]
    assert sum(line["type"] == "kproxy.request.v1" for line in collector.log_lines()) >= 60
