"""add_node: brokers that are not there."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.protocol.table import schema

METADATA, DESCRIBE_CLUSTER = 3, 60
RULE = "kind: add_node\nnode: 9\nhost: b9\nport: 1"


@pytest.mark.parametrize(
    ("key", "version"),
    [(key, version) for key in (METADATA, DESCRIBE_CLUSTER) for version in schema.load(key).versions],
)
def test_a_broker_more(dialogue: Any, key: int, version: int) -> None:
    """It stands behind the others, once, also when the broker has one of that id."""
    id_ = "node_id" if key == METADATA else "broker_id"
    talk = dialogue(RULE)
    for there in ([1, 2], [1, 9]):
        talk.ask(key, version)
        body = talk.answer(key, version, brokers=[{id_: node, "host": "b", "port": 9092} for node in there])
        seen = [(one[id_], one["host"]) for one in body["brokers"]]
        assert seen == ([(1, "b"), (2, "b"), (9, "b9")] if there == [1, 2] else [(1, "b"), (9, "b")])


def test_controllers_are_no_brokers(dialogue: Any) -> None:
    """An answer that lists controllers stays as it is."""
    talk = dialogue(RULE)
    talk.ask(DESCRIBE_CLUSTER, 1, endpoint_type=2)

    assert talk.answer(DESCRIBE_CLUSTER, 1, endpoint_type=2)["brokers"] == []
