"""Leaders, followers and brokers in a cluster of three: where librdkafka goes when it is told something else."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kproxy.testing.kafka import Kafka
from kproxy.testing.process import Proxy
from tests.support.wait import until

PATIENCE = 30
TOPIC = "led"
RULES = [
    {"name": "moved", "kind": "move_leader", "match": {"client_id": "moved", "topic": TOPIC}, "when": {"first": 2}},
    {"name": "away", "kind": "preferred_replica", "match": {"client_id": "away", "topic": TOPIC, "node": 1}, "node": 2},
    {"name": "hidden", "kind": "hide_node", "match": {"client_id": "hidden"}, "node": 3},
    *(
        {
            "name": f"{api} {client} {node}",
            "kind": "error",
            "error": "UNKNOWN_SERVER_ERROR",
            "mode": "dry_run",
            "match": {"api": api, "client_id": client, "node": node},
        }
        for api, client in (("Produce", "moved"), ("Fetch", "away"))
        for node in (1, 2)
    ),
]
"""The last ones only count who goes where."""


@pytest.fixture(scope="module")
def led(kafka3: Kafka) -> Iterator[Proxy]:
    """A topic that broker 1 leads and the others follow, and one record in it, behind the rules."""
    admin = AdminClient({"bootstrap.servers": kafka3.bootstrap("DIRECT")})
    new = NewTopic(TOPIC, num_partitions=1, replica_assignment=[[1, 2, 3]])
    admin.create_topics([new])[TOPIC].result(PATIENCE)
    until(lambda: TOPIC in admin.list_topics(timeout=PATIENCE).topics)
    assert written(kafka3.bootstrap("DIRECT"), "direct") == [None]
    with Proxy(kafka3.bootstrap("DIRECT"), rules=RULES) as proxy:
        yield proxy


def written(bootstrap: str, client: str) -> list[str | None]:
    """What a producer is told of one record."""
    told: list[str | None] = []

    def done(error: KafkaError | None, message: Message) -> None:
        told.append(None if error is None else error.name())

    producer = Producer({"bootstrap.servers": bootstrap, "client.id": client, "log_level": 0})
    producer.produce(TOPIC, "value", callback=done)
    assert producer.flush(PATIENCE) == 0
    return told


def test_a_producer_finds_the_leader_in_the_end(led: Proxy) -> None:
    """It goes to the follower that it is told of, is refused there, and then to the leader."""
    assert written(led.bootstrap, "moved") == [None]

    assert led.metric("kproxy_rule_matched_total", rule="Produce moved 2") >= 1
    assert led.metric("kproxy_rule_matched_total", rule="Produce moved 1") >= 1


def test_a_consumer_reads_from_the_follower(led: Proxy) -> None:
    """The leader sends it there, without a record, and there it gets them."""
    consumer = Consumer({"bootstrap.servers": led.bootstrap, "group.id": "g", "client.id": "away", "log_level": 0})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    (message,) = consumer.consume(1, PATIENCE)
    consumer.close()

    assert message.value() == b"value"
    assert led.metric("kproxy_rule_applied_total", rule="away") >= 1
    assert led.metric("kproxy_rule_matched_total", rule="Fetch away 2") >= 1


def test_a_broker_that_nobody_hears_of(led: Proxy) -> None:
    """The client knows two of the three."""
    admin = AdminClient({"bootstrap.servers": led.bootstrap, "client.id": "hidden"})
    assert sorted(admin.list_topics(timeout=PATIENCE).brokers) == [1, 2]
