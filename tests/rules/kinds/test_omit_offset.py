"""omit_offset: offsets that seem not to be committed."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.protocol.table import schema

OFFSET_FETCH = 9
VERSIONS = [version for version in schema.load(OFFSET_FETCH).versions if version < 10]


def partitions(dialogue: Any, version: int, how: str) -> list[dict[str, Any]]:
    talk = dialogue(f"kind: omit_offset\nmatch: {{group: billing, partition: 0}}\nomit_as: {how}")
    parts = [{"partition_index": n, "committed_offset": 50 + n, "metadata": "x"} for n in range(2)]
    asked, found = [{"name": "orders", "partition_indexes": [0, 1]}], [{"name": "orders", "partitions": parts}]
    if version < 8:
        talk.ask(OFFSET_FETCH, version, group_id="billing", topics=asked)
        body = talk.answer(OFFSET_FETCH, version, topics=found)
    else:
        talk.ask(OFFSET_FETCH, version, groups=[{"group_id": "billing", "topics": asked}])
        (body,) = talk.answer(OFFSET_FETCH, version, groups=[{"group_id": "billing", "topics": found}])["groups"]
    said: list[dict[str, Any]] = body["topics"][0]["partitions"]
    return said


@pytest.mark.parametrize("version", VERSIONS)
def test_as_if_nothing_had_been_committed(dialogue: Any, version: int) -> None:
    """Offset -1 and no metadata, which is what a broker says then."""
    first, second = partitions(dialogue, version, "uncommitted")

    assert (first["committed_offset"], first["metadata"], first["error_code"]) == (-1, "", 0)
    assert first.get("committed_leader_epoch", -1) == -1
    assert (second["committed_offset"], second["metadata"]) == (51, "x")


@pytest.mark.parametrize("version", VERSIONS)
def test_not_in_the_answer(dialogue: Any, version: int) -> None:
    """`missing`: what was asked for is not there."""
    assert [part["partition_index"] for part in partitions(dialogue, version, "missing")] == [1]
