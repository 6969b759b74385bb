"""Bytes of records that a message has for each partition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from uuid import UUID

from kproxy.rules.entity import Entity
from kproxy.wire.api_keys import FETCH, PRODUCE, SHARE_FETCH
from kproxy.wire.message import Message

PartitionName = tuple[str | UUID | None, int]
"""A topic, by name or by id as the message says it, and a partition."""

_ARRAYS = {
    (PRODUCE, "request"): ("topic_data", "name", "partition_data", "index"),
    (FETCH, "response"): ("responses", "topic", "partitions", "partition_index"),
    (SHARE_FETCH, "response"): ("responses", "topic", "partitions", "partition_index"),
}  # the arrays of topics and partitions, and the fields that name them


def carries_records(key: int, direction: str) -> bool:
    """Return True if messages of this API carry records in this direction, and a client is at their end."""
    return (key, direction) in _ARRAYS


def partitions(message: Message) -> Iterator[tuple[PartitionName, dict[str, object]]]:
    """Yield the partitions of a Produce request or a Fetch or ShareFetch response, whose `records` are bytes or
    None."""
    topics, name, parts, index = _ARRAYS[message.api.key, message.direction]
    for topic in message.body[topics] or ():
        called = topic[name] if name in topic else topic["topic_id"]
        for part in topic[parts] or ():
            yield (called, part[index]), part


def selected(message: Message, entities: Sequence[Entity]) -> Iterator[tuple[Entity, dict[str, object]]]:
    """Yield the partitions of a message that are among the entities, each with its entity."""
    known: dict[PartitionName, Entity] = {}
    for entity in entities:
        if entity.partition is not None:
            known[entity.topic, entity.partition] = entity
            if entity.topic_id is not None:
                known[entity.topic_id, entity.partition] = entity
    for where, part in partitions(message):
        if where in known:
            yield known[where], part


def record_bytes(part: dict[str, object]) -> int:
    """Return the length of a partition's records; 0 without any."""
    records = part["records"]
    return len(records) if isinstance(records, bytes | bytearray | memoryview) else 0


def shares(message: Message, entities: Sequence[Entity]) -> Iterator[tuple[Entity, float]]:
    """Yield each of these entities with the part of all record bytes of the message that it has; none when there are no
    records."""
    total = sum(record_bytes(part) for _, part in partitions(message))
    if total:
        for entity, part in selected(message, entities):
            yield entity, record_bytes(part) / total
