"""Administration of a real cluster: what a client asks for by its own names happens to the broker's."""

from __future__ import annotations

from typing import Any

from tests.support.java_program import JavaProgram


def admin(java: JavaProgram, route: Any, *steps: list[Any]) -> list[Any]:
    """The answers to these steps, by one admin client."""
    return list(java("admin", config={"bootstrap.servers": route.bootstrap}, steps=list(steps)))


def test_the_cluster_is_described_with_addresses_that_lead_here(java: JavaProgram, route: Any) -> None:
    """DescribeCluster lists all three nodes; through a proxy each has another port than its broker."""
    (nodes,) = admin(java, route, ["nodes"])

    brokers = {str(node): f"127.0.0.1:{broker.ports['DIRECT']}" for node, broker in route.kafka.brokers.items()}
    behind = {broker.ports[name] for broker in route.kafka.brokers.values() for name in broker.ports}
    assert set(nodes) == set(brokers)
    if route.proxy is None:
        assert nodes == brokers
    else:
        assert not {int(address.rsplit(":", 1)[1]) for address in nodes.values()} & behind
        assert len(set(nodes.values())) == 3


def test_a_topic_lives_its_life_under_its_own_name(java: JavaProgram, route: Any) -> None:
    """Create, list, describe by name and id, grow, configure, and delete speak the client's name all along."""
    topic = route.topic("life")
    (created,) = admin(java, route, ["create", topic, 2, 3, {"retention.ms": "3600000"}])
    route.settled(topic, 2)
    names, described, *_ = admin(
        java,
        route,
        ["list"],
        ["describe", topic],
        ["set_config", "TOPIC", topic, "max.message.bytes", "54321"],
        ["add_partitions", topic, 4],
    )
    route.settled(topic, 4)
    at_broker = route.names_at_broker()
    by_id, grown, retention, size, folders = admin(
        java,
        route,
        ["name_of_id", created],
        ["describe", topic],
        ["get_config", "TOPIC", topic, "retention.ms"],
        ["get_config", "TOPIC", topic, "max.message.bytes"],
        ["log_dirs"],
    )
    admin(java, route, ["delete", [topic]])
    route.settled(topic, 0)

    assert topic in names
    assert route.upstream_name(topic) in at_broker
    assert route.upstream_name(topic) == topic or topic not in at_broker
    assert (described["name"], described["id"], len(described["leaders"])) == (topic, created, 2)
    assert [sorted(replicas) for replicas in described["replicas"]] == [[1, 2, 3]] * 2
    assert (by_id, grown["name"], len(grown["leaders"])) == (topic, topic, 4)
    assert (retention, size) == ("3600000", "54321")
    assert topic in folders


def test_a_topic_is_deleted_by_id(java: JavaProgram, route: Any) -> None:
    """A topic's id, as the client was told it, is enough to delete it."""
    topic = route.create("by-id")
    (described,) = admin(java, route, ["describe", topic])

    admin(java, route, ["delete_by_id", described["id"]])

    route.settled(topic, 0)


def test_records_are_deleted_up_to_an_offset(java: JavaProgram, route: Any) -> None:
    """DeleteRecords moves the start of the partition, which ListOffsets then shows."""
    topic = route.create("records", partitions=1)
    config = {"bootstrap.servers": route.bootstrap}
    java("produce", config=config, topic=topic, tag="v", count=30, padding=10)

    low, offsets = admin(java, route, ["delete_records", topic, 0, 12], ["offsets", topic, 0])

    assert (low, offsets) == (12, [12, 30])


def test_a_missing_topic_is_said_to_be_missing(java: JavaProgram, route: Any) -> None:
    """Describing a topic that does not exist gives the client Kafka's own error for it, and does not create it."""
    topic = route.topic("missing")

    answer = java.start("admin", config={"bootstrap.servers": route.bootstrap}, steps=[["describe", topic]])

    assert "UnknownTopicOrPartitionException" in str(answer.exception(60))
    assert not {topic, route.upstream_name(topic)} & route.names_at_broker()
