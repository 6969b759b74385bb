"""no_controller: clusters without one, as clients are told."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.protocol.table import schema

METADATA, DESCRIBE_CLUSTER = 3, 60
PLACES = [(key, version) for key in (METADATA, DESCRIBE_CLUSTER) for version in schema.load(key).versions]


@pytest.mark.parametrize(("key", "version"), [place for place in PLACES if place != (METADATA, 0)])
def test_nobody_is_controller(dialogue: Any, key: int, version: int) -> None:
    """Its id is -1, the brokers are as they were."""
    talk = dialogue("kind: no_controller")
    talk.ask(key, version)
    id_ = "node_id" if key == METADATA else "broker_id"
    body = talk.answer(key, version, controller_id=2, brokers=[{id_: 2, "host": "b2", "port": 9092}])

    assert body["controller_id"] == -1
    assert [broker[id_] for broker in body["brokers"]] == [2]
