"""hide_topic: topics that clients do not find."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kproxy.protocol.table import schema

METADATA, DESCRIBE_TOPIC_PARTITIONS = 3, 75
UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID = 3, 100
ID, OTHER_ID = UUID(int=7), UUID(int=8)


def topic(version: int, name: str, topic_id: UUID = ID) -> dict[str, Any]:
    known = {"topic_id": topic_id} if version >= 10 else {}
    return {"name": name, **known, "partitions": [{"partition_index": 0, "leader_id": 1}]}


@pytest.mark.parametrize("version", schema.load(METADATA).versions)
def test_asked_by_name(dialogue: Any, version: int) -> None:
    """The error of a topic that is not there, under the name that was asked for; the other topic is there."""
    talk = dialogue("kind: hide_topic\nmatch: {topic: orders}")
    talk.ask(METADATA, version, topics=[{"name": "orders"}, {"name": "clicks"}])
    found = [topic(version, "orders"), topic(version, "clicks", OTHER_ID)]
    hidden, shown = talk.answer(METADATA, version, topics=found)["topics"]

    assert (hidden["error_code"], hidden["name"]) == (UNKNOWN_TOPIC_OR_PARTITION, "orders")
    assert hidden["partitions"] == []
    assert hidden.get("topic_id", UUID(int=0)) == UUID(int=0)
    assert (shown["error_code"], shown["name"], len(shown["partitions"])) == (0, "clicks", 1)


@pytest.mark.parametrize("version", schema.load(METADATA).versions)
def test_left_out_of_all_topics(dialogue: Any, version: int) -> None:
    talk = dialogue("kind: hide_topic\nmatch: {topic: orders}")
    talk.ask(METADATA, version, topics=[] if version == 0 else None)
    found = [topic(version, "orders"), topic(version, "clicks", OTHER_ID)]

    assert [one["name"] for one in talk.answer(METADATA, version, topics=found)["topics"]] == ["clicks"]


def test_asked_by_id(dialogue: Any) -> None:
    """The answer has the id, no name, and the error that belongs to ids."""
    talk = dialogue("kind: hide_topic\nmatch: {topic: orders}")
    talk.knows("orders", ID)
    talk.ask(METADATA, 12, topics=[{"topic_id": ID, "name": None}])
    (hidden,) = talk.answer(METADATA, 12, topics=[topic(12, "orders")])["topics"]

    assert (hidden["error_code"], hidden["name"], hidden["topic_id"]) == (UNKNOWN_TOPIC_ID, None, ID)


@pytest.mark.parametrize("kind", ["hide_topic", "recreate_topic", "change_partitions, offset_by: 1"])
def test_partitions_cannot_be_selected(kind: str, mistakes_of: Any) -> None:
    """A topic is hidden as a whole, or not at all."""
    assert "whole topics" in mistakes_of(f"kind: {kind}, match: {{topic: orders, partition: 0}}")[0]


def test_describe_topic_partitions(dialogue: Any) -> None:
    """The admin client is told the same."""
    talk = dialogue("kind: hide_topic\nmatch: {topic: orders}")
    talk.ask(DESCRIBE_TOPIC_PARTITIONS, 0, topics=[{"name": "orders"}])
    found = [{"name": "orders", "topic_id": ID, "partitions": []}]
    (hidden,) = talk.answer(DESCRIBE_TOPIC_PARTITIONS, 0, topics=found)["topics"]

    assert (hidden["error_code"], hidden["name"]) == (UNKNOWN_TOPIC_OR_PARTITION, "orders")
