"""change_partitions: how many partitions clients are told of."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.protocol.table import schema

METADATA = 3


def partitions(dialogue: Any, version: int, how: str, there: int = 3) -> list[tuple[int, int]]:
    """(number, leader) of each."""
    talk = dialogue(f"kind: change_partitions\nmatch: {{topic: orders}}\n{how}")
    parts = [{"partition_index": number, "leader_id": number + 1} for number in reversed(range(there))]
    talk.ask(METADATA, version, topics=[{"name": "orders"}])
    (topic,) = talk.answer(METADATA, version, topics=[{"name": "orders", "partitions": parts}])["topics"]
    return sorted((part["partition_index"], part["leader_id"]) for part in topic["partitions"])


@pytest.mark.parametrize("version", schema.load(METADATA).versions)
def test_more_and_fewer(dialogue: Any, version: int) -> None:
    """New ones are led as the old ones in turn; the highest go first."""
    assert partitions(dialogue, version, "offset_by: 4") == [(0, 1), (1, 2), (2, 3), (3, 1), (4, 2), (5, 3), (6, 1)]
    assert partitions(dialogue, version, "offset_by: -1") == [(0, 1), (1, 2)]
    assert partitions(dialogue, version, "set_to: 1") == [(0, 1)]


def test_one_stays(dialogue: Any) -> None:
    """A topic has at least one partition; one that is not there has none."""
    assert partitions(dialogue, 9, "offset_by: -7") == [(0, 1)]
    assert partitions(dialogue, 9, "set_to: 4", there=0) == []


def test_one_of_the_two_is_wanted(mistakes_of: Any) -> None:
    """`set_to` and `offset_by` together, or none of them, are refused."""
    assert mistakes_of("kind: change_partitions, set_to: 1, offset_by: 1") == mistakes_of("kind: change_partitions")
    assert 'either "set_to" (number' in mistakes_of("kind: change_partitions")[0]
