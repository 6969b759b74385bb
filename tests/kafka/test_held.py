"""Real clients whose writes are held and edited: the broker stores what was edited, and nobody else waits."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from kafka import KafkaProducer

from kproxy.cli.admin_client import Admin
from kproxy.testing.kafka import Kafka
from kproxy.testing.process import Proxy
from tests.support.java_program import JavaProgram
from tests.support.topics import create_topics
from tests.support.wait import until

Write = Callable[[str, str], object]


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


def by_librdkafka(bootstrap: str, topic: str) -> object:
    """Write one record; return its offset."""
    told: list[Any] = []
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, b"as it was", on_delivery=lambda error, message: told.append(error or message.offset()))
    producer.flush(30)
    return told[0]


def by_kafka_python(bootstrap: str, topic: str) -> object:
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    try:
        return producer.send(topic, b"as it was").get(30).offset
    finally:
        producer.close()


@pytest.mark.deep
@pytest.mark.usefixtures("kafka_python")
@pytest.mark.parametrize("client", ["java", "librdkafka", "kafka-python"])
def test_the_broker_stores_what_was_edited(
    client: str, kafka3: Kafka, plain_proxy: Proxy, java: JavaProgram, threads: ThreadPoolExecutor
) -> None:
    """While one client waits, another one writes and is answered."""
    admin, topic, other = Admin(f"http://{plain_proxy.admin}"), f"held-{client}", f"free-{client}"
    for name in (topic, other):
        create_topics(kafka3.bootstrap("DIRECT"), name, partitions=1, replicas=1)

    def by_java(bootstrap: str, topic: str) -> object:
        config = {"bootstrap.servers": bootstrap, "enable.idempotence": "true"}
        return java("produce", config=config, topic=topic, tag="v", count=1, padding=10)

    write: Write = {"java": by_java, "librdkafka": by_librdkafka, "kafka-python": by_kafka_python}[client]
    rule = {"kind": "intercept", "match": {"api": "Produce", "topic": topic}, "hold_for": "25s"}
    admin("PUT", "/api/rules/hold", json.dumps(rule).encode(), query={"ttl": "60s"})
    try:
        writing: Future[object] = threads.submit(write, plain_proxy.bootstrap, topic)
        until(lambda: admin("GET", "/api/held")["held"], seconds=60)
        assert by_librdkafka(plain_proxy.bootstrap, other) == 0
        assert not writing.done()
        (held,) = admin("GET", "/api/held")["held"]
        steps = admin("GET", f"/api/held/{held['id']}")["frame"]["steps"]
        (path,) = [step[3] for step in steps if step[3].endswith(".records") and step[4] == "value"]
        change = {"revision": held["revision"], "who": "mara", "set": [{"path": f"{path}[0].value", "value": "edited"}]}
        gone = admin("POST", f"/api/held/{held['id']}/resume", json.dumps(change).encode())
        assert gone["gone"] == "edited"
        writing.result(60)
    finally:
        admin("DELETE", "/api/rules/hold")
    assert stored(kafka3.bootstrap("DIRECT"), topic) == b"edited"
    assert stored(kafka3.bootstrap("DIRECT"), other) == b"as it was"


def stored(bootstrap: str, topic: str) -> bytes | None:
    """Read the first record of a topic past the proxy."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": f"g-{topic}", "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([topic])
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None
        value: bytes | None = message.value()
        return value
    finally:
        consumer.close()
