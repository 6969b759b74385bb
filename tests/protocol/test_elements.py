"""Elements, topics and partitions of messages, walked by the table of shapes: all APIs and versions, random bodies."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any
from uuid import UUID

import pytest

from kproxy.protocol import Message
from kproxy.protocol.elements import (
    called,
    elements,
    only_partition,
    partitions,
    partitions_in,
    request_elements,
    retain,
    topics,
)
from kproxy.protocol.table import layout, schema
from kproxy.protocol.table.schema import Api
from kproxy.protocol.table.shapes import Level, shape
from tests.support.random_values import random_struct

ID = UUID(int=7)
BY_HAND = {
    ("Produce", "request"): ("topic_data", "name", "partition_data", "index"),
    ("Produce", "response"): ("responses", "name", "partition_responses", "index"),
    ("Fetch", "request"): ("topics", "topic", "partitions", "partition"),
    ("Fetch", "response"): ("responses", "topic", "partitions", "partition_index"),
    ("ShareFetch", "request"): ("topics", "topic", "partitions", "partition_index"),
    ("ShareFetch", "response"): ("responses", "topic", "partitions", "partition_index"),
    ("ListOffsets", "request"): ("topics", "name", "partitions", "partition_index"),
    ("ListOffsets", "response"): ("topics", "name", "partitions", "partition_index"),
    ("OffsetCommit", "request"): ("topics", "name", "partitions", "partition_index"),
    ("OffsetCommit", "response"): ("topics", "name", "partitions", "partition_index"),
    ("Metadata", "response"): ("topics", "name", "partitions", "partition_index"),
    ("DescribeTopicPartitions", "response"): ("topics", "name", "partitions", "partition_index"),
}
"""Arrays of topics and of partitions, and the fields with a topic's name and a partition's number."""


def random_messages(api: Api, side: str, count: int = 5) -> Iterator[Message]:
    for version in api.versions:
        struct = layout.body(api.key, version, side)
        header = {"correlation_id": 1} | ({"request_api_key": api.key} if side == "request" else {})
        for seed in range(count):
            yield Message(api, version, header, random_struct(struct, Random(f"{api} {version} {seed}")))


def at(levels: tuple[Level, ...], body: dict[str, Any], where: tuple[int, ...]) -> Iterator[Any]:
    """Yield the elements on the way to `where`."""
    parent: Any = body
    for level, index in zip(levels, where, strict=False):
        parent = [element for array in level.arrays for element in parent[array] or ()][index]
        yield parent


@pytest.mark.parametrize("api", schema.apis(), ids=str)
@pytest.mark.parametrize("side", ["request", "response"])
def test_indexes_lead_to_elements(api: Api, side: str) -> None:
    """Every element stands where its indexes say, the last one has nothing inside, and none is left out."""
    for message in random_messages(api, side):
        form = shape(api.key, message.version)
        levels = form.request if side == "request" else form.response
        places = []
        for element in elements(levels, message.body):
            assert list(at(levels, message.body, element.where)) == list(element.chain)
            for depth, (level, value) in enumerate(zip(levels, element.chain, strict=False)):
                assert element.roles.items() >= level.roles(value).items(), depth
            below = levels[len(element.chain) : len(element.chain) + 1]
            assert not any(level.elements(element.chain[-1]) for level in below)
            places.append(element.where)
        assert places == sorted(set(places))
        outermost = {where[0] for where in places}
        assert outermost == set(range(len(levels[0].elements(message.body)) if levels else 0))


@pytest.mark.parametrize(("name", "side"), BY_HAND)
def test_partitions_are_those_of_a_loop_by_hand(name: str, side: str) -> None:
    """With the very dicts of the message, in every version."""
    array, topic_name, inner, number = BY_HAND[name, side]
    for message in random_messages(schema.load(schema.names()[name]), side):
        by_hand = [
            (topic.get(topic_name), topic.get("topic_id"), one[number], one, topic)
            for topic in message.body[array] or ()
            for one in topic[inner] or ()
        ]
        walked = list(partitions(message))
        assert walked == by_hand
        assert all(
            one.fields is other[3] and one.around is other[4] for one, other in zip(walked, by_hand, strict=True)
        )
        assert [one.fields for one in topics(message)] == list(message.body[array] or ())


def test_messages_without_topics_list_none() -> None:
    """Nor do requests that have none of their own, such as a Heartbeat."""
    for name in ("Heartbeat", "ApiVersions", "FindCoordinator"):
        for message in random_messages(schema.load(schema.names()[name]), "request"):
            assert not list(topics(message))
            assert not list(partitions(message))


def test_topics_stand_in_groups() -> None:
    """An OffsetFetch since version 8 has topics in groups; partitions are bare numbers in its request."""
    api = schema.load(schema.names()["OffsetFetch"])
    groups = [
        {"group_id": "a", "topics": [{"name": "t", "partition_indexes": [1, 2]}]},
        {"group_id": "b", "topics": None},
    ]
    request = Message(api, 8, {"request_api_key": api.key}, {"groups": groups})

    assert [(one.name, one.around["group_id"]) for one in topics(request)] == [("t", "a")]
    assert [(one.topic, one.number, one.fields) for one in partitions(request)] == [("t", 1, 1), ("t", 2, 2)]


def test_elements_that_name_a_partition_are_topics_of_one() -> None:
    api = schema.load(schema.names()["StopReplica"])
    flat = [{"topic_name": "t", "partition_index": 3}, {"topic_name": "t", "partition_index": 4}]
    request = Message(api, 0, {"request_api_key": api.key}, {"ungrouped_partitions": flat})

    assert [(one.topic, one.number) for one in partitions(request)] == [("t", 3), ("t", 4)]


def test_a_request_gives_its_top_to_all() -> None:
    """Roles outside of all arrays hold for each element; a request whose array is empty has no element."""
    api = schema.load(schema.names()["OffsetDelete"])
    topic = {"name": "t", "partitions": [{"partition_index": 0}]}
    request = Message(api, 0, {"request_api_key": api.key}, {"group_id": "g", "topics": [topic]})

    assert [one.roles for one in request_elements(request)] == [{"group": "g", "topic": "t", "partition": 0}]
    assert not list(request_elements(Message(api, 0, request.header, {"group_id": "g", "topics": []})))


def test_a_body_that_was_not_read_has_nothing() -> None:
    """Not even in a version that the table lacks."""
    assert not list(partitions_in(0, 30_000, "request", None))
    with pytest.raises(KeyError):
        list(partitions_in(0, 30_000, "request", {}))


def test_the_only_partition() -> None:
    """It is found where there is no other, and no other topic."""
    one = {"topic": "t", "partitions": [{"partition_index": 4}]}
    two = {"topic": "t", "partitions": [{"partition_index": 4}, {"partition_index": 5}]}

    part = only_partition(1, 4, "response", {"responses": [one]})
    assert part is not None
    assert (part.topic, part.number) == ("t", 4)
    for topics_ in (None, [], [one, one], [two], [{"topic": "t", "partitions": None}]):
        assert only_partition(1, 4, "response", {"responses": topics_}) is None


def test_partitions_are_taken_out() -> None:
    """A topic without any goes, too; what stays is what was there."""
    api = schema.load(schema.names()["Produce"])
    first = {"name": "a", "partition_data": [{"index": 0}, {"index": 1}]}
    second = {"name": "b", "partition_data": [{"index": 0}]}
    request = Message(api, 8, {"request_api_key": api.key}, {"topic_data": [first, second]})

    assert retain(request, lambda one: one.number == 1)
    assert request.body == {"topic_data": [{"name": "a", "partition_data": [{"index": 1}]}]}
    assert not retain(request, lambda one: False)
    assert request.body == {"topic_data": []}


def test_topics_are_called_by_what_is_known_of_them() -> None:
    """The name in the message, that of the id, or the id as text."""
    api = schema.load(schema.names()["Fetch"])
    by_id = Message(api, 13, {}, {"responses": [{"topic_id": ID, "partitions": []}]})
    by_name = Message(api, 4, {}, {"responses": [{"topic": "t", "partitions": []}]})

    assert [called(one, {ID: "known"}.get) for one in topics(by_id)] == ["known"]
    assert [called(one, dict[UUID, str]().get) for one in topics(by_id)] == [str(ID)]
    assert [called(one, dict[UUID, str]().get) for one in topics(by_name)] == ["t"]
