"""Requests that ask for all there is."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.protocol import Message
from kproxy.protocol.table import schema
from kproxy.rules.select.frame_match import asks_all, can_ask_all, listed_roles


def asked(api: str, version: int, **body: Any) -> Message:
    return Message(schema.load(schema.names()[api]), version, {"request_api_key": 0}, body)


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (asked("Metadata", 0, topics=[]), True),
        (asked("Metadata", 0, topics=[{"name": "a"}]), False),
        (asked("Metadata", 1, topics=None), True),
        (asked("Metadata", 1, topics=[]), False),
        (asked("ListGroups", 4, states_filter=[]), True),
        (asked("ListTransactions", 0), True),
        (
            asked("OffsetFetch", 1, group_id="g", topics=None),
            True,
        ),  # no null there by the protocol; see protocol/shapes.yaml
        (asked("OffsetFetch", 5, group_id="g", topics=None), True),
        (asked("OffsetFetch", 8, groups=[{"group_id": "g", "topics": []}, {"group_id": "h", "topics": None}]), True),
        (asked("OffsetFetch", 8, groups=[{"group_id": "g", "topics": []}]), False),
        (asked("DescribeLogDirs", 2, topics=None), True),
        (asked("ElectLeaders", 1, topic_partitions=None), True),
        (asked("ElectLeaders", 1, topic_partitions=[{"topic": "a", "partitions": [1]}]), False),
        (asked("DescribeTopicPartitions", 0, topics=[]), True),
        (asked("Produce", 9, topic_data=[]), False),
        (asked("Heartbeat", 1, group_id="g"), False),
    ],
)
def test_a_request_for_all_is_known(request_: Message, expected: bool) -> None:
    """By what stands in its array, which means other things in other versions."""
    assert asks_all(request_) is expected


def test_what_lists_can_be_selected_by() -> None:
    """A topic by name or id, a group; not a partition where an answer lists none."""
    assert can_ask_all(3, 12) and {"topic", "topic_id"} <= listed_roles(3, 12)
    assert "partition" not in listed_roles(3, 12)
    assert listed_roles(16, 4) == {"group"}
    assert {"topic", "group", "transactional_id"} <= listed_roles(29, 3)
    assert not can_ask_all(0, 9)
