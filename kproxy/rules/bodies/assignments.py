"""Assignments of members of a classic consumer group: bytes of the consumer protocol inside of SyncGroup."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kproxy.errors import DecodeError
from kproxy.wire.codec import structs as codec
from kproxy.wire.table import layout, schema

ASSIGNMENT = "consumer_assignment"
PREFIX = 2  # the version, INT16, in front
PARTITIONS = "assigned_partitions"

AssignedTopics = list[dict[str, Any]]
AssignmentChange = Callable[[AssignedTopics], AssignedTopics]


def rewritten(data: bytes, change: AssignmentChange) -> bytes | None:
    """Return the same assignment with other topics and partitions; None for bytes that are no consumer's assignment.

    A version above the newest is read as that, and what follows its fields is kept, as `ConsumerProtocol.java` does.
    """
    version = int.from_bytes(data[:PREFIX], "big", signed=True)
    if len(data) < PREFIX or version < 0:
        return None
    struct = layout.embedded(ASSIGNMENT, min(version, schema.embedded()[ASSIGNMENT].versions.last))
    try:
        assignment, end = codec.decode(struct, data, PREFIX, api=ASSIGNMENT, version=version)
    except DecodeError:
        return None
    assignment[PARTITIONS] = change(assignment[PARTITIONS] or [])
    return data[:PREFIX] + codec.encode(struct, assignment, api=ASSIGNMENT, version=version) + data[end:]


def empty(topics: AssignedTopics) -> AssignedTopics:
    """Return an assignment without any partition."""
    return []


def negative(topics: AssignedTopics) -> AssignedTopics:
    """Return the same partitions with numbers that no topic has: -1 for 0, -2 for 1."""
    return [{**topic, "partitions": [-1 - abs(number) for number in topic["partitions"] or ()]} for topic in topics]
