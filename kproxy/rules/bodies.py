"""Topics, partitions, brokers and coordinators in decoded bodies, in every version.

Bodies are dicts with the field names of the protocol guide and the client's names. An effect that changes a body in
place returns `Edit()`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from kproxy.base.cooperative import yielding
from kproxy.protocol import Message
from kproxy.protocol.elements import Partition, Topic, partitions, topics
from kproxy.protocol.records.spans import EntrySpans, Span
from kproxy.protocol.table import layout, schema
from kproxy.protocol.table.api_keys import (
    DESCRIBE_CLUSTER,
    DESCRIBE_TOPIC_PARTITIONS,
    FETCH,
    FIND_COORDINATOR,
    METADATA,
    PRODUCE,
    SHARE_ACKNOWLEDGE,
    SHARE_FETCH,
)
from kproxy.protocol.table.layout import ZERO_UUID
from kproxy.rules.entity import Entity
from kproxy.rules.exchange import Exchange

from .exchange import Decision, Delay

DESCRIBING = frozenset({METADATA, DESCRIBE_TOPIC_PARTITIONS})
"""APIs with topics and partition leaders in responses."""


@dataclass(frozen=True, slots=True)
class PartitionBody:
    """Partition in a body: its entity, its dict, and the request's entity for it if one was looked up. `record_test`:
    makes the test of the records of one entry; None: the rule has no record condition for this partition."""

    entity: Entity
    body: dict[str, Any]
    asked: Entity | None = None
    record_test: Callable[[EntrySpans], Callable[[Span], bool]] | None = None

    @property
    def name(self) -> str:
        """Return `topic-partition`, the id in the topic's place when its name is not known."""
        return f"{self.entity.topic or self.entity.topic_id}-{self.entity.partition}"


def topic_entity(topic: Topic | Partition, exchange: Exchange) -> Entity:
    """Return the entity of a topic, or of the topic of a partition. Its name or id is None if the message and the
    cluster lack it."""
    name, topic_id = topic[0] or None, topic.topic_id
    if topic_id is None or topic_id == ZERO_UUID:
        return Entity(topic=name)
    return Entity(name if name is not None else exchange.connection.cluster.topic_of(topic_id), topic_id)


def topics_of_answer(exchange: Exchange) -> Iterator[tuple[Entity, dict[str, Any]]]:
    for topic in topics(exchange.response):
        yield topic_entity(topic, exchange), topic.fields


def partition_bodies(message: Message, exchange: Exchange) -> Iterator[PartitionBody]:
    around, topic = None, Entity()
    for partition in partitions(message):
        if partition.around is not around:
            around, topic = partition.around, topic_entity(partition, exchange)
        yield PartitionBody(Entity(topic.topic, topic.topic_id, partition.number), partition.fields)


def selected_partitions(message: Message, exchange: Exchange, entities: Sequence[Entity]) -> Iterator[PartitionBody]:
    wanted = EntityIndex(entities)
    for place in partition_bodies(message, exchange):
        if (asked := wanted.find(place.entity)) is not None:
            yield PartitionBody(place.entity, place.body, asked)


def partitions_of_answer(exchange: Exchange, entities: Sequence[Entity]) -> Iterator[PartitionBody]:
    return selected_partitions(exchange.response, exchange, entities)


def partitions_of_request(exchange: Exchange, entities: Sequence[Entity]) -> Iterator[PartitionBody]:
    return selected_partitions(exchange.request, exchange, entities)


class EntityIndex:
    """Index of entities by name and by id, whichever of the two each has."""

    def __init__(self, entities: Sequence[Entity]) -> None:
        self.by_name = {(one.topic, one.partition): one for one in yielding(entities) if one.topic is not None}
        self.by_id = {(one.topic_id, one.partition): one for one in yielding(entities) if one.topic_id is not None}

    def find(self, entity: Entity) -> Entity | None:
        by_name = None if entity.topic is None else self.by_name.get((entity.topic, entity.partition))
        if by_name is None and entity.topic_id is not None:
            return self.by_id.get((entity.topic_id, entity.partition))
        return by_name


