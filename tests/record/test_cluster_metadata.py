"""What is learnt of a cluster from Metadata answers."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from kproxy.base import cooperative
from kproxy.record.fanout import ClusterMetadata, KnownNode, KnownTopic
from tests.support.hooks import hooked

ORDERS, CLICKS = UUID(int=1), UUID(int=2)


def topic(name: str, uuid: UUID, *leaders: int, error: int = 0) -> dict[str, Any]:
    partitions = [{"partition_index": index, "leader_id": leader} for index, leader in enumerate(leaders)]
    return {"name": name, "topic_id": uuid, "error_code": error, "is_internal": False, "partitions": partitions}


def same(name: str) -> None:
    return None


def test_answers_add_up() -> None:
    """Each answer about some topics makes the picture fuller; one that shows nothing new changes nothing."""
    picture = ClusterMetadata("main")

    picture.learn({"topics": [topic("orders", ORDERS, 1, 2)]}, same)
    picture.learn({"topics": [topic("clicks", CLICKS, 3)]}, same)
    before = picture.version
    picture.learn({"topics": [topic("clicks", CLICKS, 3)]}, same)

    assert picture.topics == {
        "orders": KnownTopic(str(ORDERS), False, (1, 2)),
        "clicks": KnownTopic(str(CLICKS), False, (3,)),
    }
    assert picture.by_id == {str(ORDERS): "orders", str(CLICKS): "clicks"}
    assert picture.version == before


def test_names_are_the_brokers() -> None:
    """What a client calls orders is remembered as prod.orders, where that is its name at the broker."""
    picture = ClusterMetadata("main")

    picture.learn({"topics": [topic("orders", ORDERS, 1)], "cluster_id": "x"}, lambda name: f"prod.{name}")
    picture.learn({"topics": [], "cluster_id": None}, same)  # versions 0 and 1 have no id

    assert list(picture.topics) == ["prod.orders"]
    assert (picture.by_id[str(ORDERS)], picture.cluster_id) == ("prod.orders", "x")


def test_an_answer_of_all_topics_replaces_the_picture() -> None:
    """A topic that is gone leaves; nodes are those of the brokers' own answer."""
    picture = ClusterMetadata("main")
    picture.learn({"topics": [topic("orders", ORDERS, 1)]}, same)
    brokers = [{"node_id": 1, "host": "b1", "port": 9092, "rack": "a"}]

    picture.learn(
        {"topics": [topic("clicks", CLICKS, 1)], "brokers": brokers, "controller_id": 1, "cluster_id": "x"},
        same,
        own=True,
    )

    assert list(picture.topics) == ["clicks"]
    assert picture.nodes == {1: KnownNode("b1", 9092, "a")}
    assert (picture.controller, picture.cluster_id) == (1, "x")


def test_topics_with_errors_are_not_learnt() -> None:
    """The broker answers for topics that do not exist, too."""
    picture = ClusterMetadata("main")

    picture.learn({"topics": [topic("nothing", ORDERS, error=3)]}, same)

    assert picture.topics == {}
    assert picture.version == 0


def test_addresses_that_clients_are_shown_are_not_learnt() -> None:
    """They are kproxy's own."""
    picture = ClusterMetadata("main")

    picture.learn({"topics": [], "brokers": [{"node_id": 1, "host": "proxy", "port": 1}]}, same)

    assert picture.nodes == {}


def test_an_impossible_partition_makes_no_list_that_long() -> None:
    """Of a broken broker: what is learnt is as long as the answer, with some room for what it left out."""
    picture = ClusterMetadata("main")
    wrong = topic("orders", ORDERS, 1, 2)
    wrong["partitions"] += [{"partition_index": 5, "leader_id": 3}, {"partition_index": (1 << 31) - 1, "leader_id": 4}]

    picture.learn({"topics": [wrong]}, same)

    assert picture.topics["orders"].leaders == (1, 2, -1, -1, -1, 3, *(-1,) * 98)


def test_what_a_client_is_told_while_a_long_answer_is_learnt_stays() -> None:
    """The brokers' own answer of all topics is learnt a few at a time, and others learn in between."""
    picture = ClusterMetadata("main")
    picture.learn({"topics": [topic(f"old-{number}", UUID(int=200_000 + number), 1) for number in range(5000)]}, same)
    others = iter(range(100_000))

    def learn_another() -> None:
        number = next(others)
        if not number % 3:
            cooperative.install_hooks(None)
            picture.learn({"topics": [topic(f"new-{number}", UUID(int=300_000 + number), 1)]}, same)
            cooperative.install_hooks(learn_another)

    with hooked(learn_another):
        picture.learn({"topics": [topic(f"all-{n}", UUID(int=n + 1), 1) for n in range(40_000)]}, same, own=True)

    told = next(others)
    assert told > 9
    assert set(picture.topics) == {f"all-{n}" for n in range(40_000)} | {f"new-{n}" for n in range(0, told, 3)}
    assert not any(name.startswith("old-") for name in picture.topics)
