"""What librdkafka's consumers and producers do when groups, offsets and transactions go wrong."""

from __future__ import annotations

import time
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from kproxy.testing.process import Proxy
from tests.support.wait import until

PATIENCE = 30
NEW_PROTOCOL = {"group.protocol": "consumer"}
HEARTBEATS = {"match": {"api": "*Heartbeat"}, "when": {"nth": 2}}
FAULTS: dict[str, dict[str, Any]] = {
    "rebalanced": {"kind": "rebalance", **HEARTBEATS},
    "rebalanced-new": {"kind": "rebalance", "match": {"api": "ConsumerGroupHeartbeat"}, "when": {"nth": 4}},
    "rebalanced-java": {"kind": "rebalance", "match": {"api": "ConsumerGroupHeartbeat"}, "when": {"nth": 3}},
    "stormy": {"kind": "rebalance", "every": "500ms"},
    "moved": {"kind": "move_coordinator"},
    "moved-away": {
        "kind": "move_coordinator",
        "node": 9,
        "host": "127.0.0.1",
        "port": 1,
        "when": {"first": 8},
    },
    "swapped": {"kind": "bad_assignment", "defect": "swap"},
    "rewound": {"kind": "rewind_offset", "offset_by": -2},
    "forgotten": {"kind": "omit_offset"},
    "lost-commit": {"kind": "drop_commit"},
    "unassigned": {"kind": "bad_assignment", "defect": "empty"},
    "fenced": {"kind": "fence_producer", "match": {"api": "EndTxn"}},
}


