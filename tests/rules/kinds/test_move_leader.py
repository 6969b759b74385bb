"""move_leader: who leads, as clients are told."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from kproxy.protocol.table import schema
from kproxy.rules.kinds.move_leader import MoveLeader

METADATA, DESCRIBE_TOPIC_PARTITIONS = 3, 75
BROKERS = [{"node_id": node, "host": f"b{node}", "port": 9092} for node in (1, 2, 3)]


def topic(name: str, *leaders: int, replicas: tuple[int, ...] = (1, 2, 3)) -> dict[str, Any]:
    parts = [
        {"partition_index": number, "leader_id": leader, "replica_nodes": list(replicas), "isr_nodes": list(replicas)}
        for number, leader in enumerate(leaders)
    ]
    return {"name": name, "partitions": parts}


def leaders(body: dict[str, Any]) -> dict[str, list[int]]:
    return {one["name"]: [part["leader_id"] for part in one["partitions"]] for one in body["topics"]}


@pytest.mark.parametrize("version", schema.load(METADATA).versions)
def test_the_leader_that_clients_are_told(dialogue: Any, version: int) -> None:
    """In every version of Metadata the chosen partition of the chosen topic is led by that broker, others are not."""
    talk = dialogue("kind: move_leader\nmatch: {topic: orders, partition: 1}\nnode: 9")
    asked = [{"name": "orders"}, {"name": "clicks"}]
    talk.ask(METADATA, version, topics=asked)
    body = talk.answer(METADATA, version, brokers=BROKERS, topics=[topic("orders", 1, 1), topic("clicks", 2, 2)])

    assert leaders(body) == {"orders": [1, 9], "clicks": [2, 2]}
    assert (talk.rule.matched, talk.rule.applied) == (1, 1)


@pytest.mark.parametrize("version", schema.load(METADATA).versions)
def test_a_request_for_all_topics(dialogue: Any, version: int) -> None:
    """It names no topic, and the answer is searched for those that are meant."""
    talk = dialogue("kind: move_leader\nmatch: {topic: orders}\nnode: 9")
    talk.ask(METADATA, version, topics=[] if version == 0 else None)
    body = talk.answer(METADATA, version, brokers=BROKERS, topics=[topic("orders", 1), topic("clicks", 2)])

    assert leaders(body) == {"orders": [9], "clicks": [2]}


def test_the_next_leader_is_the_next_replica(dialogue: Any) -> None:
    """Without a node the leader moves to the following replica; with one replica to the following broker."""
    talk = dialogue("kind: move_leader")
    talk.ask(METADATA, 9, topics=None)
    found = [topic("orders", 2, 3, -1, replicas=(3, 1, 2)), topic("clicks", 3, replicas=(3,))]
    body = talk.answer(METADATA, 9, brokers=BROKERS, topics=found)

    assert leaders(body) == {"orders": [3, 1, -1], "clicks": [1]}


def test_other_topics_of_a_request_pass_as_they_came(dialogue: Any) -> None:
    """An answer without the topic that is meant is the broker's, byte by byte, and is not counted as applied."""
    talk = dialogue("kind: move_leader\nmatch: {topic: orders}\nnode: 9")
    talk.ask(METADATA, 12, topics=None)
    talk.answer(METADATA, 12, topics=[topic("clicks", 1)])

    assert (talk.rule.fired, talk.rule.applied) == (1, 0)


def test_topics_that_not_excludes(dialogue: Any) -> None:
    """`not` is looked for in the answer, too."""
    talk = dialogue("kind: move_leader\nnot: {topic: orders, partition: 0}\nnode: 9")
    talk.ask(METADATA, 12, topics=None)
    body = talk.answer(METADATA, 12, topics=[topic("orders", 1, 1), topic("clicks", 1)])

    assert leaders(body) == {"orders": [1, 9], "clicks": [9]}


def test_describe_topic_partitions(dialogue: Any) -> None:
    """The other API that names leaders says the same."""
    talk = dialogue("kind: move_leader\nmatch: {topic: orders, partition: 0}\nnode: 9")
    talk.ask(DESCRIBE_TOPIC_PARTITIONS, 0, topics=[{"name": "orders"}])
    body = talk.answer(DESCRIBE_TOPIC_PARTITIONS, 0, topics=[topic("orders", 1, 1)])

    assert leaders(body) == {"orders": [9, 1]}


def test_move_leader_many_partitions_reads_brokers_once() -> None:
    class Broker(dict[str, Any]):
        reads = 0

        def __getitem__(self, name: str) -> Any:
            Broker.reads += name == "node_id"
            return super().__getitem__(name)

    exchange = SimpleNamespace(response=SimpleNamespace(body={"brokers": [Broker(one) for one in BROKERS]}))
    change = MoveLeader(name="moved", kind="move_leader").changer(cast("Any", exchange))
    partitions = topic("orders", *[1, 2, 3, 7] * 50, replicas=(1,))["partitions"]
    for partition in partitions:
        partition["replica_nodes"] = [partition["leader_id"]]

    assert all(change(partition) for partition in partitions)
    assert [partition["leader_id"] for partition in partitions] == [2, 3, 1, 1] * 50
    assert Broker.reads == len(BROKERS)
