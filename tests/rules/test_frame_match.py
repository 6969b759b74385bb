"""Selectors of live rules: each by itself, all of them together, and what cannot hold for an API."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kproxy.base.errors import DocumentError
from kproxy.rules.document.read import parse_rules
from kproxy.rules.entity import Entity
from kproxy.rules.exchange import Facts
from kproxy.rules.select.frame_match import FrameMatch
from kproxy.rules.select.selected import ANY, api_keys, error_numbers

PRODUCE, FETCH, METADATA, HEARTBEAT, API_VERSIONS = 0, 1, 3, 12, 18


def match(**selectors: Any) -> FrameMatch:
    return FrameMatch.model_validate(selectors)


class Frame:
    """What selectors look at of an exchange."""

    def __init__(self, **known: Any) -> None:
        self.client_id = self.principal = self.client_software = self.acks = None
        self.request_size = 0
        vars(self).update(known)


@pytest.mark.parametrize(
    ("selectors", "frame", "holds"),
    [
        ({"client_id": "etl-*"}, {"client_id": "etl-7"}, True),
        ({"client_id": "etl-*"}, {"client_id": None}, False),
        ({"client_id": ["a", "b"]}, {"client_id": "b"}, True),
        ({"client_id": "/a[0-9]+/"}, {"client_id": "a12"}, True),
        ({"client_id": "/a[0-9]+/"}, {"client_id": "a12x"}, False),
        ({"principal": "alice"}, {"principal": "alice"}, True),
        ({"principal": "alice"}, {}, False),
        ({"client_software": "librdkafka/*"}, {"client_software": "librdkafka/2.3.0"}, True),
        ({"acks": "all"}, {"acks": -1}, True),
        ({"acks": [0, 1]}, {"acks": 1}, True),
        ({"acks": 0}, {"acks": None}, False),
        ({"size": ">1kB"}, {"request_size": 1001}, True),
        ({"size": ">1kB"}, {"request_size": 1000}, False),
        ({"size": "10B-20B"}, {"request_size": 20}, True),
        ({"size": ["<5B", 7]}, {"request_size": 7}, True),
        ({"client_id": "a", "principal": "p"}, {"client_id": "a", "principal": "q"}, False),
    ],
)
def test_selectors_of_frames(selectors: dict[str, Any], frame: dict[str, Any], holds: bool) -> None:
    """All lines must hold; what a frame lacks does not match."""
    assert match(**selectors).holds_frame(Frame(**frame)) is holds


ID = UUID(int=7)


@pytest.mark.parametrize(
    ("selectors", "entity", "holds"),
    [
        ({"topic": "orders"}, Entity(topic="orders"), True),
        ({"topic": "orders"}, Entity(topic="orders2"), False),
        ({"topic": "orders"}, Entity(topic_id=ID), False),
        ({"topic": ["a*", "b"]}, Entity(topic="b"), True),
        ({"topic_id": str(ID)}, Entity(topic_id=ID), True),
        ({"topic_id": "AAAAAAAAAAAAAAAAAAAABw"}, Entity(topic_id=ID), True),
        ({"partition": "0-3"}, Entity(topic="x", partition=3), True),
        ({"partition": ">=4"}, Entity(topic="x", partition=3), False),
        ({"partition": 0}, Entity(topic="x"), False),
        ({"group": "g"}, Entity(group="g"), True),
        ({"transactional_id": "t"}, Entity(group="t"), False),
        ({"member": "m-*"}, Entity(group="g", member="m-1"), True),
        ({"topic": "orders", "partition": 1}, Entity(topic="orders", partition=2), False),
    ],
)
def test_selectors_of_entities(selectors: dict[str, Any], entity: Entity, holds: bool) -> None:
    assert match(**selectors).holds_entity(entity) is holds


@pytest.mark.parametrize(
    ("selectors", "key", "version", "about"),
    [
        ({"api": "Produce"}, PRODUCE, 9, True),
        ({"api": "Produce"}, FETCH, 9, False),
        ({"api": "*Fetch"}, FETCH, 9, True),
        ({"api": 0}, PRODUCE, 3, True),
        ({"api": ["Metadata", "Fetch"]}, METADATA, 1, True),
        ({"version": "0-8"}, PRODUCE, 9, False),
        ({"version": ">=9"}, PRODUCE, 9, True),
        ({"topic": "x"}, PRODUCE, 9, True),
        ({"topic": "x"}, PRODUCE, 13, True),
        ({"topic": "x"}, HEARTBEAT, 4, False),
        ({"topic": "x"}, API_VERSIONS, 3, False),
        ({"group": "x"}, HEARTBEAT, 4, True),
        ({"group": "x"}, PRODUCE, 9, False),
        ({"partition": 0}, FETCH, 11, True),
        ({"partition": 0}, HEARTBEAT, 4, False),
        ({"acks": 0}, PRODUCE, 9, True),
        ({"acks": 0}, FETCH, 9, False),
        ({"topic": "x"}, PRODUCE, 99, False),
        ({"client_id": "x"}, PRODUCE, 99, True),
    ],
)
def test_what_a_rule_can_be_about(selectors: dict[str, Any], key: int, version: int, about: bool) -> None:
    """An API or version that lacks a selected field cannot match, and stays opaque."""
    assert match(**selectors).about(key, version) is about


def test_errors_by_name_number_and_any() -> None:
    assert error_numbers(["NOT_LEADER_OR_FOLLOWER", 29]) == {6, 29}
    assert 0 not in error_numbers([ANY])
    assert match(error=ANY).holds_error(3)
    assert not match(error=ANY).holds_error(0)
    assert match(api="Produce").holds_error(0)


def test_apis_by_glob_and_expression() -> None:
    assert api_keys(["Produce", "/(Sync|Join)Group/"]) == {0, 11, 14}


def test_old_names_of_apis_are_meant_when_they_are_written_out() -> None:
    """ListOffsets once was Offset, and `Offset*` is not about it."""
    assert api_keys(["Offset"]) == {2}
    assert 2 not in api_keys(["Offset*"]) and 8 in api_keys(["Offset*"])


def test_the_connection_is_selected_by_its_node() -> None:
    """A bootstrap connection has none."""
    one = match(node="1-3")
    assert one.holds(Facts("main", "c", "10.0.0.1", node=2))
    assert not one.holds(Facts("main", "c", "10.0.0.1", node=4))
    assert not one.holds(Facts("main", "c", "10.0.0.1"))


@pytest.mark.parametrize(
    ("selectors", "message"),
    [
        ("{api: Prodce}", 'unknown API "Prodce", did you mean "Produce"?'),
        ("{api: 4711}", "expected an API key from 0 to"),
        ("{topc: x}", 'unknown selector "topc", did you mean "topic"?'),
        ("{error: NOT_LEADR}", 'unknown error "NOT_LEADR"'),
        ("{version: 9-3}", "the range 9-3 is empty, write 3-9"),
        ("{acks: 2}", "expected acks 0, 1 or all"),
        ("{topic_id: short}", "expected a topic id"),
        ("{size: big}", "expected a size"),
        ('{client_id: "/(/"}', "the regular expression"),
        ('{client_id: ""}', "expected text, got empty text"),
    ],
)
def test_mistakes_have_a_place_and_a_reason(selectors: str, message: str) -> None:
    with pytest.raises(DocumentError, match=r"<rules>:2:\d+: ") as error:
        parse_rules(f"rules:\n  - {{name: x, kind: delay, delay: 1s, match: {selectors}}}\n")
    assert message in str(error.value)


ACCEPTED: dict[str, tuple[Any, Any, Any]] = {  # selector: (as written, a value that matches, one that does not)
    "listener": ("outside", "outside", "inside"), "cluster": ("main", "main", "other"), "sni": ("*.a", "b.a", "b.c"),
    "client_address": ("10.0.0.0/8", "10.1.1.1", "11.1.1.1"), "certificate": ("CN=a", "CN=a", "CN=b"),
    "node": ("1-3", 3, 4), "api": ("Produce", PRODUCE, FETCH), "version": (">=4", 4, 3), "client_id": ("a*", "ab", "b"),
    "principal": ("p", "p", "q"), "client_software": ("x/*", "x/1", "y/1"), "acks": ("all", -1, 1),
    "size": (">1kB", 1001, 1000), "topic": ("orders", "orders", "clicks"), "topic_id": (str(ID), ID, UUID(int=8)),
    "partition": ("0-3", 3, 4), "group": ("g", "g", "h"), "transactional_id": ("t", "t", "u"),
    "member": ("m", "m", "n"), "offset": (">=5", 5, 4), "error": ("NOT_COORDINATOR", 16, 15),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted({*FrameMatch.keys()} - {"records"}))
def test_accepts_of_each_selector_tests_its_value_alone(name: str) -> None:
    """Every selector, also those of connections. Another selector of the same match does not matter."""
    written, good, bad = ACCEPTED[name]
    one = match(**{"group": "none", "client_id": "none", "listener": "none", name: written})

    assert one.accepts(name, good)
    assert not one.accepts(name, bad)
