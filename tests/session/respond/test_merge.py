"""A request in two parts, answered by kproxy and by the broker: the client gets one answer."""

from __future__ import annotations

import os
from random import Random
from typing import Any
from uuid import UUID

import pytest

from kproxy.protocol import Message, decode_request, decode_response, encode
from kproxy.protocol.table import schema
from kproxy.protocol.table.schema import Api
from kproxy.protocol.table.shapes import shape
from kproxy.rules.entity import Entity, entities
from kproxy.session.respond import Failure, errors_of, fail_each, merge, without
from tests.support.random_requests import answered, random_request

TIMES = 25 if os.environ.get("KPROXY_TEST_ALL") else 5
MERGED = [api for api in schema.apis() if any(shape(api.key, version).carries for version in api.versions)]


def keys(message: Message) -> list[Any]:
    """What identifies the innermost elements of a response, in its order."""
    form = shape(message.api.key, message.version)
    found: list[Any] = []

    def visit(depth: int, parent: dict[str, Any], around: tuple[Any, ...]) -> None:
        level = form.response[depth]
        for element in parent[level.array]:
            here = (*around, *(str(element[field]) for _, field in level.keys))
            if depth + 1 == len(form.response):
                found.append(here)
            else:
                visit(depth + 1, element, here)

    visit(0, message.body, ())
    return found


@pytest.mark.parametrize("api", MERGED, ids=str)
def test_everything_once_and_in_order(api: Api) -> None:
    """Whatever fails of a random request, the merged answer has what a full one has, in its order: errors for what
    failed, the broker's own elements for the rest. Neither request nor response is changed."""
    random = Random(api.key)
    for version in api.versions:
        if not shape(api.key, version).carries:
            continue
        for _ in range(TIMES):
            request = decode_request(encode(random_request(api, version, random, full=True)))
            whole = answered(request, random)
            every = entities(request)
            failures = {entity: Failure(1 + len(entity.where)) for entity in every if random.randrange(2)}
            rest = without(request, failures)
            if rest is None or not rest.body[shape(api.key, version).request[0].array]:
                continue
            said = answered(rest, random)
            before = encode(request), encode(rest), encode(said)
            merged = merge(request, said, failures)

            assert before == (encode(request), encode(rest), encode(said))
            again = decode_response(encode(merged), api.key, version)
            assert keys(whole) == keys(again)
            errors = {entity: failures[entity].code if entity in failures else 0 for entity in every}
            assert errors == errors_of(request, again)
            top = said.body.keys() - {shape(api.key, version).response[0].array}
            assert all(merged.body[name] is said.body[name] for name in top)


def message(name: str, version: int, body: dict[str, Any], **header: Any) -> Message:
    return Message(schema.load(schema.names()[name]), version, header | {"correlation_id": 7}, body)


def asked(name: str, version: int, **body: Any) -> Message:
    key = schema.names()[name]
    return decode_request(encode(message(name, version, body, request_api_key=key, request_api_version=version)))


def test_the_brokers_order_stays() -> None:
    """An answer in an order of the broker's own is not shuffled; the missing element comes before a later one."""
    request = asked("DeleteGroups", 1, groups_names=["a", "b", "c"])
    said = [{"group_id": "c", "error_code": 0}, {"group_id": "a", "error_code": 0}]
    merged = merge(request, message("DeleteGroups", 1, {"results": said}), {Entity(group="b", where=(1,)): Failure(30)})

    assert [one["group_id"] for one in merged.body["results"]] == ["b", "c", "a"]


def test_names_and_ids() -> None:
    """A topic asked for by its id is found though the answer names it, and keeps that name when it fails."""
    topic_id = UUID(int=9)
    request = asked("Metadata", 12, topics=[{"topic_id": topic_id, "name": None}])
    topic = {"error_code": 0, "name": "orders", "topic_id": topic_id, "partitions": [{"partition_index": 0}]}
    said = message("Metadata", 12, {"brokers": [], "topics": [topic]})
    merged = merge(request, said, {Entity("orders", topic_id, where=(0,)): Failure(29)})

    assert [(one["name"], one["topic_id"], one["error_code"], one["partitions"]) for one in merged.body["topics"]] == [
        ("orders", topic_id, 29, [])
    ]


