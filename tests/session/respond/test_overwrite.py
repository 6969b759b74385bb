"""Errors after the broker's work."""

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
from kproxy.session.respond import Failure, errors_of, fail, overwrite, overwrite_top
from tests.support.random_requests import answered, random_request

ID = UUID(int=77)
TIMES = 20 if os.environ.get("KPROXY_TEST_ALL") else 5


@pytest.mark.parametrize("api", schema.apis(), ids=str)
def test_some_of_an_answer_fails(api: Api) -> None:
    """In the full answer to a random request, any entities get the error, the others keep what they have."""
    random = Random(api.key)
    for version in api.versions:
        form = shape(api.key, version)
        for _ in range(TIMES):
            request = decode_request(encode(random_request(api, version, random, full=True)))
            said = answered(request, random)
            before, every = encode(said), entities(request)
            failures = {entity: Failure(50) for entity in every if random.randrange(2)}
            found = decode_response(encode(overwrite(request, said, failures)), api.key, version)

            assert encode(said) == before
            if not failures:
                assert encode(found) == before
            elif form.carries or (not form.request and form.code):
                expected = {entity: 50 if entity in failures else 0 for entity in every}
                assert expected == errors_of(request, found)
            else:
                assert encode(found) == before


@pytest.mark.parametrize("api", schema.apis(), ids=str)
def test_the_top(api: Api) -> None:
    """An error at the top leaves nothing in the answer but what quotas and sessions need; the answer is copied."""
    random = Random(api.key)
    for version in api.versions:
        form = shape(api.key, version)
        if form.code is None:
            continue
        request = decode_request(encode(random_request(api, version, random)))
        said = answered(request, random)
        before = encode(said)
        found = decode_response(encode(overwrite_top(said, Failure(50))), api.key, version)
        body = fail(request, Failure(50)).body

        assert encode(said) == before
        assert found.body[form.code] == 50
        for name in ("throttle_time_ms", "session_id"):
            assert found.body.get(name) == said.body.get(name)
        if form.whole == "top" and not form.echo and api.name != "ApiVersions":
            failed = decode_response(encode(Message(api, version, found.header, body)), api.key, version)
            assert {**found.body, "throttle_time_ms": 0} == {**failed.body, "throttle_time_ms": 0}


def message(name: str, version: int, body: dict[str, Any], **header: Any) -> Message:
    return Message(schema.load(schema.names()[name]), version, header | {"correlation_id": 7}, body)


def asked(name: str, version: int, **body: Any) -> Message:
    key = schema.names()[name]
    return decode_request(encode(message(name, version, body, request_api_key=key, request_api_version=version)))


def fetched(*partitions: int, topic: dict[str, Any] | None = None) -> Message:
    parts = [{"partition_index": index, "error_code": 0, "records": b"r"} for index in partitions]
    topics = [(topic or {"topic": "a"}) | {"partitions": parts}]
    version = 13 if topic else 11
    body = {"session_id": 5, "error_code": 0, "responses": topics if partitions else []}
    return decode_response(encode(message("Fetch", version, body)), 1, version)


def codes(response: Message) -> list[tuple[Any, ...]]:
    return [
        (
            topic.get("topic", topic.get("topic_id")),
            one["partition_index"],
            one["error_code"],
            bytes(one["records"] or b""),
        )
        for topic in response.body["responses"]
        for one in topic["partitions"]
    ]


def test_an_incremental_fetch_gains_entries() -> None:
    """An error for a partition that an incremental response lacks is added, whether the request lists it or not."""
    topics = [{"topic": "a", "partitions": [{"partition": index} for index in (0, 1, 2)]}]
    request = asked("Fetch", 11, session_id=5, session_epoch=3, topics=topics)
    listed, of_session = Entity("a", partition=1, where=(0, 1)), Entity("b", partition=4)
    found = overwrite(request, fetched(0, 2), {listed: Failure(6), of_session: Failure(74)})

    assert codes(found) == [("a", 0, 0, b"r"), ("a", 1, 6, b""), ("a", 2, 0, b"r"), ("b", 4, 74, b"")]
    assert codes(overwrite(request, fetched(), {of_session: Failure(6)})) == [("b", 4, 6, b"")]
    assert codes(overwrite(request, fetched(4), {Entity("a", partition=4): Failure(6)})) == [("a", 4, 6, b"")]


def test_a_session_by_ids() -> None:
    """From v13 a fetch session's partitions are found and added by topic id; without one nothing can be said."""
    request = asked("Fetch", 13, session_id=5, session_epoch=3)
    said = fetched(0, topic={"topic_id": ID})
    failures = {
        Entity("a", ID, 0): Failure(6),
        Entity("a", ID, 1): Failure(6),
        Entity("no id", partition=1): Failure(6),
    }

    assert codes(overwrite(request, said, failures)) == [(ID, 0, 6, b""), (ID, 1, 6, b"")]


def test_a_request_for_all() -> None:
    """An error for a request that names nothing goes to the top, or to every topic where there is no code there."""
    request = asked("Metadata", 9, topics=None)
    topics = [{"name": name, "error_code": 0, "partitions": [{"partition_index": 0}]} for name in ("a", "b")]
    said = message("Metadata", 9, {"brokers": [], "topics": topics})
    found = overwrite(request, said, {Entity(): Failure(5)})

    assert [(one["name"], one["error_code"], one["partitions"]) for one in found.body["topics"]] == [
        ("a", 5, []),
        ("b", 5, []),
    ]
    listed = message("ListGroups", 1, {"throttle_time_ms": 9, "error_code": 0, "groups": [{"group_id": "g"}]})
    assert overwrite(asked("ListGroups", 1), listed, {Entity(): Failure(15)}).body == {
        "throttle_time_ms": 9,
        "error_code": 15,
        "groups": [],
    }


def test_nowhere_to_say_it() -> None:
    """DescribeLogDirs up to v2 can say nothing: its answer stays."""
    said = message("DescribeLogDirs", 1, {"results": [{"log_dir": "/d", "topics": []}]})

    assert overwrite(asked("DescribeLogDirs", 1, topics=None), said, {Entity(): Failure(31)}).body == said.body


def test_a_commit_that_was_stored() -> None:
    """Partitions of a commit that the broker stored fail one by one; the group stays untouched elsewhere."""
    topics = [{"name": "a", "partitions": [{"partition_index": 0}, {"partition_index": 1}]}]
    request = asked("OffsetCommit", 2, group_id="g", topics=topics)
    stored = {"topics": [{"name": "a", "partitions": [{"partition_index": i, "error_code": 0} for i in (0, 1)]}]}
    found = overwrite(request, message("OffsetCommit", 2, stored), {entities(request)[1]: Failure(16)})

    assert [one["error_code"] for one in found.body["topics"][0]["partitions"]] == [0, 16]
