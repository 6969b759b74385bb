"""Where requests go."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kproxy.replay.places import Places, wish
from kproxy.replay.target import GROUP, TRANSACTION, Target


@pytest.fixture
def places() -> Places:
    """Three nodes; t 0 and t 1 are led by 1, t 2 by 2."""
    target = Target(("boot", 9092))
    target.nodes = {node: (f"b{node}", 9092) for node in (1, 2, 3)}
    target.leaders = {("t", 0): 1, ("t", 1): 1, ("t", 2): 2}
    target.coordinators = {(GROUP, "g"): 3}
    target.asked = {"t", (GROUP, "g")}
    return Places(target, {UUID(int=7): "t"})


def produce(tools: Any, *partitions: int) -> Any:
    parts = [{"index": number, "records": None} for number in partitions]
    return tools.exchange(0, 9, {"acks": 1, "topic_data": [{"name": "t", "partition_data": parts}]}, {})


def fetch(tools: Any, *partitions: int) -> Any:
    parts = [{"partition": number} for number in partitions]
    return tools.exchange(1, 13, {"topics": [{"topic_id": UUID(int=7), "partitions": parts}]}, {})


def test_a_request_goes_to_the_leader_of_most_of_its_partitions(tools: Any, places: Places) -> None:
    """The others are counted."""
    one = produce(tools, 0, 1, 2)

    assert places.address(one, places.of(one)) == ("b1", 9092)
    assert places.astray == 1


def test_fetches_of_a_connection_stay_together(tools: Any, places: Places) -> None:
    """For the sake of their session; topics may be named by id."""
    first, later = fetch(tools, 2), fetch(tools, 0)
    later.line = first.line

    assert [places.address(one, places.of(one)) for one in (first, later)] == [("b2", 9092), ("b2", 9092)]


def test_group_requests_go_to_the_coordinator(tools: Any, places: Places) -> None:
    """Of the group, and TxnOffsetCommit too; others have to be asked for first."""
    beat, commit, end = (tools.exchange(key, version, fields, {}) for key, version, fields in (
        (12, 3, {"group_id": "g"}), (28, 3, {"group_id": "g", "transactional_id": "x"}),
        (26, 3, {"transactional_id": "x"})))  # fmt: skip

    assert places.address(beat, places.of(beat)) == places.address(commit, places.of(commit)) == ("b3", 9092)
    assert places.unknown(places.of(end)) == {(TRANSACTION, "x")}
    assert places.address(end, places.of(end)) == ("boot", 9092)


def test_what_is_about_nothing_goes_to_the_bootstrap_server(tools: Any, places: Places) -> None:
    """Metadata, CreateTopics, InitProducerId without a transactional id."""
    for one in (tools.exchange(3, 9, {}, {}), tools.exchange(19, 5, {"topics": []}, {}), tools.exchange(22, 4, {}, {})):
        wanted = places.of(one)

        assert places.unknown(wanted) == set()
        assert places.address(one, wanted) == ("boot", 9092)


def test_topics_that_are_not_known_are_asked_for(tools: Any, places: Places) -> None:
    """By name."""
    places.target.asked.clear()

    assert places.unknown(places.of(produce(tools, 0))) == {"t"}


def test_groups_in_an_array_are_found(tools: Any) -> None:
    """OffsetFetch 8 asks for several groups."""
    groups = [{"group_id": "g", "topics": None}]

    assert wish(tools.exchange(9, 8, {"groups": groups}, {}).request, {}).coordinator == (GROUP, "g")
