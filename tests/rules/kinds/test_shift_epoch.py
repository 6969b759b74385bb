"""shift_epoch: leader epochs as clients are told."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.protocol.table import schema

METADATA = 3
HIGHEST = 2**31 - 1


def epochs(dialogue: Any, version: int, by: int, *before: int) -> list[int]:
    talk = dialogue(f"kind: shift_epoch\nmatch: {{topic: orders}}\noffset_by: {by}")
    parts = [{"partition_index": n, "leader_id": 1, "leader_epoch": epoch} for n, epoch in enumerate(before)]
    if version < 7:
        parts = [{name: value for name, value in part.items() if name != "leader_epoch"} for part in parts]
    talk.ask(METADATA, version, topics=[{"name": "orders"}])
    (topic,) = talk.answer(METADATA, version, topics=[{"name": "orders", "partitions": parts}])["topics"]
    assert bool(talk.rule.applied) == (version >= 7)
    return [part.get("leader_epoch", -1) for part in topic["partitions"]]


@pytest.mark.parametrize("version", schema.load(METADATA).versions)
def test_epochs_move(dialogue: Any, version: int) -> None:
    """Back and forward, not below 0, and one that the broker does not know stays unknown; old answers have none."""
    expected = [4, 0, -1] if version >= 7 else [-1, -1, -1]
    assert epochs(dialogue, version, -3, 7, 2, -1) == expected
    assert epochs(dialogue, version, 1, 7) == ([8] if version >= 7 else [-1])


def test_the_highest_epoch(dialogue: Any) -> None:
    """It does not overflow."""
    assert epochs(dialogue, 12, 5, HIGHEST - 1) == [HIGHEST]
