"""Topic ids."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from kproxy.tools.replay.request_fixes import TopicIdFix, ids_in

OLD, NEW, OTHER = UUID(int=1), UUID(int=2), UUID(int=3)


def test_an_id_becomes_the_target_s_id_of_the_same_name(tools: Any) -> None:
    """Ids that nobody knows stay; names that are there do too."""
    fix = TopicIdFix({OLD: "orders", OTHER: "gone"}, {"orders": NEW})
    topics = [{"topic_id": one, "partitions": [{"partition": 0}]} for one in (OLD, OTHER, UUID(int=9))]
    forgotten = [{"topic_id": OLD, "partitions": [1]}]
    asked = tools.asked(tools.exchange(1, 13, {"topics": topics, "forgotten_topics_data": forgotten}, {}))
    fix.request(asked)

    assert [one["topic_id"] for one in asked.message.body["topics"]] == [NEW, OTHER, UUID(int=9)]
    assert asked.message.body["forgotten_topics_data"][0]["topic_id"] == NEW


def test_topics_by_name_have_no_id_to_change(tools: Any) -> None:
    fix = TopicIdFix({OLD: "orders"}, {"orders": NEW})
    asked = tools.asked(tools.exchange(3, 12, {"topics": [{"name": "orders", "topic_id": UUID(int=0)}]}, {}))
    fix.request(asked)

    assert asked.message.body["topics"][0]["topic_id"] == UUID(int=0)


def test_the_ids_that_a_request_names(tools: Any) -> None:
    """Those that the target has to be asked for."""
    owned = [{"topic_id": OLD, "partitions": [0]}]
    beat = tools.asked(tools.exchange(68, 0, {"topic_partitions": owned}, {})).message
    by_name = tools.asked(tools.exchange(0, 9, {"acks": 1, "topic_data": []}, {})).message

    assert list(ids_in(beat)) == [OLD]
    assert list(ids_in(by_name)) == []
