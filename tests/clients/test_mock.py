"""librdkafka's mock cluster, which differs from a broker in places, behind kproxy."""

from __future__ import annotations

import asyncio
from contextlib import closing

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, Producer
from kafka import KafkaConsumer, KafkaProducer

from kproxy.testing import one_request
from kproxy.testing.cluster import MockCluster, readable_mock
from kproxy.testing.plugin import Proxies
from tests.support.java_program import JavaProgram
from tests.support.wait import until

pytestmark = pytest.mark.usefixtures("kafka_python")
RENAME = {"name": "r", "kind": "rename_topic", "topics": {"orders": "prod.orders"}}


def test_an_answer_to_acks_0_is_dropped_and_counted(mock_cluster: MockCluster, kproxy_process: Proxies) -> None:
    """The mock answers Produce with acks=0, which no client waits for: kproxy drops that, and the rest goes on."""
    mock_cluster.create_topic("prod.orders", partitions=1)
    proxy = kproxy_process(mock_cluster.bootstrap, rules=[RENAME])
    with closing(KafkaProducer(bootstrap_servers=proxy.bootstrap, acks=0, api_version=(2, 0))) as producer:
        for number in range(10):
            producer.send("orders", f"zero-{number}".encode())
            producer.flush(20)
        # Its connection is kept until all are answered: closed before, the mock may lose what it has not read yet.
        until(lambda: proxy.metric("kproxy_acks0_response_dropped_total") == 10)
    consumer = Consumer(
        {"bootstrap.servers": proxy.bootstrap, "group.id": "g", "auto.offset.reset": "earliest", "log_level": 0}
    )
    consumer.subscribe(["orders"])
    received = [message.value() for message in consumer.consume(10, 30)]
    consumer.close()

    assert received == [f"zero-{number}".encode() for number in range(10)]


@pytest.mark.deep
def test_clients_of_every_age_share_the_mock(mock_cluster: MockCluster, kproxy_process: Proxies) -> None:
    """What librdkafka, aiokafka and kafka-python produce is read by kafka-python, each with the versions it speaks."""
    mock_cluster.create_topic("prod.orders", partitions=1)
    proxy = kproxy_process(mock_cluster.bootstrap, rules=[RENAME])
    address = {"bootstrap_servers": proxy.bootstrap}

    async def from_aiokafka() -> None:
        async with AIOKafkaProducer(**address) as producer:
            await producer.send_and_wait("orders", b"aiokafka")

    confluent = Producer({"bootstrap.servers": proxy.bootstrap, "log_level": 0})
    confluent.produce("orders", b"librdkafka")
    assert confluent.flush(20) == 0
    asyncio.run(asyncio.wait_for(from_aiokafka(), 20))
    with closing(KafkaProducer(**address, api_version=(2, 0))) as producer:
        producer.send("orders", b"kafka-python").get(20)
    # kafka-python may join before it knows the topic, and join again, which the mock holds up for a session's time.
    old = {"api_version": (2, 0), "auto_offset_reset": "earliest", "session_timeout_ms": 6000}
    with closing(KafkaConsumer("orders", **address, **old, consumer_timeout_ms=20_000, group_id="old")) as consumer:
        received = [next(consumer).value for _ in range(3)]

    assert received == [b"librdkafka", b"aiokafka", b"kafka-python"]
    assert set(one_request.topics(mock_cluster.bootstrap.partition(",")[0])) == {"prod.orders"}


@pytest.mark.deep
def test_kafkas_own_client_gets_along_with_it(kproxy_process: Proxies, java: JavaProgram) -> None:
    """Behind kproxy, which tells it in which version it may ask: the mock's own answer would have it wait for 20
    minutes. It writes with a transaction's guarantees or none, and reads in a group, which goes on where it was."""
    with readable_mock(1) as mock:
        mock.create_topic("prod.orders", partitions=1)
        proxy = kproxy_process(mock.bootstrap, rules=[RENAME])
        quick = {"delivery.timeout.ms": 20_000, "request.timeout.ms": 10_000, "max.block.ms": 15_000, "linger.ms": 0}
        to = {"bootstrap.servers": proxy.bootstrap, **quick}
        group = {"bootstrap.servers": proxy.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
        group["session.timeout.ms"] = "6000"  # for which the mock waits for members that have left
        for tag, acks in (("one", "1"), ("all", "all")):
            config = to | {"acks": acks, "enable.idempotence": acks == "all"}
            sent = java("produce", config=config, topic="orders", tag=tag, count=10, padding=1)
            assert sent == {"orders": 10}
            rows = java("consume", config=group, topics=["orders"], count=10, seconds=30)
            assert sorted(row[2].split()[0] for row in rows) == sorted(f"{tag}-{number}" for number in range(10))
