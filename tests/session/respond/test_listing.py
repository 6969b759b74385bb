"""What an answer to "all" shows."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from kproxy.protocol import Message, decode_request, decode_response, encode
from kproxy.protocol.table import schema
from kproxy.protocol.table.schema import Api
from kproxy.protocol.table.shapes import shape
from kproxy.rules.entity import Entity
from kproxy.session.respond import leave_out
from tests.support.frames import message
from tests.support.random_requests import answered, random_request


def pair(name: str, version: int, request: dict[str, Any], response: dict[str, Any]) -> tuple[Message, Message]:
    key = schema.names()[name]
    return (
        decode_request(message(key, version, "request", request)),
        decode_response(message(key, version, "response", response), key, version),
    )


def mine(entity: Entity) -> bool:
    """Whether anything of it is called mine-…"""
    names = (entity.topic, entity.group, entity.transactional_id, entity.resource and entity.resource[1])
    return any(name is not None and name.startswith("mine") for name in names)


@pytest.mark.parametrize(
    ("name", "version", "request_body", "array", "field"),
    [
        ("Metadata", 0, {"topics": []}, "topics", "name"),
        ("Metadata", 12, {"topics": None}, "topics", "name"),
        ("DescribeTopicPartitions", 0, {"topics": []}, "topics", "name"),
        ("ListGroups", 3, {}, "groups", "group_id"),
        ("ListTransactions", 0, {}, "transaction_states", "transactional_id"),
        ("DescribeAcls", 1, {"resource_type_filter": 2}, "resources", "resource_name"),
        ("ListConfigResources", 0, {}, "config_resources", "resource_name"),
        ("ListConfigResources", 1, {}, "config_resources", "resource_name"),
        ("DescribeUserScramCredentials", 0, {"users": []}, "results", "user"),
        ("DescribeUserScramCredentials", 0, {"users": None}, "results", "user"),
    ],
)
def test_lists(name: str, version: int, request_body: dict[str, Any], array: str, field: str) -> None:
    """What is not visible goes from a list of all; a second look finds nothing more."""
    names = ("mine-1", "other", "mine-2")
    request, response = pair(name, version, request_body, {array: [{field: one} for one in names]})

    assert leave_out(request, response, mine)
    assert [one[field] for one in response.body[array]] == ["mine-1", "mine-2"]
    assert not leave_out(request, response, mine)


@pytest.mark.parametrize(("name", "version"), [("Metadata", 0), ("Metadata", 12), ("DescribeTopicPartitions", 0)])
def test_what_was_named_is_answered(name: str, version: int) -> None:
    """Topics that the request names stay in the answer, visible or not."""
    request, response = pair(name, version, {"topics": [{"name": "other"}]}, {"topics": [{"name": "other"}]})

    assert not leave_out(request, response, mine)
    assert len(response.body["topics"]) == 1


def test_nothing_asked_for() -> None:
    """Metadata from v1 with an empty array asks for no topic, so nothing is left out."""
    request, response = pair("Metadata", 5, {"topics": []}, {"topics": [{"name": "other"}]})

    assert not leave_out(request, response, mine)


def test_offsets_of_all_topics() -> None:
    """Of several groups only those asked for all topics lose some; a topic goes with its last partition."""
    groups = [{"group_id": "g", "topics": None}, {"group_id": "h", "topics": [{"name": "b", "partition_indexes": [0]}]}]
    parts = [{"partition_index": 0}, {"partition_index": 1}]
    said = [{"group_id": "g", "topics": [{"name": name, "partitions": parts} for name in "ab"]}]
    said.append({"group_id": "h", "topics": [{"name": "b", "partitions": parts[:1]}]})
    request, response = pair("OffsetFetch", 8, {"groups": groups}, {"groups": said})
    seen: list[Entity] = []

    def visible(entity: Entity) -> bool:
        seen.append(entity)
        return entity.topic == "a" and entity.partition == 1

    assert leave_out(request, response, visible)
    assert [
        (group["group_id"], [(one["name"], len(one["partitions"])) for one in group["topics"]])
        for group in response.body["groups"]
    ] == [("g", [("a", 1)]), ("h", [("b", 1)])]
    assert seen[0] == Entity("a", partition=0, group="g")


def test_log_directories_stay() -> None:
    """Partitions go from the directories that hold them; the directories stay."""
    topics = [{"name": "other", "partitions": [{"partition_index": 0}]}]
    request, response = pair("DescribeLogDirs", 1, {"topics": None}, {"results": [{"log_dir": "/d", "topics": topics}]})

    assert leave_out(request, response, mine)
    assert [(one["log_dir"], one["topics"]) for one in response.body["results"]] == [("/d", [])]


def test_reassignments_and_elections() -> None:
    """Null asks for all of them."""
    topics = [{"name": name, "partitions": [{"partition_index": 0}]} for name in ("other", "mine")]
    request, response = pair("ListPartitionReassignments", 0, {"topics": None}, {"topics": topics})
    assert leave_out(request, response, mine)
    assert [one["name"] for one in response.body["topics"]] == ["mine"]

    results = [{"topic": name, "partition_result": [{"partition_id": 0}]} for name in ("other", "mine")]
    request, response = pair("ElectLeaders", 1, {"topic_partitions": None}, {"replica_election_results": results})
    assert leave_out(request, response, mine)
    assert [one["topic"] for one in response.body["replica_election_results"]] == ["mine"]


@pytest.mark.parametrize("api", schema.apis(), ids=str)
def test_all_visible_is_no_change(api: Api) -> None:
    """Where everything is visible, no answer to any request changes."""
    random = Random(api.key)
    for version in api.versions:
        for _ in range(10):
            request = decode_request(encode(random_request(api, version, random)))
            response = answered(request, random)
            before = encode(response)

            assert not leave_out(request, response, lambda _: True)
            assert encode(response) == before


@pytest.mark.parametrize("api", schema.apis(), ids=str)
def test_only_answers_to_all_lose_something(api: Api) -> None:
    """A request with names in all its arrays gets its answer whole, though nothing is visible."""
    random = Random(api.key)
    for version in api.versions:
        if not shape(api.key, version).request:
            continue
        request = decode_request(encode(random_request(api, version, random, full=True)))

        assert not leave_out(request, answered(request, random), lambda _: False)
