"""drop_commit: commits that succeed and are lost."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.protocol.table import schema

COMMITS = [(8, version) for version in range(10)] + [(28, version) for version in range(6)]


@pytest.mark.parametrize(("key", "version"), COMMITS)
def test_the_broker_does_not_see_it(dialogue: Any, key: int, version: int) -> None:
    """The answer names every partition, in the order of the request, without an error."""
    assert version in schema.load(key).versions
    talk = dialogue("kind: drop_commit\nmatch: {group: billing}")
    parts = [{"partition_index": number, "committed_offset": 5} for number in (1, 0)]
    assert talk.ask(key, version, group_id="billing", topics=[{"name": "orders", "partitions": parts}]) is None

    (topic,) = talk.received(key, version)["topics"]
    assert topic["name"] == "orders"
    assert [(part["partition_index"], part["error_code"]) for part in topic["partitions"]] == [(1, 0), (0, 0)]


def test_of_a_mixed_commit_the_rest_is_stored(dialogue: Any) -> None:
    """Only the matching topic is kept from the broker."""
    talk = dialogue("kind: drop_commit\nmatch: {topic: orders}")
    parts = [{"partition_index": 0, "committed_offset": 5}]
    asked = [{"name": name, "partitions": parts} for name in ("orders", "clicks")]
    seen = talk.ask(8, 8, group_id="billing", topics=asked)
    assert [topic["name"] for topic in seen["topics"]] == ["clicks"]

    body = talk.answer(8, 8, topics=[{"name": "clicks", "partitions": [{"partition_index": 0, "error_code": 22}]}])
    said = [(topic["name"], topic["partitions"][0]["error_code"]) for topic in body["topics"]]
    assert said == [("orders", 0), ("clicks", 22)]
