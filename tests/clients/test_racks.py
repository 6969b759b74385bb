"""client_rack with brokers in three zones: clients that say no rack read from the replica of their zone."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer

from kproxy.protocol.table.api_keys import CONSUMER_GROUP_DESCRIBE, METADATA
from kproxy.testing.kafka import Kafka
from kproxy.testing.one_request import ask
from kproxy.testing.plugin import Proxies
from kproxy.testing.process import Proxy, free_port
from tests.support.audit_reader import published
from tests.support.java_program import JavaProgram
from tests.support.topics import create_topics
from tests.support.wait import until

COUNT, SIZE = 300, 1000
Read = Callable[[str, str, str], int]
"""(bootstrap, topic, client.rack) → number of records read from the topic."""


def zoned(kafka: Kafka, start: Proxies, rack: str, folder: Path) -> Proxy:
    """A proxy that says this rack for its clients, and records what passes."""
    listener = {"name": "main", "bind": f"127.0.0.1:{free_port()}", "cluster": "main"}
    clusters = {"main": {"bootstrap": kafka.bootstrap("DIRECT").split(",")}}
    return start(
        config={"clusters": clusters, "listeners": [listener], "audit": {"dir": str(folder)}},
        rules=[{"name": "zone", "kind": "client_rack", "rack": rack}],
    )


def bytes_by_node(proxy: Proxy, folder: Path) -> Counter[int]:
    """Bytes that the clients of this proxy, which ends, have read from each node."""
    assert proxy.child is not None
    assert proxy.child.stop(30) == 0
    total: Counter[int] = Counter()
    for event in published(folder):
        data = event["data"]
        if event["type"] == "kproxy.connection.v1" and data["action"] == "close" and data.get("node") is not None:
            total[data["node"]] += data["response_bytes"]
    return total


@pytest.fixture(scope="module")
def filled(kafka3: Kafka, java: JavaProgram) -> str:
    """A topic of one partition on all three brokers, with records in it."""
    topic = f"racks-{free_port()}"
    create_topics(kafka3.bootstrap("DIRECT"), topic, partitions=1, replicas=3)
    config = {"bootstrap.servers": kafka3.bootstrap("DIRECT")}
    java("produce", config=config, topic=topic, tag="v", count=COUNT, padding=SIZE)
    return topic


def leader_of(kafka3: Kafka, topic: str) -> int:
    """The node that leads the only partition, with all three in sync."""

    def partition() -> Any:
        address = kafka3.bootstrap("DIRECT").partition(",")[0]
        body = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
        (found,) = ask(address, METADATA, 4, body)["topics"][0]["partitions"]
        return found if len(found["isr_nodes"]) == 3 else None

    return int(until(partition)["leader_id"])


@pytest.fixture(params=["java", "librdkafka"])
def read(request: pytest.FixtureRequest) -> Read:
    """A client of each kind, which reads the topic from its beginning."""

    def by_java(bootstrap: str, topic: str, rack: str) -> int:
        settings = {"bootstrap.servers": bootstrap, "group.id": f"g-{free_port()}", "auto.offset.reset": "earliest"}
        java = request.getfixturevalue("java")
        return len(java("consume", config=settings | {"client.rack": rack}, topics=[topic], count=COUNT, seconds=60))

    def by_librdkafka(bootstrap: str, topic: str, rack: str) -> int:
        settings = {"bootstrap.servers": bootstrap, "group.id": f"g-{free_port()}", "auto.offset.reset": "earliest"}
        consumer = Consumer(settings | {"client.rack": rack, "log_level": 0})
        consumer.subscribe([topic])
        read = 0
        while read < COUNT:
            read += sum(message.error() is None for message in consumer.consume(COUNT, 5))
        consumer.close()
        return read

    return by_java if request.param == "java" else by_librdkafka


CASES = ["follower", "own rack", "no replica there"]
"""What decides from where a client reads; by default its follower's rack alone."""


@pytest.mark.parametrize(
    ("read", "case"),
    [(client, case) for client in ("java", "librdkafka") for case in CASES]
    if os.environ.get("KPROXY_TEST_ALL")
    else [("java", "follower"), ("librdkafka", "follower")],
    indirect=["read"],
)
def test_clients_read_where_they_are(
    kafka3: Kafka, kproxy_process: Proxies, filled: str, read: Read, case: str, tmp_path: Path
) -> None:
    """From the follower in the rack of the rule; one that says the leader's rack itself reads from the leader, and so
    does one in whose rack there is no replica."""
    leader = leader_of(kafka3, filled)
    follower = min(set(kafka3.brokers) - {leader})
    rack = "nowhere" if case == "no replica there" else kafka3.racks[follower]
    proxy = zoned(kafka3, kproxy_process, rack, tmp_path)

    assert read(proxy.bootstrap, filled, kafka3.racks[leader] if case == "own rack" else "") >= COUNT
    filled_in = proxy.metric("kproxy_rewritten_total", what="racks") or 0
    assert bool(filled_in) is (case != "own rack")
    found = bytes_by_node(proxy, tmp_path)
    source = follower if case == "follower" else leader
    assert found[source] > COUNT * SIZE
    assert found[follower + leader - source] < COUNT * SIZE / 2


@pytest.mark.parametrize("protocol", ["classic", "consumer"] if os.environ.get("KPROXY_TEST_ALL") else ["consumer"])
def test_groups_know_the_rack_of_their_members(
    kafka3: Kafka, java: JavaProgram, kproxy_process: Proxies, filled: str, protocol: str, tmp_path: Path
) -> None:
    """A member of the newer protocol is described with it, and goes on heartbeating; one of the classic protocol is
    assigned as before."""
    proxy = zoned(kafka3, kproxy_process, "zone-b", tmp_path)
    group, direct = f"g-{free_port()}", kafka3.bootstrap("DIRECT")
    config = {"bootstrap.servers": proxy.bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    config |= {"group.protocol": protocol}
    more = java.start("consume", config=config, topics=[filled], count=COUNT + 1, seconds=60)
    body = {"group_ids": [group], "include_authorized_operations": False}

    def members() -> list[Any]:
        answers = [ask(address, CONSUMER_GROUP_DESCRIBE, 0, body) for address in direct.split(",")]
        return [member for answer in answers for described in answer["groups"] for member in described["members"]]

    if protocol == "consumer":
        (member,) = until(members)
        assert member["rack_id"] == "zone-b"
    java("produce", config={"bootstrap.servers": direct}, topic=filled, tag="more", count=COUNT, padding=SIZE)
    assert len(more.result(90)) > COUNT


@pytest.mark.deep
def test_a_follower_that_is_gone(
    kafka3: Kafka, kproxy_process: Proxies, filled: str, read: Read, tmp_path: Path
) -> None:
    """Its clients read from the leader, and from it again once it is back."""
    leader = leader_of(kafka3, filled)
    follower = max(set(kafka3.brokers) - {leader})
    kafka3.stop_broker(follower)
    try:
        proxy = zoned(kafka3, kproxy_process, kafka3.racks[follower], tmp_path / "gone")
        assert read(proxy.bootstrap, filled, "") >= COUNT
    finally:
        kafka3.start_broker(follower)
    assert bytes_by_node(proxy, tmp_path / "gone")[leader] > COUNT * SIZE
    assert leader_of(kafka3, filled) == leader
    proxy = zoned(kafka3, kproxy_process, kafka3.racks[follower], tmp_path / "back")
    assert read(proxy.bootstrap, filled, "") >= COUNT
    assert bytes_by_node(proxy, tmp_path / "back")[follower] > COUNT * SIZE