def test_without_a_place_for_it() -> None:
    """Where the answer has no code for an entity, it is left out, as brokers do with partitions that they lack."""
    request = asked("ListPartitionReassignments", 0, topics=[{"name": "a", "partition_indexes": [0]}])
    said = message("ListPartitionReassignments", 0, {"error_code": 0, "topics": []})

    assert merge(request, said, {Entity("a", partition=0, where=(0, 0)): Failure(29)}).body == said.body


def test_asked_twice() -> None:
    """An entity that the request lists twice is in the answer once."""
    topics = [{"name": "a", "partitions": [{"partition_index": 0}]}] * 2
    request = asked("ListOffsets", 1, topics=topics)
    every = entities(request)
    merged = merge(request, message("ListOffsets", 1, {"topics": []}), dict.fromkeys(every, Failure(3)))

    assert keys(merged) == [("a", "0")]


def test_a_broker_that_answers_too_little() -> None:
    """Answers by position that are too few or too many: nothing of them is lost."""
    acl = {
        "resource_type": 2,
        "resource_name": "x",
        "principal": "u",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    request = asked("CreateAcls", 1, creations=[acl, acl, acl])
    failures = {entities(request)[1]: Failure(31, "no")}

    def merged(*codes: int) -> list[int]:
        said = {"results": [{"error_code": code, "error_message": None} for code in codes]}
        return [one["error_code"] for one in merge(request, message("CreateAcls", 1, said), failures).body["results"]]

    assert merged(1, 2) == [1, 31, 2]
    assert merged(1) == [1, 31]
    assert merged(1, 2, 3) == [1, 31, 2, 3]


def test_errors_that_belong_further_out() -> None:
    """An error of a group stands at the group (OffsetFetch 8), or at the top where it has the only one (up to 7)."""
    topics = [{"name": "a", "partition_indexes": [0, 1]}]
    request = asked("OffsetFetch", 8, groups=[{"group_id": name, "topics": topics} for name in ("g", "h")])
    parts = [{"partition_index": index, "error_code": 0} for index in (0, 1)]
    said = {"group_id": "h", "error_code": 0, "topics": [{"name": "a", "partitions": parts}]}
    failures = dict.fromkeys(entities(request)[:2], Failure(30))
    merged = merge(request, message("OffsetFetch", 8, {"groups": [said]}), failures)
    assert merged.body["groups"] == [{"group_id": "g", "error_code": 30, "topics": []}, said]

    old = asked("OffsetFetch", 5, group_id="g", topics=topics)
    body = {"throttle_time_ms": 3, "error_code": 0, "topics": [{"name": "a", "partitions": parts[:1]}]}
    found = merge(old, message("OffsetFetch", 5, body), {entities(old)[1]: Failure(30)})
    assert found.body == {"throttle_time_ms": 3, "error_code": 30, "topics": []}
    each = fail_each(old, {entities(old)[1]: Failure(3)})
    assert (each.body["error_code"], keys(each)) == (0, [("a", "1")])
    assert fail_each(old, {entities(old)[1]: Failure(30)}).body == found.body | {"throttle_time_ms": 0}


def test_a_lost_fetch_session() -> None:
    """A fetch session's error is at the top, whichever partition a rule saw, and nothing else is in the answer."""
    topics = [{"topic_id": UUID(int=1), "partitions": [{"partition": 0}]}]
    request = asked("Fetch", 13, session_id=5, session_epoch=1, topics=topics)
    said = message("Fetch", 13, {"throttle_time_ms": 0, "error_code": 0, "session_id": 5, "responses": []})
    merged = merge(request, said, dict.fromkeys(entities(request), Failure(70)))

    assert (merged.body["error_code"], merged.body["session_id"], merged.body["responses"]) == (70, 5, [])
