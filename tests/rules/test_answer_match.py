"""Selectors whose words an answer names."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kproxy.protocol.table import schema
from kproxy.rules.entity import Entity
from kproxy.rules.exchange import ConnectionView, Exchange, Facts
from kproxy.rules.select.frame_match import OF_ENTITY, AnswerMatch, FrameMatch, selects

METADATA, OFFSET_FETCH, HEARTBEAT = 3, 9, 12
VALUES: dict[str, Any] = {
    "topic": "a", "group": "a", "transactional_id": "a", "member": "a",
    "topic_id": "11111111-1111-4111-8111-111111111111", "partition": 3, "offset": 3,
}  # fmt: skip
ID = UUID(VALUES["topic_id"])


def exchange(key: int = METADATA, client: str = "tester") -> Exchange:
    view = ConnectionView(Facts("main", "main", "10.0.0.1"), 1, None)
    return Exchange(view, schema.load(key), 4, 1, client, 10, 0.0)


@pytest.mark.parametrize("name", OF_ENTITY)
def test_what_a_request_does_not_say_may_still_be_meant(name: str) -> None:
    """The request matches as long as it names nothing else; in the answer it must be named."""
    match = AnswerMatch.model_validate({name: VALUES[name]})
    value = ID if name == "topic_id" else VALUES[name]
    other = UUID(int=1) if name == "topic_id" else 4 if name in ("partition", "offset") else "b"

    assert match.holds_entity(Entity())
    assert match.holds_entity(Entity(**{name: value}))
    assert not match.holds_entity(Entity(**{name: other}))
    assert match.selects(Entity(**{name: value}))
    assert not match.selects(Entity(**{name: other}))
    assert not match.selects(Entity())


def test_apis_that_cannot_name_it() -> None:
    """A partition is no reason against Metadata, whose answer has it; a group is."""
    assert AnswerMatch.model_validate({"topic": "orders", "partition": 0}).about(METADATA, 9)
    assert not FrameMatch.model_validate({"topic": "orders", "partition": 0}).about(METADATA, 9)
    assert not AnswerMatch.model_validate({"group": "g"}).about(METADATA, 9)
    assert AnswerMatch.model_validate({"group": "g", "topic": "orders"}).about(OFFSET_FETCH, 8)
    assert not AnswerMatch.model_validate({"api": "Heartbeat"}).about(METADATA, 9)


def test_what_not_excludes_in_an_answer() -> None:
    """Only with all its words: those about frames are looked at, too."""
    orders, clicks = Entity(topic="orders"), Entity(topic="clicks")

    def chosen(no: dict[str, Any], entity: Entity) -> bool:
        return selects(None, FrameMatch.model_validate(no), exchange(), entity)

    assert not chosen({"topic": "orders"}, orders)
    assert chosen({"topic": "orders"}, clicks)
    assert chosen({"topic": "orders", "client_id": "somebody"}, orders)
    assert not chosen({"topic": "orders", "client_id": "tester", "api": "Metadata"}, orders)
    assert chosen({"topic": "orders", "api": "Fetch"}, orders)
    assert chosen({"topic": "orders", "listener": "other"}, orders)
    assert chosen({"client_id": "tester"}, orders)  # such requests do not get here
