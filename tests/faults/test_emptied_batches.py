"""Batches of which filter_records leaves nothing: every codec, every client, at the beginning, between and at the end.

Clients decompress what the codec bits name, also where nothing follows them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import kafka
import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer, Producer, TopicPartition

from kproxy.testing.process import Proxy
from tests.support.topics import create_topics
from tests.support.wait import until

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
GONE = {"first": "0-1", "middle": "2-3", "last": "4-5", "only": "0-1", "all": "0-5"}
"""Offsets of the batches that are emptied: of three of two records, or of one. A plain record stands behind."""
CLIENTS = ["java", "librdkafka", "kafka-python", "aiokafka"]
KAFKA_PYTHON_HAS = ("none", "gzip", "lz4")
"""It has snappy and zstd with further packages only: of these it can read what holds no record."""
SECONDS = 60
FILLING = "x" * 300
Read = list[tuple[int, str]]


def expected(place: str) -> Read:
    """Offsets and values that are left."""
    low, high = map(int, GONE[place].split("-"))
    count = 2 if place == "only" else 6
    return [(at, f"v{at}") for at in range(count + 1) if not low <= at <= high]


def condition(offsets: str) -> str:
    low, high = offsets.split("-")
    return f"offset >= {low} and offset <= {high}"


def topic(place: str, codec: str) -> str:
    return f"emptied-{place}-{codec}"


def write(bootstrap: str, place: str, codec: str) -> None:
    """The batches, and a plain record behind them."""
    count = 2 if place == "only" else 6
    made = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 1000,
                     "batch.num.messages": 2})  # fmt: skip
    for at in range(count):
        made.produce(topic(place, codec), f"v{at} {FILLING}")
    assert made.flush(SECONDS) == 0
    plain = Producer({"bootstrap.servers": bootstrap})
    plain.produce(topic(place, codec), f"v{count}")
    assert plain.flush(SECONDS) == 0


def short(value: bytes | str | None) -> str:
    text = value.decode() if isinstance(value, bytes) else value or ""
    return text.split(" ")[0]


def by_librdkafka(bootstrap: str, name: str, count: int, java: Any) -> Read:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "check.crcs": True})
    consumer.assign([TopicPartition(name, 0, 0)])
    found: Read = []
    limit = time.monotonic() + SECONDS
    while len(found) < count and time.monotonic() < limit:
        for message in consumer.consume(10, 0.5):
            assert message.error() is None, message.error()
            found.append((message.offset() or 0, short(message.value())))
    consumer.close()
    return found


def by_java(bootstrap: str, name: str, count: int, java: Any) -> Read:
    config = {"bootstrap.servers": bootstrap, "group.id": f"g-{name}", "auto.offset.reset": "earliest"}
    rows = java("consume", config=config, topics=[name], count=count, seconds=SECONDS, together=name,
                offsets=True)  # fmt: skip
    return [(offset, short(value)) for offset, value in rows]


def by_kafka_python(bootstrap: str, name: str, count: int, java: Any) -> Read:
    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap, consumer_timeout_ms=SECONDS * 1000)
    place = kafka.TopicPartition(name, 0)
    consumer.assign([place])
    consumer.seek(place, 0)
    found: Read = []
    limit = time.monotonic() + SECONDS
    while len(found) < count and time.monotonic() < limit:
        for records in consumer.poll(500).values():
            found += [(record.offset, short(record.value)) for record in records]
    consumer.close()
    return found


def by_aiokafka(bootstrap: str, name: str, count: int, java: Any) -> Read:
    async def read() -> Read:
        async with AIOKafkaConsumer(name, bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
            found: Read = []
            while len(found) < count:
                for records in (await consumer.getmany(timeout_ms=200)).values():
                    found += [(record.offset, short(record.value)) for record in records]
            return found

    return asyncio.run(asyncio.wait_for(read(), SECONDS))


READERS: dict[str, Callable[[str, str, int, Any], Read]] = dict(
    zip(CLIENTS, (by_java, by_librdkafka, by_kafka_python, by_aiokafka), strict=True)
)
PLACES = [
    (client, codec, place)
    for client in CLIENTS
    for codec in CODECS
    for place in GONE
    if client != "kafka-python" or codec in KAFKA_PYTHON_HAS or place in ("only", "all")
]


@pytest.fixture(scope="module")
def reads(clients: Any, java: Any) -> Iterator[dict[tuple[str, str, str], Future[Read]]]:
    """What each client has read of each topic, all at the same time."""
    rules = [
        {"name": place, "kind": "filter_records", "match": {"topic": topic(place, "*"), "records": condition(gone)}}
        for place, gone in GONE.items()
    ]
    topics = [(place, codec) for place in GONE for codec in CODECS]
    names = [topic(*one) for one in topics]
    create_topics(clients.direct, *names)
    for name in names:
        until(lambda name=name: clients.leads(name))
    with Proxy(clients.upstream, rules=rules) as proxy, ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda one: write(clients.direct, *one), topics))
        yield {
            (client, codec, place): pool.submit(
                READERS[client], proxy.bootstrap, topic(place, codec), len(expected(place)), java
            )
            for client, codec, place in PLACES
        }


@pytest.mark.parametrize(("client", "codec", "place"), PLACES)
def test_clients_read_on(reads: Any, client: str, codec: str, place: str) -> None:
    """What is left comes at the offsets that it always had."""
    assert reads[client, codec, place].result(SECONDS * 3) == expected(place)
