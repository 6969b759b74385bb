"""Metadata and DescribeTopicPartitions tell a client of its own topics, by its own names, and of no others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from kproxy.session.rewrite.context import Context

Through = Callable[..., Any]
PARTITION = {
    "error_code": 0, "partition_index": 0, "leader_id": 1, "leader_epoch": 2, "replica_nodes": [1, 2], "isr_nodes": [1]
}  # fmt: skip


def topic(name: str | None, error: int = 0, number: int = 7, partitions: int = 2) -> dict[str, Any]:
    return {
        "error_code": error,
        "name": name,
        "topic_id": UUID(int=number),
        "partitions": [PARTITION] * partitions,
    }


def shown(body: dict[str, Any]) -> list[tuple[str | None, int]]:
    return [(one["name"], one["error_code"]) for one in body["topics"]]


@pytest.mark.parametrize(
    ("version", "asked", "everything"),
    [
        (0, [], True),
        (0, [{"name": "orders"}], False),
        (1, None, True),
        (1, [], False),
        (8, [{"name": "orders"}], False),
        (9, None, True),
        (9, [], False),
        (12, None, True),
        (12, [{"topic_id": UUID(int=7), "name": None}], False),
    ],
)
def test_whether_all_topics_were_asked_for_is_noted(
    through: Through, context: Context, version: int, asked: Any, everything: bool
) -> None:
    """Null means all, and in v0, which has no null, an empty list does."""
    through(3, version, "request", topics=asked)
    assert context.note is not None
    assert context.note["metadata_all"] is everything


@pytest.mark.parametrize("version", [0, 1, 4, 8, 9, 11, 12, 13])
def test_hidden_topics_are_not_among_all(through: Through, context: Context, version: int) -> None:
    """An answer for all topics leaves them out; without a note of the question too."""
    topics = [topic("prod.orders"), topic("orders"), topic("prod.clicks-a"), topic("other"), topic("clicks-")]
    topics = [{name: one[name] for name in one if version >= 10 or name != "topic_id"} for one in topics]
    for one in topics:
        one["partitions"] = [
            {name: value for name, value in PARTITION.items() if version >= 7 or name != "leader_epoch"}
        ]
    found = through(3, version, "response", topics=topics)
    assert shown(found) == [("orders", 0), ("clicks-a", 0), ("other", 0)]
    assert all(len(one["partitions"]) == 1 for one in found["topics"])
    assert context.counters.events == {"topics_hidden": 2}


def test_hidden_topic_asked_for_by_id_is_an_unknown_id(through: Through, context: Context) -> None:
    """The answer says UNKNOWN_TOPIC_ID with the id, without the name and without partitions, as a broker does."""
    through(3, 12, "request", topics=[{"topic_id": UUID(int=7), "name": None}])
    found = through(3, 12, "response", topics=[topic("orders"), topic("prod.orders", number=8)])
    assert found["topics"][0] == topic(None, 100, partitions=0) | {
        "is_internal": False,
        "topic_authorized_operations": -2147483648,
    }
    assert shown(found) == [(None, 100), ("orders", 0)]


@pytest.mark.parametrize(("key", "version"), [(3, 0), (3, 5), (3, 12), (75, 0)])
def test_unreachable_name_is_no_topic_instead_of_an_invalid_name(through: Through, key: int, version: int) -> None:
    """INVALID_TOPIC_EXCEPTION for `!name` becomes UNKNOWN_TOPIC_OR_PARTITION; for other names it stays."""
    topics = [{"error_code": 17, "name": name, "partitions": []} for name in ("!prod.orders", "a b", "prod.orders")]
    found = through(key, version, "response", topics=topics)
    assert shown(found) == [("prod.orders", 3), ("a b", 17), ("orders", 17)]


@pytest.mark.parametrize(
    ("broker", "client"),
    [("prod.orders", "orders"), ("other", "other"), ("orders", "!orders"), ("clicks-7", "!clicks-7")],
)
def test_cursor_leads_back_to_where_it_came_from(through: Through, broker: str, client: str) -> None:
    """The broker pages in the order of its own names; a cursor at a hidden topic survives the round trip."""
    found = through(75, 0, "response", topics=[], next_cursor={"topic_name": broker, "partition_index": 3})
    assert found["next_cursor"] == {"topic_name": client, "partition_index": 3}
    back = through(75, 0, "request", topics=[], cursor=found["next_cursor"])
    assert back["cursor"] == {"topic_name": broker, "partition_index": 3}


def test_no_cursor_stays_none(through: Through) -> None:
    """A last page has none."""
    assert through(75, 0, "response", topics=[])["next_cursor"] is None
