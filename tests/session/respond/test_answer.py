"""Answers to requests that fail: each API and version, and the ones that clients look at closely."""

from __future__ import annotations

import os
from random import Random
from typing import Any

import pytest

from kproxy.protocol import Message, decode_request, decode_response, encode
from kproxy.protocol.table import schema
from kproxy.protocol.table.schema import Api
from kproxy.protocol.table.shapes import shape
from kproxy.rules.entity import Entity, entities
from kproxy.session.respond import Failure, fail, fail_each
from kproxy.session.respond.error_responses import errors_of
from tests.support.frames import message
from tests.support.random_requests import random_request

FAILURE = Failure(29, "not for you")
TIMES = 20 if os.environ.get("KPROXY_TEST_ALL") else 5

CARRY_NOTHING = {("DescribeLogDirs", version) for version in (0, 1, 2)}
"""(API, version) whose responses have no place for the error of a request at all."""


def encoded(request: Message, response: Message) -> Message:
    """The response as a client reads it."""
    return decode_response(encode(response), request.api.key, request.version)


@pytest.mark.parametrize("api", schema.apis(), ids=str)
def test_a_whole_request_fails(api: Api) -> None:
    """In every version the answer can be encoded and read, has the request's correlation id and no throttle time, and
    gives each entity the code, unless the response has no place for it."""
    random = Random(api.key)
    for version in api.versions:
        form = shape(api.key, version)
        for _ in range(TIMES):
            request = decode_request(encode(random_request(api, version, random, full=bool(random.randrange(4)))))
            response = encoded(request, fail(request, FAILURE))
            errors = errors_of(request, response)

            assert request.header["correlation_id"] == response.header["correlation_id"]
            assert response.body.get("throttle_time_ms", 0) == 0
            if form.whole in ("top", "both") and (api.name, version) not in CARRY_NOTHING:
                assert response.body[form.code] == FAILURE.code
                assert form.text is None or response.body[form.text] == FAILURE.message
            if (api.name, version) in CARRY_NOTHING:
                continue
            for entity, code in errors.items():
                assert code == FAILURE.code or len(entity.where) < len(form.request), (version, entity)


@pytest.mark.parametrize("api", schema.apis(), ids=str)
def test_each_entity_fails_by_itself(api: Api) -> None:
    """With an error of its own for each entity, each has that one, where the response has a code for it."""
    random = Random(api.key)
    for version in api.versions:
        form = shape(api.key, version)
        for _ in range(TIMES):
            request = decode_request(encode(random_request(api, version, random, full=True)))
            failures = {entity: Failure(200 + number) for number, entity in enumerate(entities(request))}
            response = encoded(request, fail_each(request, failures))

            if form.carries or (not form.request and form.code):
                assert {entity: failure.code for entity, failure in failures.items()} == errors_of(request, response)
            if form.request and form.code is not None:
                assert response.body[form.code] == 0


def request_of(name: str, version: int, **body: Any) -> Message:
    return decode_request(message(schema.names()[name], version, "request", body))


def test_produce() -> None:
    """A partition that failed has no offset and no times."""
    topics = [{"name": "a", "partition_data": [{"index": 3, "records": b"x"}]}]
    response = fail(request_of("Produce", 8, acks=-1, topic_data=topics), Failure(6, "moved"))

    assert response.body["responses"][0]["name"] == "a"
    (partition,) = response.body["responses"][0]["partition_responses"]
    assert partition == {
        "index": 3,
        "error_code": 6,
        "base_offset": -1,
        "log_append_time_ms": -1,
        "log_start_offset": -1,
        "record_errors": [],
        "error_message": "moved",
    }


def test_fetch() -> None:
    """Fetch 7-12 says it at both places and keeps the session's id; 13 at the top only."""
    topics = [{"topic": "a", "partitions": [{"partition": 3}]}]
    both = fail(request_of("Fetch", 11, session_id=5, session_epoch=2, topics=topics), Failure(-1)).body
    (partition,) = both["responses"][0]["partitions"]

    assert (-1, 5) == (both["error_code"], both["session_id"])
    assert (-1, -1, -1, -1) == (
        partition["error_code"],
        partition["high_watermark"],
        partition["last_stable_offset"],
        partition["preferred_read_replica"],
    )
    assert partition["records"] == b""
    top = fail(request_of("Fetch", 13, topics=[{"partitions": [{"partition": 3}]}]), Failure(-1)).body
    assert (-1, []) == (top["error_code"], top["responses"])


def test_offset_fetch() -> None:
    """Up to v1 each partition says it, up to v7 the top, from v8 on each group."""
    topics = [{"name": "a", "partition_indexes": [0, 1]}]
    old = fail(request_of("OffsetFetch", 1, group_id="g", topics=topics), Failure(16)).body
    middle = fail(request_of("OffsetFetch", 7, group_id="g", topics=topics), Failure(16)).body
    new = fail(request_of("OffsetFetch", 8, groups=[{"group_id": "g", "topics": topics}]), Failure(16)).body

    assert old["topics"][0]["partitions"] == [
        {"partition_index": index, "committed_offset": -1, "metadata": "", "error_code": 16} for index in (0, 1)
    ]
    assert (16, []) == (middle["error_code"], middle["topics"])
    assert new["groups"] == [{"group_id": "g", "topics": [], "error_code": 16}]


def test_metadata_of_all() -> None:
    """All topics up to v12: there is no place for the code, and nothing else to say either."""
    body = fail(request_of("Metadata", 12, topics=None), Failure(29)).body

    assert (body["topics"], body["brokers"], body["controller_id"]) == ([], [], -1)


def test_api_versions() -> None:
    """UNSUPPORTED_VERSION comes in version 0 with ApiVersions' own range (KIP-511); another error as it was asked."""
    request = request_of("ApiVersions", 3, client_software_name="a", client_software_version="1")
    refused, failed = fail(request, Failure(35)), fail(request, Failure(42))
    entry = {"api_key": 18, "min_version": 0, "max_version": request.api.versions.last}

    assert decode_response(encode(refused), 18, 3).body == {"error_code": 35, "api_keys": [entry]}
    assert encode(failed)[:6].hex() == "00000007002a"


def test_entities_and_the_request_itself() -> None:
    """An error for a request without entities of its own is that of the whole."""
    request = request_of("Heartbeat", 3, group_id="g")

    assert fail(request, Failure(25)).body == fail_each(request, {Entity(group="g"): Failure(25)}).body


def test_no_message() -> None:
    """Without a text the field is null: clients have their own."""
    body = fail(request_of("DeleteGroups", 3, groups_names=["g"]), Failure(68)).body

    assert body["results"] == [{"group_id": "g", "error_code": 68, "error_message": None}]
