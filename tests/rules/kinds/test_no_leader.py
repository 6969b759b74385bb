"""no_leader: partitions that nobody leads, as clients are told."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.protocol.table import schema

METADATA, LEADER_NOT_AVAILABLE = 3, 5


@pytest.mark.parametrize("version", schema.load(METADATA).versions)
def test_the_chosen_partition_has_no_leader(dialogue: Any, version: int) -> None:
    """It has the error and no leader; replicas and the other partition are as the broker said."""
    talk = dialogue("kind: no_leader\nmatch: {topic: orders, partition: 0}")
    parts = [{"partition_index": number, "leader_id": 1, "replica_nodes": [1, 2]} for number in range(2)]
    talk.ask(METADATA, version, topics=[{"name": "orders"}])
    (topic,) = talk.answer(METADATA, version, topics=[{"name": "orders", "partitions": parts}])["topics"]

    seen = [(part["error_code"], part["leader_id"], part["replica_nodes"]) for part in topic["partitions"]]
    assert seen == [(LEADER_NOT_AVAILABLE, -1, [1, 2]), (0, 1, [1, 2])]


def test_only_as_often_as_it_fires(dialogue: Any) -> None:
    """After `first: 1` the next answer tells the leader again."""
    talk = dialogue("kind: no_leader\nwhen: {first: 1}")
    found = [{"name": "orders", "partitions": [{"partition_index": 0, "leader_id": 1}]}]
    leaders = []
    for _ in range(2):
        talk.ask(METADATA, 9, topics=None)
        leaders.append(talk.answer(METADATA, 9, topics=found)["topics"][0]["partitions"][0]["leader_id"])

    assert leaders == [-1, 1]
