"""Requests with entities taken out."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from kproxy.protocol import Message, decode_request, encode
from kproxy.protocol.table import schema
from kproxy.protocol.table.schema import Api
from kproxy.rules.entity import Entity, entities
from kproxy.session.respond import without
from tests.support.frames import message
from tests.support.random_requests import random_request


def named(entity: Entity) -> tuple[Any, ...]:
    return (entity.topic, entity.topic_id, entity.partition, entity.group, entity.transactional_id,
            entity.resource, entity.member)  # fmt: skip


@pytest.mark.parametrize("api", schema.apis(), ids=str)
def test_the_others_stay(api: Api) -> None:
    """What is left of a random request asks for the other entities, in order; the request itself is as it was."""
    random = Random(api.key)
    for version in api.versions:
        for _ in range(15):
            request = decode_request(encode(random_request(api, version, random)))
            before, every = encode(request), entities(request)
            gone = {entity for entity in every if random.randrange(2)}
            rest = without(request, gone)

            assert encode(request) == before
            if not gone:
                assert rest is request
            elif rest is not None and len(gone) < len(every):
                again = decode_request(encode(rest))
                assert [named(one) for one in every if one not in gone] == [named(one) for one in entities(again)]
            elif len(gone) < len(every):
                raise AssertionError("entities got lost")


def fetch(session_epoch: int, *partitions: int) -> Message:
    topics = [{"topic": "a", "partitions": [{"partition": index} for index in partitions]}] if partitions else []
    body = {"session_id": 5, "session_epoch": session_epoch, "topics": topics}
    return decode_request(message(1, 11, "request", body))


def test_topics_without_partitions_vanish() -> None:
    """A topic of which all partitions go, goes; null arrays stay null."""
    groups = [
        {"group_id": "g", "topics": [{"name": "a", "partition_indexes": [0]}]},
        {"group_id": "h", "topics": None},
    ]
    request = decode_request(message(9, 8, "request", {"groups": groups}))
    rest = without(request, entities(request)[:1])

    assert rest is not None
    assert [(group["group_id"], group["topics"]) for group in rest.body["groups"]] == [("h", None)]
    assert without(request, entities(request)) is None


@pytest.mark.parametrize(("epoch", "stays"), [(0, False), (-1, False), (1, True), (9, True)])
def test_a_session_goes_on(epoch: int, stays: bool) -> None:
    """A Fetch within a session is sent with no topics, as the session has some; a full one is not sent."""
    request = fetch(epoch, 0, 1)
    rest = without(request, entities(request))

    assert stays is (rest is not None)
    assert rest is None or rest.body["topics"] == []
    empty = fetch(epoch)
    assert stays is (without(empty, [Entity()]) is not None)


def test_a_request_that_is_one_entity() -> None:
    """Nothing is left of a request whose only entity goes."""
    header = {"request_api_key": 12, "request_api_version": 1, "correlation_id": 7}
    request = Message(schema.load(12), 1, header, {"group_id": "g", "generation_id": 1, "member_id": "m"})

    assert without(request, entities(request)) is None
