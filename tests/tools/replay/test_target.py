"""What is known of the target."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kproxy.protocol.table import schema
from kproxy.tools.replay.target import TargetCluster


@pytest.fixture
def target() -> TargetCluster:
    return TargetCluster(("boot", 9092))


def metadata(tools: Any, target: TargetCluster, *topics: dict[str, Any], creates: bool = False) -> None:
    """An answer with two nodes and these topics."""
    asked = tools.asked(tools.exchange(3, 12, {"allow_auto_topic_creation": creates, "topics": [
        {"name": one["name"], "topic_id": UUID(int=0)} for one in topics]}, {})).message  # fmt: skip
    brokers = [{"node_id": node, "host": f"b{node}", "port": 9092, "rack": None} for node in (1, 2)]
    whole = [
        {"error_code": 0, "topic_id": UUID(int=0), "is_internal": False, "partitions": [], **one} for one in topics
    ]
    target.learn(asked, tools.answer(3, 12, brokers=brokers, topics=whole))


def partition(number: int, leader: int) -> dict[str, Any]:
    return {"error_code": 0, "partition_index": number, "leader_id": leader, "replica_nodes": [], "isr_nodes": []}


def test_metadata_tells_nodes_leaders_and_ids(tools: Any, target: TargetCluster) -> None:
    """Of topics without an error."""
    metadata(tools, target, {"name": "t", "topic_id": UUID(int=7), "partitions": [partition(0, 2)]})

    assert target.nodes == {1: ("b1", 9092), 2: ("b2", 9092)}
    assert (target.leaders, target.ids, target.names) == ({("t", 0): 2}, {"t": UUID(int=7)}, {UUID(int=7): "t"})
    assert "t" in target.looked_up


def test_a_topic_that_is_being_made_is_asked_for_again(tools: Any, target: TargetCluster) -> None:
    """Until its partitions have leaders."""
    metadata(tools, target, {"name": "t", "error_code": 5}, creates=True)
    made = set(target.created)
    metadata(tools, target, {"name": "t", "partitions": [partition(0, -1)]})
    waiting = "t" not in target.looked_up
    metadata(tools, target, {"name": "t", "partitions": [partition(0, 1)]})

    assert (made, waiting) == ({"t"}, True)
    assert "t" in target.looked_up


def test_a_topic_that_never_comes_is_given_up(tools: Any, target: TargetCluster) -> None:
    """Until it is made for certain: a broker may not make topics by itself, and does not say so."""
    metadata(tools, target, {"name": "t", "error_code": 3}, creates=True)
    target.give_up(["t", "other"])
    metadata(tools, target, {"name": "t", "error_code": 3}, creates=True)
    waiting = set(target.created)
    create = tools.asked(tools.exchange(19, 5, {"topics": []}, {})).message
    target.learn(create, tools.answer(19, 5, topics=[{"name": "t", "error_code": 0, "error_message": None}]))

    assert (waiting, target.created, target.missing) == (set(), {"t"}, set())


def test_topics_are_made_and_deleted(tools: Any, target: TargetCluster) -> None:
    """By the replay itself; an id is forgotten with its topic."""
    create = tools.asked(tools.exchange(19, 7, {"topics": []}, {})).message
    one = {"name": "t", "topic_id": UUID(int=7), "error_code": 0, "error_message": None, "configs": None}
    target.learn(
        create, tools.answer(19, 7, topics=[one, one | {"name": "bad", "topic_id": UUID(int=0), "error_code": 36}])
    )
    made, ids = set(target.created), dict(target.ids)
    delete = tools.asked(tools.exchange(20, 4, {"topic_names": ["t"]}, {})).message
    target.learn(delete, tools.answer(20, 4, responses=[{"name": "t", "error_code": 0}]))

    assert (made, ids["t"]) == ({"t"}, UUID(int=7))
    assert target.created == set() and "t" not in target.ids


@pytest.mark.parametrize(
    ("version", "fields", "answer"),
    [
        (3, {"key": "g", "key_type": 0}, {"node_id": 2, "host": "b2", "port": 9092}),
        (4, {"coordinator_keys": ["g"], "key_type": 0},
         {"coordinators": [{"key": "g", "node_id": 2, "host": "b2", "port": 9092, "error_code": 0,
                            "error_message": None}]}),
    ],
)  # fmt: skip
def test_coordinators_are_learned_from_every_version(
    tools: Any, target: TargetCluster, version: int, fields: dict[str, Any], answer: dict[str, Any]
) -> None:
    """One by one, and many at once."""
    target.learn(tools.asked(tools.exchange(10, version, fields, {})).message, tools.answer(10, version, **answer))

    assert target.coordinators == {(0, "g"): 2}
    assert target.address_of(2) == ("b2", 9092)


def test_versions_bound_what_is_sent(tools: Any, target: TargetCluster) -> None:
    """An API that the target lacks, a version that it lacks; before they are known nothing is refused."""
    before = target.lacks(0, 99)
    keys = [{"api_key": 0, "min_version": 3, "max_version": 9}]
    target.learn(tools.asked(tools.exchange(18, 0, {}, {})).message, tools.answer(18, 0, api_keys=keys))

    assert (before, target.lacks(0, 9)) == ("", "")
    assert target.lacks(0, 10) == "the target has versions 3 to 9 of it, not 10"
    assert target.lacks(1, 4) == "the target does not have this API"
    assert target.newest(schema.load(0), 12) == 9
