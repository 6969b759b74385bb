"""Which elements of a message belong to some of its entities."""

from __future__ import annotations

from random import Random

import pytest

from kproxy.protocol import Message
from kproxy.protocol.elements import request_elements
from kproxy.protocol.table import schema
from kproxy.protocol.table.shapes import Level, shape
from kproxy.rules.entity import Entity, entities
from kproxy.rules.kinds.base.fields import elements_of
from tests.support.random_requests import answered, random_request

CASES = [(api, version) for api in schema.apis() for version in (api.versions[0], api.versions[-1])
         if shape(api.key, version).request]  # fmt: skip


def innermost(message: Message, levels: tuple[Level, ...], lets: object = None) -> int:
    """How many innermost elements there are, of those that `lets` lets through."""

    def count(depth: int, parent: object) -> int:
        found = 0
        for name in levels[depth].arrays:
            array = parent[name] or []
            for index, element in enumerate(array):
                if lets is None or lets(array, index):
                    deeper = depth + 1 < len(levels) and levels[depth + 1].elements(element)
                    found += count(depth + 1, element) if deeper else 1
        return found

    return count(0, message.body) if levels else 0


@pytest.mark.parametrize(("api", "version"), CASES, ids=str)
def test_one_entity_of_a_request_is_one_element(api: schema.Api, version: int) -> None:
    """All of them together are all elements, and none leaves none."""
    request = random_request(api, version, Random(api.key), full=True)
    levels = shape(api.key, version).request
    found = entities(request)

    assert innermost(request, levels, elements_of(request, found)) == len(list(request_elements(request)) or [()])
    assert innermost(request, levels, elements_of(request, ())) == 0
    assert innermost(request, levels, elements_of(request, found[:1])) >= 1


@pytest.mark.parametrize(("api", "version"), CASES, ids=str)
def test_all_entities_are_all_of_a_response(api: schema.Api, version: int) -> None:
    """Whether it has keys or places."""
    request = random_request(api, version, Random(api.key), full=True)
    response = answered(request, Random(1))
    levels = shape(api.key, version).response

    if levels:
        lets = elements_of(response, entities(request))
        assert innermost(response, levels, lets) == innermost(response, levels)


def test_topics_are_found_by_name_or_id() -> None:
    """An entity that has both is one for either."""
    body = {"topics": [{"name": name, "topic_id": None, "partitions": []} for name in ("a", "b")]}
    message = Message(schema.load(3), 9, {}, body)
    lets = elements_of(message, [Entity(topic="b")])

    assert [lets(body["topics"], index) for index in (0, 1)] == [False, True]
