"""Hidden topics leave answers, unreachable names leave requests in a form that reaches nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kproxy.session.rewrite.context import Context

Through = Callable[..., Any]


def test_hidden_topic_takes_its_element_with_it(through: Through, context: Context) -> None:
    """A broker-side topic whose client-side name is taken is not in the answer, and is counted once."""
    partitions = [{"partition_index": 0, "committed_offset": 5, "metadata": None, "error_code": 0}]
    topics = [{"name": name, "partitions": partitions} for name in ("orders", "prod.orders", "clicks-1", "other")]
    found = through(9, 7, "response", topics=topics)
    assert [topic["name"] for topic in found["topics"]] == ["orders", "other"]
    assert context.counters.events == {"topics_hidden": 2}
    assert context.counters.rewritten == {"topic_names": 1}


def test_hidden_topic_leaves_the_innermost_array_only(through: Through, context: Context) -> None:
    """In nested arrays the element around the name goes, not those around that."""
    groups = [
        {"group_id": "a", "topics": [{"name": "orders", "partitions": []}]},
        {"group_id": "b", "topics": [{"name": "orders", "partitions": []}, {"name": "prod.orders", "partitions": []}]},
    ]
    found = through(9, 8, "response", groups=groups)
    names = [[topic["name"] for topic in group["topics"]] for group in found["groups"]]
    assert names == [[], ["orders"]]
    assert context.counters.events["topics_hidden"] == 2


def test_hidden_name_leaves_an_array_of_names(through: Through, context: Context) -> None:
    """In ConsumerGroupDescribe the subscribed names are plain strings in an array."""
    member = {"member_id": "m", "subscribed_topic_names": ["orders", "prod.orders"]}
    group = {"group_id": "g", "group_state": "", "assignor_name": "", "members": [member]}
    found = through(69, 0, "response", groups=[group])
    assert found["groups"][0]["members"][0]["subscribed_topic_names"] == ["orders"]
    assert context.counters.events == {"topics_hidden": 1}


def test_unreachable_name_is_escaped_and_comes_back(through: Through, context: Context) -> None:
    """A client that names a rename's target asks for `!name`, and finds its own spelling in the answer."""
    asked = through(2, 6, "request", replica_id=-1, topics=[{"name": "prod.orders", "partitions": []}])
    assert asked["topics"][0]["name"] == "!prod.orders"
    assert context.counters.events == {"topics_unreachable": 1}
    answered = through(2, 6, "response", topics=[{"name": "!prod.orders", "partitions": []}])
    assert answered["topics"][0]["name"] == "prod.orders"


def test_names_that_are_none_stay(through: Through) -> None:
    """Null (asked for by id), empty and internal names are left alone, and so is what is longer than any name."""
    topics = [{"name": None}, {"name": ""}, {"name": "__consumer_offsets"}, {"name": "clicks-" + "x" * 32760}]
    assert [one["name"] for one in through(20, 6, "request", topics=topics)["topics"]] == [
        one["name"] for one in topics
    ]
