"""add_header with real clients: headers that are stored, and headers that consumers get."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

import kafka
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from kproxy.testing.process import Proxy
from tests.support.topics import create_topics

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SECONDS = 60
COUNT = 200
TRACE = re.compile(rb"00-[0-9a-f]{32}-[0-9a-f]{16}-01")
ADDED = {"x-from": "{client_id}@{listener} {topic}-{partition}"}
TRACED = {"traceparent": "{traceparent}"}
Row = tuple[str, dict[str, bytes]]
"""Value of a record without its padding, and its headers."""


@pytest.fixture(scope="module")
def headed(clients: Any) -> Iterator[Proxy]:
    """A proxy that adds headers to all records that are produced through it, and others to those that are fetched."""
    rules = [
        {"name": "stored", "kind": "add_header", "headers": ADDED},
        {"name": "traced", "kind": "add_header", "replace": False, "headers": TRACED},
        {"name": "fetched", "kind": "add_header", "at": "fetch", "headers": {"x-read": "{partition} at {now}"}},
    ]
    with Proxy(clients.upstream, rules=rules) as proxy:
        yield proxy


def read(bootstrap: str, topic: str, count: int, isolation: str = "read_committed") -> list[Row]:
    consumer = Consumer({
        "bootstrap.servers": bootstrap, "group.id": "g", "check.crcs": True, "isolation.level": isolation,
    })  # fmt: skip
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[Row] = []
    limit = time.monotonic() + SECONDS
    while len(found) < count and time.monotonic() < limit:
        for one in consumer.consume(count, 0.5):
            assert one.error() is None, one.error()
            found.append(((one.value() or b"").decode().split(" ")[0], dict(one.headers() or ())))
    consumer.close()
    return found


def write_java(java: Any, bootstrap: str, topic: str) -> None:
    config = {"bootstrap.servers": bootstrap, "client.id": "java", "compression.type": "gzip", "batch.size": 2000}
    assert java("produce", config=config, topic=topic, tag="v", count=COUNT, padding=50) == {topic: COUNT}


def write_librdkafka(java: Any, bootstrap: str, topic: str) -> None:
    """Idempotent, with a trace of its own in every second record."""
    producer = Producer({"bootstrap.servers": bootstrap, "client.id": "librdkafka", "enable.idempotence": True,
                         "compression.type": "zstd", "batch.num.messages": 7})  # fmt: skip
    for number in range(COUNT):
        producer.produce(topic, f"v-{number}", headers=[("b3", b"0")] if number % 2 else None)
    assert producer.flush(SECONDS) == 0


def write_unanswered(java: Any, bootstrap: str, topic: str) -> None:
    """With acks 0."""
    producer = Producer({"bootstrap.servers": bootstrap, "client.id": "unanswered", "acks": 0})
    for number in range(COUNT):
        producer.produce(topic, f"v-{number}")
    assert producer.flush(SECONDS) == 0


def write_transactions(java: Any, bootstrap: str, topic: str) -> None:
    """Ten transactions; those between are aborted."""
    producer = Producer({"bootstrap.servers": bootstrap, "client.id": "transactions", "transactional.id": topic})
    producer.init_transactions(SECONDS)
    for first in range(0, COUNT, COUNT // 10):
        for commits in (False, True):
            producer.begin_transaction()
            for number in range(first, first + COUNT // 10):
                producer.produce(topic, f"v-{number}" if commits else "aborted")
            (producer.commit_transaction if commits else producer.abort_transaction)(SECONDS)


WRITERS = {"java": write_java, "librdkafka": write_librdkafka, "unanswered": write_unanswered,
           "transactions": write_transactions}  # fmt: skip


@pytest.mark.parametrize("client", WRITERS)
def test_producers_store_headers(client: str, headed: Proxy, clients: Any, java: Any) -> None:
    """Each record is stored once, in order, with both headers."""
    (topic,) = clients.topics(1)
    WRITERS[client](java, headed.bootstrap, topic)

    rows = read(clients.direct, topic, COUNT)

    assert [value for value, _ in rows] == [f"v-{number}" for number in range(COUNT)]
    assert {headers["x-from"].decode() for _, headers in rows} == {f"{client}@main {topic}-0"}
    traces = [headers["traceparent"] for _, headers in rows if "b3" not in headers]
    assert len(set(traces)) == len(traces) == COUNT // (1 + (client == "librdkafka"))
    assert all(map(TRACE.fullmatch, traces))


def test_java_copies_exactly_once(headed: Proxy, clients: Any, java: Any) -> None:
    """Fetched and produced through kproxy in transactions of the Java client, some of them aborted."""
    source, target = clients.topics(2)
    write_java(java, clients.direct, source)
    reader = {"bootstrap.servers": headed.bootstrap, "group.id": f"copy-{source}", "auto.offset.reset": "earliest",
              "enable.auto.commit": False, "isolation.level": "read_committed"}  # fmt: skip
    writer = {"bootstrap.servers": headed.bootstrap, "transactional.id": f"copy-{source}", "client.id": "copy"}

    done = java("copy", consumer=reader, producer=writer, **{"from": source, "to": target}, count=COUNT)
    rows = read(clients.direct, target, COUNT)

    assert (done["copied"], done["aborted"] > 0) == (COUNT, True)
    assert sorted(value for value, _ in rows) == sorted(f"v-{number}" for number in range(COUNT))
    assert {headers["x-from"].decode() for _, headers in rows} == {f"copy@main {target}-0"}


@pytest.mark.parametrize("codec", CODECS)
def test_consumers_get_headers(codec: str, headed: Proxy, clients: Any, java: Any) -> None:
    """librdkafka, kafka-python and Java read all records at their offsets."""
    (topic,) = clients.topics(1)
    clients.write(clients.direct, topic, COUNT, compression_type=codec, linger_ms=20)
    expected = [f"value-{number}" for number in range(COUNT)]

    rows = read(headed.bootstrap, topic, COUNT)
    config = {"bootstrap.servers": headed.bootstrap, "group.id": f"j-{topic}", "auto.offset.reset": "earliest"}
    of_java = java("consume", config=config, topics=[topic], count=COUNT, seconds=SECONDS, together=topic, offsets=True)

    assert [value for value, _ in rows] == expected
    assert all(headers["x-read"].startswith(b"0 at 20") for _, headers in rows)
    assert [(offset, value) for offset, value in of_java] == list(enumerate(expected))
    if codec in ("none", "gzip", "lz4"):
        assert all("x-read" in headers for headers in by_kafka_python(headed.bootstrap, topic))


def by_kafka_python(bootstrap: str, topic: str) -> list[dict[str, bytes]]:
    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap, consumer_timeout_ms=SECONDS * 1000)
    place = kafka.TopicPartition(topic, 0)
    consumer.assign([place])
    consumer.seek(place, 0)
    found: list[dict[str, bytes]] = []
    for record in consumer:
        found.append(dict(record.headers))
        if len(found) == COUNT:
            break
    consumer.close()
    return found


def test_batches_beyond_the_brokers_limit(headed: Proxy, clients: Any, java: Any) -> None:
    """A batch that became too long is refused; the Java producer splits it, and a single record fails."""
    name = "small-batches"
    create_topics(clients.direct, name, config={"max.message.bytes": "3000"})
    config = {"bootstrap.servers": headed.bootstrap, "client.id": "java", "batch.size": 2900, "linger.ms": 50}
    assert java("produce", config=config, topic=name, tag="v", count=COUNT, padding=20) == {name: COUNT}
    assert {value for value, _ in read(clients.direct, name, COUNT)} == {f"v-{number}" for number in range(COUNT)}

    told: list[Any] = []
    producer = Producer({"bootstrap.servers": headed.bootstrap, "client.id": "librdkafka"})
    producer.produce(name, "x" * 2900, callback=lambda error, message: told.append(error and error.name()))
    assert producer.flush(SECONDS) == 0
    assert told == ["MSG_SIZE_TOO_LARGE"]