CARRYING = frozenset(((PRODUCE, "request"), (FETCH, "response"), (SHARE_FETCH, "response")))


def carries_records(key: int, direction: str) -> bool:
    """Return True if messages of this API carry records in this direction, and a client is at their end."""
    return (key, direction) in CARRYING


def partitions_among(message: Message, entities: Sequence[Entity]) -> Iterator[tuple[Entity, Partition]]:
    """Yield the partitions that are among the entities by the name or id in the message, with their entities."""
    known: dict[tuple[str | UUID | None, int], Entity] = {}
    for entity in yielding(entities):
        if entity.partition is not None:
            known[entity.topic, entity.partition] = entity
            if entity.topic_id is not None:
                known[entity.topic_id, entity.partition] = entity
    for partition in yielding(partitions(message)):
        where = partition.name_or_id, partition.number
        if where in known:
            yield known[where], partition


def record_shares(message: Message, entities: Sequence[Entity]) -> Iterator[tuple[Entity, float]]:
    """Yield each entity with its share of all record bytes, from 0 to 1. Yield nothing without records."""
    total = sum(len(partition.records or b"") for partition in yielding(partitions(message)))
    if total:
        for entity, partition in partitions_among(message, entities):
            yield entity, len(partition.records or b"") / total


def waited(exchange: Exchange) -> tuple[Decision, ...]:
    """Return the wait for an answer without records and errors, so that consumers do not ask again and again at
    once."""
    response = exchange.response
    busy = response.body.get("error_code") or any(one.records or one.error_code for one in partitions(response))
    seconds = exchange.request.body["max_wait_ms"] / 1000
    return () if busy or seconds <= 0 else (Delay(seconds),)


# ---- brokers and their addresses

LISTS = {
    METADATA: ("brokers", "node_id"),
    DESCRIBE_CLUSTER: ("brokers", "broker_id"),
    PRODUCE: ("node_endpoints", "node_id"),
    FETCH: ("node_endpoints", "node_id"),
    SHARE_FETCH: ("node_endpoints", "node_id"),
    SHARE_ACKNOWLEDGE: ("node_endpoints", "node_id"),
}
"""API → the array of brokers, and the field with their id."""

CONTROLLERS = 2
"""DescribeCluster's endpoint type for answers that list controllers (KIP-919)."""
NO_NODE: dict[str, Any] = {"node_id": -1, "host": "", "port": -1}
"""Fields of a FindCoordinator answer that names no broker."""


def carries_addresses(key: int, version: int) -> bool:
    """Return True if answers of this API and version have addresses of brokers in them."""
    if key not in LISTS and key != FIND_COORDINATOR:
        return False
    return version in layout.kinds(key, "response").get("host", schema.NONE)


def listed(key: int, body: dict[str, Any]) -> tuple[list[dict[str, Any]], str]:
    """Return the brokers that an answer lists, in place, and the name of their id's field; none where it lists none."""
    name, field = LISTS.get(key, ("", ""))
    if body.get("endpoint_type") == CONTROLLERS:
        return [], field
    return body.get(name) or [], field


def coordinators(body: dict[str, Any]) -> Iterable[dict[str, Any]]:
    """Return the entries of a FindCoordinator response, with yield points. Before version 4 the body is the entry."""
    entries: list[dict[str, Any]] | None = body.get("coordinators", [body])
    return yielding(entries or [])


def addressed(key: int, body: dict[str, Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (node id, the dict with its `host` and `port`) of every broker named in an answer."""
    if key == FIND_COORDINATOR:
        for entry in coordinators(body):
            if entry["node_id"] >= 0:
                yield entry["node_id"], entry
        return
    brokers, field = listed(key, body)
    for entry in yielding(brokers):
        yield entry[field], entry
