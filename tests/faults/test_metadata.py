"""What librdkafka makes of Metadata that is not true."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from kproxy.testing import one_request
from kproxy.testing.process import Proxy
from tests.support.wait import until

PATIENCE = 30
AUDIT_GAP: dict[str, dict[str, Any]] = {
    "no-leader": {"kind": "no_leader"},
    "moved": {"kind": "move_leader", "node": 9},
    "hidden-node": {"kind": "hide_node", "node": "all"},
    "added-node": {"kind": "add_node", "node": 9, "host": "127.0.0.1", "port": 1},
    "recreated": {"kind": "recreate_topic"},
    "hidden": {"kind": "hide_topic"},
    "no-replica": {"kind": "preferred_replica", "node": 9, "match": {"api": "Fetch"}},
}
"""What a client gets over: by the time of the third answer all is well again."""
FAULTS: dict[str, dict[str, Any]] = {name: {**rule, "when": {"first": 2}} for name, rule in AUDIT_GAP.items()} | {
    "wrong-port": {"kind": "wrong_address", "port": 1},
    "led-by-nobody": {"kind": "no_leader"},
    "led-late": {"kind": "no_leader", "when": {"first": 3}},
    "unknown-epoch": {"kind": "shift_epoch", "offset_by": 5},
    "gone": {"kind": "hide_topic"},
    "grown": {"kind": "change_partitions", "offset_by": 2},
    "headless": {"kind": "no_controller"},
    "stale": {"kind": "stale_metadata", "count": 1, "match": {"api": "Metadata"}},
}


def listed(proxy: Proxy, client: str, topic: str) -> Any:
    """What an admin client is told of a topic."""
    admin = AdminClient({"bootstrap.servers": proxy.bootstrap, "client.id": client})
    return admin.list_topics(topic, PATIENCE)


@pytest.fixture(scope="module")
def outcomes(faulty: Proxy, clients: Any, all_at_once: Any) -> dict[str, Future[Any]]:
    """What each client has read of a topic of three records, in the few seconds in which it should."""

    def read(topic: str, name: str) -> Any:
        clients.write(clients.direct, topic, 3)
        # librdkafka does not always ask anew when a broker is not where it should be, only when its answer is too old
        return clients.read(faulty.bootstrap, topic, 3, client_id=name, topic_metadata_refresh_interval_ms=2000)

    found: dict[str, Future[Any]] = all_at_once(read, AUDIT_GAP)
    return found


@pytest.mark.parametrize("name", AUDIT_GAP)
def test_a_consumer_gets_over_it(name: str, outcomes: Any, faulty: Proxy) -> None:
    """It asks again, and reads all that there is."""
    values, _ = outcomes[name].result()

    assert values == ["value-0", "value-1", "value-2"]
    assert faulty.metric("kproxy_rule_applied_total", rule=name) >= 1


def test_a_broker_at_a_wrong_address(faulty: Proxy, clients: Any) -> None:
    """The client is told so. One whose only broker it is forgets where it began, and does not always get over it when
    it is told the truth again; for a client that does see test_java_clients.py."""
    told = listed(faulty, "wrong-port", clients.topics(1)[0])

    assert [broker.port for broker in told.brokers.values()] == [1]


def test_a_producer_waits_for_a_leader(faulty: Proxy, clients: Any) -> None:
    """As long as nobody leads, what it has to write waits in the client."""
    (topic,) = clients.topics(1)
    producer = Producer({"bootstrap.servers": faulty.bootstrap, "client.id": "led-by-nobody", "log_level": 0})
    producer.produce(topic, "value")

    assert producer.flush(1) == 1
    assert clients.stored(topic) == 0
    producer.purge()
    producer.flush(PATIENCE)


def test_a_producer_goes_on_when_there_is_a_leader(faulty: Proxy, clients: Any) -> None:
    """It has asked until there was one. If it is connected before it knows of the topic, it first asks for brokers
    alone, which is one of the three times, and there is no leader to be taken away."""
    (topic,) = clients.topics(1)
    outcome = clients.write(faulty.bootstrap, topic, client_id="led-late")

    assert (outcome.told, outcome.stored) == ([None], 1)
    assert faulty.metric("kproxy_rule_fired_total", rule="led-late") == 3
    assert faulty.metric("kproxy_rule_applied_total", rule="led-late") in (2, 3)


def test_a_consumer_with_an_epoch_that_is_not_there_yet_reads_nothing(faulty: Proxy, clients: Any) -> None:
    """The broker answers its Fetch with UNKNOWN_LEADER_EPOCH."""
    (topic,) = clients.topics(1)
    clients.write(clients.direct, topic, 1)
    consumer = Consumer({"bootstrap.servers": faulty.bootstrap, "group.id": "g", "client.id": "unknown-epoch"})
    consumer.assign([TopicPartition(topic, 0, 0)])

    assert consumer.poll(1.5) is None
    consumer.close()


def test_a_topic_that_is_gone(faulty: Proxy, clients: Any) -> None:
    """By name it is an unknown topic; in the list of all it is missing."""
    (topic,) = clients.topics(1)

    assert listed(faulty, "gone", topic).topics[topic].error.name() == "UNKNOWN_TOPIC_OR_PART"
    admin = AdminClient({"bootstrap.servers": faulty.bootstrap, "client.id": "gone"})
    assert topic in one_request.topics(clients.direct)
    assert topic not in admin.list_topics(timeout=PATIENCE).topics


def test_partitions_that_are_not_there(faulty: Proxy, clients: Any) -> None:
    """The client is told of two more."""
    (topic,) = clients.topics(1)

    assert sorted(listed(faulty, "grown", topic).topics[topic].partitions) == [0, 1, 2]


def test_a_cluster_without_a_controller(faulty: Proxy, clients: Any) -> None:
    """The client knows none."""
    assert listed(faulty, "headless", clients.topics(1)[0]).controller_id == -1
    assert listed(faulty, "nobody", clients.topics(1)[0]).controller_id == 1


def test_metadata_from_before(faulty: Proxy, clients: Any) -> None:
    """After a topic has grown the client is told once more how it was, and then how it is."""
    (topic,) = clients.topics(1)
    admin = AdminClient({"bootstrap.servers": faulty.bootstrap, "client.id": "stale"})

    def partitions() -> int:
        return len(admin.list_topics(topic, PATIENCE).topics[topic].partitions)

    assert partitions() == 1
    direct = AdminClient({"bootstrap.servers": clients.direct})
    for done in direct.create_partitions([NewPartitions(topic, 3)]).values():
        done.result(PATIENCE)
    until(lambda: len(direct.list_topics(topic, PATIENCE).topics[topic].partitions) == 3)

    assert [partitions() for _ in range(3)] == [1, 3, 3]
