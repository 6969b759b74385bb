"""wrong_address: where clients are told that brokers are."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.protocol.table import schema
from kproxy.rules.bodies import LISTS, carries_addresses

FIND_COORDINATOR, METADATA = 10, 3
LISTING = [(key, version) for key in LISTS for version in schema.load(key).versions if carries_addresses(key, version)]


@pytest.mark.parametrize(("key", "version"), LISTING)
def test_wherever_addresses_stand(dialogue: Any, key: int, version: int) -> None:
    """The chosen broker has the other host and keeps its port; another broker keeps both."""
    talk = dialogue("kind: wrong_address\nnode: 2\nhost: elsewhere")
    array, id_ = LISTS[key]
    talk.ask(key, version)
    body = talk.answer(key, version, **{array: [{id_: node, "host": "b", "port": 9092} for node in (1, 2)]})

    assert [(one["host"], one["port"]) for one in body[array]] == [("b", 9092), ("elsewhere", 9092)]


@pytest.mark.parametrize("version", schema.load(FIND_COORDINATOR).versions)
def test_of_coordinators(dialogue: Any, version: int) -> None:
    """In both forms of the answer; an entry that names nobody stays so."""
    talk = dialogue("kind: wrong_address\nport: 1")
    if version < 4:
        talk.ask(FIND_COORDINATOR, version, key="g")
        assert talk.answer(FIND_COORDINATOR, version, node_id=3, host="b", port=9092)["port"] == 1
    else:
        talk.ask(FIND_COORDINATOR, version, coordinator_keys=["g", "h"])
        found = [{"key": "g", "node_id": 3, "host": "b", "port": 9092}, {"key": "h", "node_id": -1, "port": -1}]
        body = talk.answer(FIND_COORDINATOR, version, coordinators=found)
        assert [one["port"] for one in body["coordinators"]] == [1, -1]


def test_it_comes_after_the_proxys_own_addresses(dialogue: Any) -> None:
    """With advertising the client is told the proxy's host and the rule's port."""
    talk = dialogue("kind: wrong_address\nport: 1", advertise=True)
    talk.ask(METADATA, 9)
    (broker,) = talk.answer(METADATA, 9, brokers=[{"node_id": 2, "host": "b2", "port": 9092}])["brokers"]

    assert (broker["host"], broker["port"]) == ("proxy", 1)


def test_something_has_to_be_wrong(mistakes_of: Any) -> None:
    """Without host and port the rule is refused."""
    assert "expected a" in mistakes_of("kind: wrong_address, node: 2")[0]
