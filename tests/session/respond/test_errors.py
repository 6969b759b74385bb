"""What a response says of each entity of its request."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

from kproxy.protocol import Message
from kproxy.protocol.table import schema
from kproxy.rules.entity import Entity, entities
from kproxy.session.respond import errors_of

ID = UUID(int=5)


def pair(name: str, version: int, request: dict[str, Any], response: dict[str, Any]) -> tuple[Message, Message]:
    api = schema.load(schema.names()[name])
    return Message(api, version, {"request_api_key": api.key}, request), Message(api, version, {}, response)


def test_the_nearest_code_counts() -> None:
    """A partition's own code, else its group's; what the response lacks has no error."""
    group = {"group_id": "g", "member_id": None, "topics": [{"name": "a", "partition_indexes": [0, 1, 2]}]}
    parts = [{"partition_index": 0, "error_code": 0}, {"partition_index": 1, "error_code": 3}]
    said = {"group_id": "g", "error_code": 0, "topics": [{"name": "a", "partitions": parts}]}
    request, response = pair("OffsetFetch", 8, {"groups": [group]}, {"groups": [said]})

    assert list(errors_of(request, response).values()) == [0, 3, 0]
    said["error_code"] = 16
    assert list(errors_of(request, response).values()) == [16, 3, 16]


def test_the_top_counts_for_all() -> None:
    """A code at the top is that of every entity that has none of its own."""
    topics = [{"topic": "a", "partitions": [{"partition": 0}, {"partition": 1}]}]
    said = {"error_code": 70, "responses": [{"topic": "a", "partitions": [{"partition_index": 1, "error_code": 6}]}]}

    assert list(errors_of(*pair("Fetch", 11, {"topics": topics}, said)).values()) == [70, 6]
    beat = pair("Heartbeat", 1, {"group_id": "g", "member_id": "m"}, {"error_code": 27})
    assert errors_of(*beat) == {Entity(group="g", member="m"): 27}


def test_entities_that_have_got_names() -> None:
    """Entities with names for their ids, and partitions of a session, are told as they were handed in."""
    topics = [{"topic_id": ID, "partitions": [{"partition": 0}]}]
    parts = [{"partition_index": 0, "error_code": 6}, {"partition_index": 9, "error_code": 3}]
    request, response = pair(
        "Fetch", 13, {"topics": topics}, {"error_code": 0, "responses": [{"topic_id": ID, "partitions": parts}]}
    )
    named = [replace(entities(request)[0], topic="a"), Entity("a", ID, 9), Entity("a", ID, 10)]

    assert errors_of(request, response, named) == {named[0]: 6, named[1]: 3, named[2]: 0}


def test_by_position() -> None:
    """Results of ACLs belong to the creations in the same place."""
    acl = {"resource_type": 2, "resource_name": "x", "resource_pattern_type": 3}
    codes = [{"error_code": 0}, {"error_code": 31}]

    assert list(errors_of(*pair("CreateAcls", 1, {"creations": [acl, acl]}, {"results": codes})).values()) == [0, 31]
