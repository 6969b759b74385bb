"""rewind_offset: committed offsets as consumers are told."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kproxy.protocol.table import schema

OFFSET_FETCH = 9
ID = UUID(int=7)


def offsets(dialogue: Any, version: int, rule: str, everything: bool = False) -> dict[int, int]:
    """What is told of partitions 0 to 2 of the topic orders, of which the last was never committed."""
    talk = dialogue(rule)
    talk.knows("orders", ID)
    name = {"topic_id": ID} if version >= 10 else {"name": "orders"}
    asked = None if everything else [{**name, "partition_indexes": [0, 1, 2]}]
    parts = [{"partition_index": n, "committed_offset": at} for n, at in enumerate((50, 150, -1))]
    found = [{**name, "partitions": parts}]
    if version < 8:
        talk.ask(OFFSET_FETCH, version, group_id="billing", topics=asked)
        body = talk.answer(OFFSET_FETCH, version, topics=found)
    else:
        talk.ask(OFFSET_FETCH, version, groups=[{"group_id": "billing", "topics": asked}])
        (body,) = talk.answer(OFFSET_FETCH, version, groups=[{"group_id": "billing", "topics": found}])["groups"]
    return {part["partition_index"]: part["committed_offset"] for part in body["topics"][0]["partitions"]}


@pytest.mark.parametrize("version", schema.load(OFFSET_FETCH).versions)
def test_back_by_so_many(dialogue: Any, version: int) -> None:
    """Not below 0; what was not committed stays so; the other partition of a chosen one stays."""
    assert offsets(dialogue, version, "kind: rewind_offset\noffset_by: -100") == {0: 0, 1: 50, 2: -1}
    one = "kind: rewind_offset\nmatch: {group: billing, topic: orders, partition: 1}\noffset_by: -100"
    assert offsets(dialogue, version, one) == {0: 50, 1: 50, 2: -1}


@pytest.mark.parametrize("version", [version for version in schema.load(OFFSET_FETCH).versions if version >= 2])
def test_a_request_for_all_offsets_of_a_group(dialogue: Any, version: int) -> None:
    """It names no topic; those that are meant are found in the answer."""
    rule = "kind: rewind_offset\nmatch: {topic: orders, partition: 1}\nset_to: 7"
    assert offsets(dialogue, version, rule, everything=True) == {0: 50, 1: 7, 2: -1}


def test_other_groups_and_topics_keep_theirs(dialogue: Any) -> None:
    """Nothing is changed for them."""
    assert offsets(dialogue, 8, "kind: rewind_offset\nmatch: {group: other}\nset_to: 7") == {0: 50, 1: 150, 2: -1}
    assert offsets(dialogue, 5, "kind: rewind_offset\nmatch: {topic: other}\nset_to: 7") == {0: 50, 1: 150, 2: -1}


def test_one_of_the_two_is_wanted(mistakes_of: Any) -> None:
    """`offset_by` and `set_to` together, or none of them, are refused."""
    assert 'either "offset_by" (difference) or "set_to"' in mistakes_of("kind: rewind_offset")[0]