class Member:
    """A consumer of a group that notes what happens to it."""

    def __init__(self, bootstrap: str, topic: str, client: str, group: str, **settings: Any) -> None:
        self.assigned: list[int] = []
        self.revoked = self.lost = 0
        self.values: list[str] = []
        config = {"bootstrap.servers": bootstrap, "group.id": group, "client.id": client, "log_level": 0}
        config |= {"auto.offset.reset": "earliest", "enable.auto.commit": False}
        if settings.get("group.protocol") != "consumer":
            config["heartbeat.interval.ms"] = 100
        self.consumer = Consumer(config | settings)
        self.consumer.subscribe([topic], on_assign=self.on_assign, on_revoke=self.on_revoke, on_lost=self.on_lost)

    def on_assign(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        self.assigned.append(len(partitions))

    def on_revoke(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        self.revoked += 1

    def on_lost(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        self.lost += 1

    def until(self, condition: Any) -> Member:
        """Poll until that is true."""
        limit = time.monotonic() + PATIENCE
        while not condition(self):
            assert time.monotonic() < limit, vars(self)
            message = self.consumer.poll(0.05)
            if message is not None and message.error() is None:
                self.values.append((message.value() or b"").decode())
        return self

    def poll(self) -> bool:
        """Let it do what it has to do."""
        self.consumer.poll(0)
        return True

    def has(self) -> int:
        """How many partitions it owns now."""
        return len(self.consumer.assignment())

    def close(self) -> None:
        self.consumer.close()


@pytest.fixture
def topic(clients: Any) -> str:
    """A topic with three records."""
    (name,) = clients.topics(1)
    clients.write(clients.direct, name, 3)
    return str(name)


def committed(clients: Any, topic: str, group: str) -> int:
    """What the broker has."""
    consumer = Consumer({"bootstrap.servers": clients.direct, "group.id": group})
    (found,) = consumer.committed([TopicPartition(topic, 0)], PATIENCE)
    consumer.close()
    return int(found.offset)


def commit_all(clients: Any, topic: str, group: str) -> None:
    """The group has read all three, as the broker knows."""
    consumer = Consumer({"bootstrap.servers": clients.direct, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, 3)], asynchronous=False)
    consumer.close()
    assert committed(clients, topic, group) == 3


def test_a_member_joins_again(faulty: Proxy, topic: str) -> None:
    """Its second heartbeat says REBALANCE_IN_PROGRESS: its callbacks run, and it is assigned its partition anew."""
    member = Member(faulty.bootstrap, topic, "rebalanced", f"g-{topic}")
    member.until(lambda one: len(one.assigned) == 2).until(lambda one: len(one.values) >= 3)
    member.close()

    assert member.assigned == [1, 1]
    assert member.revoked >= 1


def test_a_member_of_the_new_protocol_joins_again(faulty: Proxy, topic: str) -> None:
    """It is fenced, loses its partition, and is assigned it anew (KIP-848)."""
    member = Member(faulty.bootstrap, topic, "rebalanced-new", f"g-{topic}", **NEW_PROTOCOL)
    member.until(lambda one: len(one.assigned) == 2).until(lambda one: len(one.values) >= 3)
    member.close()

    assert member.assigned == [1, 1]
    assert member.lost == 1


def test_a_java_member_of_the_new_protocol_joins_again(faulty: Proxy, topic: str, clients: Any, java: Any) -> None:
    """Kafka's own consumer is fenced, joins anew and reads on; what it had not committed yet it reads again."""
    config = {"bootstrap.servers": faulty.bootstrap, "client.id": "rebalanced-java", "group.id": f"g-{topic}"}
    config |= {"auto.offset.reset": "earliest", "group.protocol": "consumer"}
    reading = java.start("consume", config=config, topics=[topic], count=6, seconds=PATIENCE)
    until(lambda: faulty.metric("kproxy_rule_applied_total", rule="rebalanced-java") == 1, PATIENCE)
    clients.write(clients.direct, topic, 3)

    values = [row[2] for row in reading.result(2 * PATIENCE)]
    assert values[:3] == ["value-0", "value-1", "value-2"]
    assert values == values[:3] * (len(values) // 3)
    assert len(values) in (6, 9)


def test_a_storm(faulty: Proxy, topic: str) -> None:
    """Every half second the member joins again."""
    member = Member(faulty.bootstrap, topic, "stormy", f"g-{topic}")
    since = time.monotonic()
    member.until(lambda one: len(one.assigned) == 4)
    member.close()

    assert time.monotonic() - since > 1.0


def test_a_coordinator_that_moves(faulty: Proxy, topic: str) -> None:
    """The member asks who is coordinator, goes there, and reads everything."""
    member = Member(faulty.bootstrap, topic, "moved", f"g-{topic}").until(lambda one: len(one.values) == 3)
    member.close()

    assert faulty.metric("kproxy_rule_applied_total", rule="moved") >= 1


def test_a_coordinator_that_is_not_there(faulty: Proxy, topic: str) -> None:
    """The member is sent to a broker that nobody can reach; once it is told the truth it reads everything."""
    member = Member(faulty.bootstrap, topic, "moved-away", f"g-{topic}").until(lambda one: len(one.values) == 3)
    member.close()

    assert faulty.metric("kproxy_rule_applied_total", rule="moved-away") >= 2


def test_members_that_get_each_others_partitions(faulty: Proxy, clients: Any) -> None:
    """Taking turns, the member with the lower id gets the first topic; here the other one has it."""
    topics = clients.topics(2)
    settings = {"partition.assignment.strategy": "roundrobin"}
    group = f"g-{topics[0]}"
    members = [Member(faulty.bootstrap, "^(" + "|".join(topics) + ")$", "swapped", group, **settings) for _ in range(2)]
    both = members[0].until(lambda one: members[1].poll() and all(each.has() == 1 for each in members))
    owned = {each.consumer.memberid(): each.consumer.assignment()[0].topic for each in members}
    for each in members:
        each.close()

    assert both is members[0]
    assert [owned[member] for member in sorted(owned)] == sorted(topics, reverse=True)


def test_a_rewound_offset_is_read_again(faulty: Proxy, topic: str, clients: Any) -> None:
    """The group was at the end; the member reads the last two once more."""
    commit_all(clients, topic, f"g-{topic}")
    member = Member(faulty.bootstrap, topic, "rewound", f"g-{topic}").until(lambda one: len(one.values) == 2)
    member.close()

    assert member.values == ["value-1", "value-2"]


def test_a_forgotten_offset(faulty: Proxy, topic: str, clients: Any) -> None:
    """The member does what `auto.offset.reset` says: it begins at the beginning."""
    commit_all(clients, topic, f"g-{topic}")
    member = Member(faulty.bootstrap, topic, "forgotten", f"g-{topic}").until(lambda one: len(one.values) == 3)
    member.close()

    assert member.values == ["value-0", "value-1", "value-2"]


def test_a_commit_that_is_lost(faulty: Proxy, topic: str, clients: Any) -> None:
    """The consumer is told that it is stored, and the broker has nothing."""
    member = Member(faulty.bootstrap, topic, "lost-commit", f"g-{topic}").until(lambda one: len(one.values) == 3)
    (said,) = member.consumer.commit(asynchronous=False)
    member.close()

    assert (said.error, said.offset) == (None, 3)
    assert committed(clients, topic, f"g-{topic}") == -1001


@pytest.mark.parametrize("settings", [{}, NEW_PROTOCOL], ids=["classic", "new"])
def test_a_member_with_nothing_to_do(faulty: Proxy, topic: str, settings: dict[str, str]) -> None:
    """It is assigned no partition and reads nothing, in both protocols."""
    member = Member(faulty.bootstrap, topic, "unassigned", f"g-{topic}", **settings)
    if settings:
        member.until(lambda one: faulty.metric("kproxy_rule_applied_total", rule="unassigned") >= 2)
    else:
        member.until(lambda one: one.assigned)
    assert member.consumer.poll(0.5) is None
    member.close()

    assert not any(member.assigned)


def test_a_producer_that_is_fenced(faulty: Proxy, topic: str) -> None:
    """Its commit fails for good, and what it wrote is not seen by readers of committed records."""
    producer = Producer({
        "bootstrap.servers": faulty.bootstrap, "client.id": "fenced", "transactional.id": topic, "log_level": 0,
    })  # fmt: skip
    producer.init_transactions(PATIENCE)
    producer.begin_transaction()
    producer.produce(topic, "never")
    with pytest.raises(KafkaException) as raised:
        producer.commit_transaction(PATIENCE)

    assert raised.value.args[0].name() == "_FENCED"
    assert raised.value.args[0].fatal()
