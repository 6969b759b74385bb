"""Where requests go."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kproxy.tools.replay.routing import RequestRouter, subject_of
from kproxy.tools.replay.target import GROUP, TRANSACTION, TargetCluster
from tests.support.frames import produce_body


@pytest.fixture
def places() -> RequestRouter:
    """Three nodes; t 0 and t 1 are led by 1, t 2 by 2."""
    target = TargetCluster(("boot", 9092))
    target.nodes = {node: (f"b{node}", 9092) for node in (1, 2, 3)}
    target.leaders = {("t", 0): 1, ("t", 1): 1, ("t", 2): 2}
    target.coordinators = {(GROUP, "g"): 3}
    target.looked_up = {"t", (GROUP, "g")}
    return RequestRouter(target, {UUID(int=7): "t"})


def produce(tools: Any, *partitions: int) -> Any:
    return tools.exchange(0, 9, produce_body(*(("t", number, None) for number in partitions), acks=1), {})


def test_a_request_is_cut_into_parts_by_leaders(tools: Any, places: RequestRouter) -> None:
    """What nobody leads goes with the first of them; with one leader it stays whole."""
    one, other = produce(tools, 0, 1, 2, 9), produce(tools, 1, 9)
    addresses = places.addresses(one, places.of(one))
    parts = places.parts(one.request, addresses)
    found = {
        address: [part["index"] for topic in message.body["topic_data"] for part in topic["partition_data"]]
        for address, message in parts
    }

    assert found == {("b1", 9092): [0, 1, 9], ("b2", 9092): [2]}
    assert places.parts(other.request, places.addresses(other, places.of(other))) == [(("b1", 9092), other.request)]


def test_fetches_of_a_connection_are_about_all_that_it_fetches(tools: Any, places: RequestRouter) -> None:
    """Its session holds them all; topics may be named by id. With several leaders there is no session."""
    parts = [[{"partition": number}] for number in (0, 2)]
    seen = [tools.seen(1, 13, {"topics": [{"topic_id": UUID(int=7), "partitions": part}]}, {}, at=at)
            for at, part in enumerate(parts)]  # fmt: skip
    first, second = tools.record(seen).exchanges

    for one in (first, second):
        assert places.addresses(one, places.of(one)) == [("b1", 9092), ("b2", 9092)]
    assert places.spread == {first.line.number}


def test_share_fetches_go_where_most_of_their_partitions_are(tools: Any, places: RequestRouter) -> None:
    """As a whole, and those after them too; the others are counted."""
    topics = [{"topic_id": UUID(int=7), "partitions": [{"partition_index": number} for number in (0, 1, 2)]}]
    one = tools.exchange(78, 1, {"group_id": "g", "member_id": "m", "topics": topics}, {})

    assert places.addresses(one, places.of(one)) == [("b1", 9092)]
    assert places.astray == 1


def test_group_requests_go_to_the_coordinator(tools: Any, places: RequestRouter) -> None:
    """Of the group, and TxnOffsetCommit too; others have to be asked for first."""
    beat, commit, end = (tools.exchange(key, version, fields, {}) for key, version, fields in (
        (12, 3, {"group_id": "g"}), (28, 3, {"group_id": "g", "transactional_id": "x"}),
        (26, 3, {"transactional_id": "x"})))  # fmt: skip

    assert places.addresses(beat, places.of(beat)) == places.addresses(commit, places.of(commit)) == [("b3", 9092)]
    assert places.unknown(places.of(end)) == {(TRANSACTION, "x")}
    assert places.addresses(end, places.of(end)) == [("boot", 9092)]


def test_what_is_about_nothing_goes_to_the_bootstrap_server(tools: Any, places: RequestRouter) -> None:
    """Metadata, CreateTopics, InitProducerId without a transactional id."""
    for one in (tools.exchange(3, 9, {}, {}), tools.exchange(19, 5, {"topics": []}, {}), tools.exchange(22, 4, {}, {})):
        wanted = places.of(one)

        assert places.unknown(wanted) == set()
        assert places.addresses(one, wanted) == [("boot", 9092)]


def test_topics_that_are_not_known_are_asked_for(tools: Any, places: RequestRouter) -> None:
    """By name."""
    places.target.looked_up.clear()

    assert places.unknown(places.of(produce(tools, 0))) == {"t"}


def test_what_has_moved_is_asked_for_again(tools: Any, places: RequestRouter) -> None:
    """Topics and coordinators."""
    beat = tools.exchange(12, 3, {"group_id": "g"}, {})
    for one in (beat, produce(tools, 0)):
        places.forget(places.of(one))

        assert places.unknown(places.of(one))


def test_groups_in_an_array_are_found(tools: Any) -> None:
    """OffsetFetch 8 asks for several groups."""
    groups = [{"group_id": "g", "topics": None}]

    assert subject_of(tools.exchange(9, 8, {"groups": groups}, {}).request, {}).coordinator == (GROUP, "g")
