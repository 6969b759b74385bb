"""hide_node: brokers that clients never hear of."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.protocol.table import schema
from kproxy.rules.bodies import LISTS, carries_addresses

FIND_COORDINATOR, DESCRIBE_CLUSTER, METADATA = 10, 60, 3
COORDINATOR_NOT_AVAILABLE = 15
LISTING = [(key, version) for key in LISTS for version in schema.load(key).versions if carries_addresses(key, version)]


def brokers(key: int, *ids: int) -> list[dict[str, Any]]:
    return [{LISTS[key][1]: node, "host": f"b{node}", "port": 9092} for node in ids]


@pytest.mark.parametrize(("key", "version"), LISTING)
def test_wherever_brokers_are_listed(dialogue: Any, key: int, version: int) -> None:
    """Metadata, DescribeCluster, and the node endpoints of the APIs that have them."""
    talk = dialogue("kind: hide_node\nnode: [2, '5-7']")
    talk.ask(key, version)
    body = talk.answer(key, version, **{LISTS[key][0]: brokers(key, 1, 2, 3, 6)})

    assert [one[LISTS[key][1]] for one in body[LISTS[key][0]]] == [1, 3]


def test_all_of_them(dialogue: Any) -> None:
    """`all` leaves an empty list."""
    talk = dialogue("kind: hide_node\nnode: all")
    talk.ask(METADATA, 12)

    assert talk.answer(METADATA, 12, brokers=brokers(METADATA, 1, 2))["brokers"] == []


@pytest.mark.parametrize("version", schema.load(FIND_COORDINATOR).versions)
def test_a_coordinator_that_is_hidden(dialogue: Any, version: int) -> None:
    for node, expected in ((2, (COORDINATOR_NOT_AVAILABLE, -1, "", -1)), (1, (0, 1, "b", 9092))):
        talk = dialogue("kind: hide_node\nnode: 2")
        entry = {"error_code": 0, "node_id": node, "host": "b", "port": 9092}
        if version >= 4:
            talk.ask(FIND_COORDINATOR, version, coordinator_keys=["g"])
            (found,) = talk.answer(FIND_COORDINATOR, version, coordinators=[{"key": "g", **entry}])["coordinators"]
        else:
            talk.ask(FIND_COORDINATOR, version, key="g")
            found = talk.answer(FIND_COORDINATOR, version, **entry)
        assert (found["error_code"], found["node_id"], found["host"], found["port"]) == expected


def test_controllers_are_no_brokers(dialogue: Any) -> None:
    """An answer that lists controllers stays as it is."""
    talk = dialogue("kind: hide_node\nnode: all")
    talk.ask(DESCRIBE_CLUSTER, 1, endpoint_type=2)
    body = talk.answer(DESCRIBE_CLUSTER, 1, endpoint_type=2, brokers=brokers(DESCRIBE_CLUSTER, 1))

    assert len(body["brokers"]) == 1


def test_a_connection_without_rules_for_it_is_not_read(dialogue: Any) -> None:
    """Produce before version 10 has no addresses, so the rule is not about it."""
    talk = dialogue("kind: hide_node\nnode: 2")
    talk.ask(0, 9, acks=1)
    talk.answer(0, 9)

    assert talk.rule.matched == 0
