"""Real clients are asked for their metrics, which a broker without a plugin does not do, and they come to /metrics."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from confluent_kafka import Producer
from prometheus_client.parser import text_string_to_metric_families

from kproxy.cli import main
from kproxy.testing.kafka import Kafka
from kproxy.testing.plugin import Proxies
from kproxy.testing.process import Proxy, free_port
from tests.support.java_program import JavaProgram
from tests.support.topics import create_topics
from tests.support.wait import until

BEGIN = "kproxy_client_telemetry_"


def asking(kafka: Kafka, start: Proxies, *, rules: Any = (), workers: int = 1, **telemetry: Any) -> Proxy:
    """A proxy that asks clients for their metrics each second."""
    return start(
        config={
            "clusters": {"main": {"bootstrap": kafka.bootstrap("DIRECT").split(",")}},
            "listeners": [{"name": "main", "bind": f"127.0.0.1:{free_port()}", "cluster": "main"}],
            "workers": workers,
            "telemetry": {"interval": "1s", **telemetry},
        },
        rules=list(rules),
    )


def told(proxy: Proxy) -> dict[tuple[str, ...], float]:
    """What clients have told: (name, values of its labels in the order of their names…) → number."""
    return {
        (sample.name.removeprefix(BEGIN), *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(proxy.get("/metrics")[1])
        for sample in family.samples
        if sample.name.startswith(BEGIN)
    }


def test_java(kafka3: Kafka, java: JavaProgram, kproxy_process: Proxies) -> None:
    """A producer and a consumer of a tenant, with the topic's name at the broker, from several pushes in a row."""
    proxy = asking(
        kafka3,
        kproxy_process,
        rules=[{"name": "tenant", "kind": "prefix", "prefix": "t1."}],
        metrics=["org.apache.kafka.producer.", "org.apache.kafka.consumer."],
        labels=["role", "topic", "client_id"],
    )
    create_topics(kafka3.bootstrap("DIRECT"), "t1.told", partitions=1, replicas=1)
    base = {"bootstrap.servers": proxy.bootstrap}
    java(
        "traffic_start",
        name="told",
        topic="told",
        producer=base | {"client.id": "writer"},
        consumer=base | {"client.id": "reader", "group.id": "told", "auto.offset.reset": "earliest"},
    )
    try:
        topic_total = "producer_topic_record_send_total", "writer", "producer", "t1.told"
        lag = "consumer_fetch_manager_records_lag", "reader", "consumer", "t1.told"
        until(lambda: told(proxy).get(topic_total, 0) and lag in told(proxy), seconds=60)
        before = told(proxy)[topic_total]
        until(lambda: told(proxy)[topic_total] > before, seconds=60)
    finally:
        report = java("traffic_stop", name="told")

    found = told(proxy)
    assert found["producer_connection_creation_total", "writer", "producer", ""] >= 1
    assert found["consumer_connection_creation_total", "reader", "consumer", ""] >= 1
    assert found["consumer_coordinator_assigned_partitions", "reader", "consumer", ""] == 1
    assert found["producer_node_request_latency_max", "writer", "producer", ""] >= 0
    assert 0 < found[topic_total] <= report["acknowledged"]
    assert not [name for name in found if name[0].endswith("_rate")]
    assert report["errors"] == []
    assert not proxy.metric("kproxy_telemetry_invalid_total")


def test_librdkafka(kafka3: Kafka, kproxy_process: Proxies) -> None:
    """Workers tell their numbers together, and the last push comes as a client ends."""
    proxy = asking(kafka3, kproxy_process, workers=2, metrics="standard")
    create_topics(kafka3.bootstrap("DIRECT"), "told-c", partitions=3, replicas=1)
    producers = [Producer({"bootstrap.servers": proxy.bootstrap, "client.id": f"shop-{number}"}) for number in (0, 1)]

    def clients() -> set[str]:
        for producer in producers:
            producer.produce("told-c", b"one")
            assert producer.flush(30) == 0
        return {values[0] for name, *values in told(proxy) if name == "producer_record_queue_time_max"}

    until(lambda: clients() == {"shop-0", "shop-1"}, seconds=60)
    names = {name for name, *_ in told(proxy)}
    assert names >= {"producer_node_request_latency_avg", "producer_record_queue_time_avg"}

    def pushes() -> float:
        return proxy.metric("kproxy_telemetry_pushes_total")

    before = pushes()
    for producer in producers:
        producer.close()
    until(lambda: pushes() >= before + 2)
    assert not proxy.metric("kproxy_telemetry_unreadable_total")


@pytest.mark.deep
def test_a_subscription_that_changes(kafka3: Kafka, java: JavaProgram, kproxy_process: Proxies) -> None:
    """Clients that are asked for something else by another config tell that, on the connections that they have, and
    nothing any more once nobody asks."""
    middle, most = [
        [f"org.apache.kafka.{role}.node.request.latency.{what}" for role in ("producer", "consumer")]
        for what in ("avg", "max")
    ]
    proxy = asking(kafka3, kproxy_process, metrics=middle, labels=["client_id"])
    create_topics(kafka3.bootstrap("DIRECT"), "told-anew", partitions=1, replicas=1)
    base = {"bootstrap.servers": proxy.bootstrap}
    java(
        "traffic_start", name="told-anew", topic="told-anew", producer=base | {"client.id": "writer"},
        consumer=base | {"client.id": "reader", "group.id": "told-anew", "auto.offset.reset": "earliest"},
    )  # fmt: skip
    shop = Producer(base | {"client.id": "shop"})

    def who_told(what: str) -> set[str]:
        """The clients that told something of that kind, after one of them has written once more."""
        shop.produce("told-anew", b"one")
        assert shop.flush(30) == 0
        return {values[0] for name, *values in told(proxy) if name.endswith(f"_latency_{what}")}

    try:
        until(lambda: who_told("avg") == {"writer", "reader", "shop"}, seconds=60)
        assert who_told("max") == set()
        reconfigured(proxy, {"interval": "1s", "metrics": most, "labels": ["client_id"]})
        until(lambda: who_told("max") == {"writer", "reader", "shop"}, seconds=60)
        reconfigured(proxy, None)
        until(lambda: pushes_within(proxy, 3) == 0, seconds=60)
        assert told(proxy) == {}
        closed = proxy.samples("kproxy_connections_closed_total")
        assert not [labels for labels, value in closed if value and labels["cause"] != "client_closed"]
    finally:
        report = java("traffic_stop", name="told-anew")
    assert report["errors"] == []
    assert not proxy.metric("kproxy_telemetry_invalid_total")


def reconfigured(proxy: Proxy, telemetry: dict[str, Any] | None) -> None:
    """Have the proxy go on with another `telemetry` section, or without one."""
    file = Path(proxy.said("kproxy starts")[0]["config"])
    document = {name: value for name, value in yaml.safe_load(file.read_text()).items() if name != "telemetry"}
    file.write_text(yaml.safe_dump(document if telemetry is None else document | {"telemetry": telemetry}))
    ran = CliRunner().invoke(main, ["config", "apply"], env={"KPROXY_ADMIN": f"http://{proxy.admin}"})
    assert ran.exit_code == 0, ran.output


def pushes_within(proxy: Proxy, seconds: float) -> float:
    """Return how many payloads come in the next seconds."""
    before = proxy.metric("kproxy_telemetry_pushes_total")
    time.sleep(seconds)
    return proxy.metric("kproxy_telemetry_pushes_total") - before
