"""Connections that end at some age while real clients work: nothing fails, and nothing is lost or done twice."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from kafka import KafkaConsumer, KafkaProducer

from kproxy.testing.kafka import Kafka
from kproxy.testing.plugin import Proxies
from kproxy.testing.process import Proxy, free_port
from tests.support.java_program import JavaProgram
from tests.support.topics import create_topics

CLOSINGS = 100 if os.environ.get("KPROXY_TEST_ALL") else 10
"""Ends of connections that each client goes through."""


@pytest.fixture
def proxy(kafka3: Kafka, kproxy_process: Proxies) -> Proxy:
    """A proxy whose connections end when they are a second old, or half of that, or twice."""
    return kproxy_process(
        config={
            "clusters": {"main": {"bootstrap": kafka3.bootstrap("DIRECT").split(",")}},
            "listeners": [{"name": "main", "bind": f"127.0.0.1:{free_port()}", "cluster": "main"}],
            "limits": {"max_connection_age": "400ms", "max_connection_age_jitter": 0.5},
        }
    )


def ended(proxy: Proxy) -> float:
    """How many connections have ended for their age."""
    return float(proxy.metric("kproxy_connections_closed_total", cause="max_age") or 0)


@pytest.fixture
def enough(proxy: Proxy) -> Iterator[Callable[[], bool]]:
    """Whether CLOSINGS connections have ended; after the test there must be so many, and none that has ended otherwise,
    but by its client: some close with an answer unread, which is a reset."""
    yield lambda: ended(proxy) >= CLOSINGS
    assert ended(proxy) >= CLOSINGS
    causes = {labels["cause"] for labels, value in proxy.samples("kproxy_connections_closed_total") if value}
    assert {cause for cause in causes if not cause.startswith("client_")} == {"max_age"}, proxy.logs()


def topic_of(kafka3: Kafka, name: str) -> str:
    """A new topic of three partitions."""
    create_topics(kafka3.bootstrap("DIRECT"), name, partitions=3, replicas=1)
    return name


@pytest.mark.deep
def test_java(kafka3: Kafka, java: JavaProgram, proxy: Proxy, enough: Callable[[], bool]) -> None:
    """A producer and a group see no error, what was acknowledged is read, and transactional copies beside them have
    each record once."""
    topic, source, target = (topic_of(kafka3, f"aged-{word}") for word in ("java", "source", "target"))
    base = {"bootstrap.servers": proxy.bootstrap}
    committed = base | {"isolation.level": "read_committed", "auto.offset.reset": "earliest"}
    java("produce", config=base, topic=source, tag="v", count=100, padding=100)
    java(
        "traffic_start",
        name=topic,
        topic=topic,
        producer=base | {"acks": "all"},
        consumer=committed | {"group.id": topic},
    )
    copies = 0
    while not copies or not enough():
        copies += 1
        reader = committed | {"group.id": f"{source}-{copies}", "enable.auto.commit": False}
        writer = base | {"transactional.id": f"{source}-{copies}"}
        java("copy", consumer=reader, producer=writer, **{"from": source, "to": target}, count=100)
    report = java("traffic_stop", name=topic)
    rows = java("consume", config=committed | {"group.id": target}, topics=[target], count=100 * copies, seconds=60)

    assert (report["errors"], report["missing"]) == ([], [])
    assert report["acknowledged"] > CLOSINGS
    assert Counter(row[2].split()[0] for row in rows) == {f"v-{number}": copies for number in range(100)}


def test_librdkafka(kafka3: Kafka, proxy: Proxy, enough: Callable[[], bool]) -> None:
    """Each record is confirmed and read, once, and no error is worth a message to the application."""
    topic = topic_of(kafka3, "aged-librdkafka")
    base = {"bootstrap.servers": proxy.bootstrap, "log_level": 0}
    errors: list[object] = []
    sent: Counter[str] = Counter()
    found: Counter[str] = Counter()

    def produce() -> None:
        producer = Producer(base | {"enable.idempotence": True, "linger.ms": 0})
        number = 0
        while not enough():
            producer.produce(topic, str(number), callback=lambda error, _: error and errors.append(error))
            sent[str(number)] += 1
            number += 1
            producer.poll(0.005)
        assert producer.flush(60) == 0

    producing = threading.Thread(target=produce)
    consumer = Consumer(base | {"group.id": topic, "auto.offset.reset": "earliest", "enable.auto.commit": False})
    consumer.subscribe([topic])
    producing.start()
    while producing.is_alive() or found.total() < sent.total():
        for message in consumer.consume(100, 1.0):
            if message.error() is None:
                found[message.value().decode()] += 1
            else:
                errors.append(message.error())
    consumer.close()

    assert (errors, found) == ([], sent)


@pytest.mark.deep
def test_kafka_python(kafka_python: None, kafka3: Kafka, proxy: Proxy, enough: Callable[[], bool]) -> None:
    """Each record is confirmed and read, once."""
    topic = topic_of(kafka3, "aged-kafka-python")
    sent: Counter[str] = Counter()
    found: Counter[str] = Counter()
    failures: list[BaseException] = []

    def produce() -> None:
        with closing(KafkaProducer(bootstrap_servers=proxy.bootstrap, enable_idempotence=True)) as producer:
            number = 0
            while not enough():
                producer.send(topic, str(number).encode()).add_errback(failures.append)
                sent[str(number)] += 1
                number += 1
                producer.flush(60)

    producing = threading.Thread(target=produce)
    settings: dict[str, Any] = {"group_id": topic, "auto_offset_reset": "earliest", "enable_auto_commit": False}
    with closing(KafkaConsumer(topic, bootstrap_servers=proxy.bootstrap, **settings)) as consumer:
        producing.start()
        while producing.is_alive() or found.total() < sent.total():
            for records in consumer.poll(500).values():
                found.update(record.value.decode() for record in records)
        consumer.commit()

    assert (failures, found) == ([], sent)
