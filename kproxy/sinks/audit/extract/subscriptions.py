"""Heartbeats of the newer groups (KIP-848, KIP-932): the topics that a member subscribes to, and its partitions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kproxy.watch.seen import Who

from .sides import Found
from .topics import Table

HEARTBEATS = frozenset((68, 76))
"""ConsumerGroupHeartbeat and ShareGroupHeartbeat."""


def add_subscription(table: Table, request: Mapping[str, Any], who: Who) -> None:
    """Put the topics in that a member names, and the partitions that it says it has."""
    for name in request["subscribed_topic_names"] or ():
        table.put(0, Found(None, 0, name, None, 0, []), None)
    add_partitions(table, request.get("topic_partitions"), 0, who)


def add_assignment(table: Table, response: Mapping[str, Any], who: Who) -> None:
    """Put the partitions in that a member is to have."""
    assignment = response["assignment"]
    if assignment is not None:
        add_partitions(table, assignment["topic_partitions"], 1, who)


def add_partitions(table: Table, topics: list[dict[str, Any]] | None, direction: int, who: Who) -> None:
    for topic in topics or ():
        name = who.topic_of(str(topic["topic_id"]))
        table.put(direction, Found(None, 0, name, topic["topic_id"], 0, topic["partitions"] or []), None)
