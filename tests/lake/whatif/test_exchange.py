"""The topics of a request, read without its entities: the same as with them."""

from __future__ import annotations

from random import Random
from uuid import UUID

import pytest

from kproxy.protocol import decode_request
from kproxy.protocol.table import layout, schema
from kproxy.protocol.table.layout import ZERO_UUID
from kproxy.protocol.table.schema import Api
from kproxy.rules.entity import entities
from kproxy.tools.rehearse.dialogue import request
from kproxy.tools.rehearse.whatif.exchange import MOST_TOPICS, PackedExchange, topics_of
from tests.support.frames import message
from tests.support.random_values import random_struct

TOPICS = {UUID(int=number): f"topic-{number}" for number in range(1, 100)}


def recorded(key: int, version: int, frame: bytes) -> PackedExchange:
    return PackedExchange(1, key, version, 1, None, frame, 0.0)


def expected(frame: bytes) -> tuple[str, ...]:
    """By the entities of the decoded request."""
    names: dict[str, None] = {}
    for one in entities(decode_request(frame)):
        if one.topic is None and one.topic_id not in (None, ZERO_UUID):
            assert one.topic_id is not None
            names[TOPICS.get(one.topic_id, str(one.topic_id))] = None
        elif one.topic:
            names[one.topic] = None
    return tuple(names)[:MOST_TOPICS]


@pytest.mark.parametrize("api", schema.apis(), ids=str)
def test_both_ways_agree(api: Api) -> None:
    """For random requests of every version, and for the same ones again."""
    random = Random(api.key)
    for version in api.versions:
        for _ in range(3):
            body = random_struct(layout.body(api.key, version, "request"), random)
            frame = message(api.key, version, "request", body)
            for _ in range(2):
                assert topics_of(recorded(api.key, version, frame), TOPICS) == expected(frame)


def test_ids_have_the_names_that_are_known() -> None:
    """Others are told as they are; a topic that is named twice is told once, and only so many are told."""
    ids = [UUID(int=1), UUID(int=500), UUID(int=1)]
    asked = request(0, 13, 1, topic_data=[{"topic_id": one, "partition_data": []} for one in ids])[4:]
    many = request(3, 1, 1, topics=[{"name": f"t{number}"} for number in range(50)])[4:]

    assert topics_of(recorded(0, 13, asked), TOPICS) == ("topic-1", str(UUID(int=500)))
    assert topics_of(recorded(3, 1, many), {}) == tuple(f"t{number}" for number in range(MOST_TOPICS))


def test_what_cannot_be_read_has_no_topics() -> None:
    """A frame that is cut, an API that is not known, a version that is not."""
    asked = request(3, 1, 1, topics=[{"name": "orders"}])[4:]

    assert topics_of(recorded(3, 1, asked[:-2]), {}) == ()
    assert topics_of(recorded(999, 1, asked), {}) == ()
    assert topics_of(recorded(3, 99, asked), {}) == ()
