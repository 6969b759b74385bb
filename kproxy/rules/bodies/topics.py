"""Topics and their partitions in answers and requests, in every version that has them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from kproxy.rules.entity import Entity
from kproxy.rules.exchange import Exchange
from kproxy.wire.api_keys import (
    DESCRIBE_TOPIC_PARTITIONS,
    FETCH,
    LIST_OFFSETS,
    METADATA,
    OFFSET_COMMIT,
    PRODUCE,
    SHARE_FETCH,
)
from kproxy.wire.layout import ZERO_UUID

DESCRIBING = frozenset({METADATA, DESCRIBE_TOPIC_PARTITIONS})
"""APIs that say which topics there are, and who leads their partitions."""

Arrays = tuple[str, str, str]
"""The array of topics, that of partitions in it, and the field with a partition's number."""

OF_ANSWER: dict[int, Arrays] = {
    PRODUCE: ("responses", "partition_responses", "index"),
    FETCH: ("responses", "partitions", "partition_index"),
    LIST_OFFSETS: ("topics", "partitions", "partition_index"),
    METADATA: ("topics", "partitions", "partition_index"),
    OFFSET_COMMIT: ("topics", "partitions", "partition_index"),
    DESCRIBE_TOPIC_PARTITIONS: ("topics", "partitions", "partition_index"),
    SHARE_FETCH: ("responses", "partitions", "partition_index"),
}
OF_REQUEST: dict[int, Arrays] = {
    PRODUCE: ("topic_data", "partition_data", "index"),
    FETCH: ("topics", "partitions", "partition"),
    LIST_OFFSETS: ("topics", "partitions", "partition_index"),
}


@dataclass(frozen=True, slots=True)
class PartitionBody:
    """Partition in a body: what it is, its dict, and the request's entity for it, where one was looked for."""

    entity: Entity
    body: dict[str, Any]
    asked: Entity | None = None

    @property
    def name(self) -> str:
        """Return `topic-partition`, the id in the topic's place when its name is not known."""
        return f"{self.entity.topic or self.entity.topic_id}-{self.entity.partition}"


def topic_of(entry: dict[str, Any], exchange: Exchange) -> tuple[str | None, UUID | None]:
    """Return name and id of a topic's dict; None for what neither it nor the cluster's answers so far say."""
    name = entry.get("name", entry.get("topic")) or None
    topic_id = entry.get("topic_id", ZERO_UUID)
    if topic_id == ZERO_UUID:
        return name, None
    return name if name is not None else exchange.connection.cluster.topic_of(topic_id), topic_id


def topics_of_answer(exchange: Exchange) -> Iterator[tuple[Entity, dict[str, Any]]]:
    """Yield the topics of an answer, each with what it is."""
    for entry in exchange.response.body[OF_ANSWER[exchange.api.key][0]] or ():
        name, topic_id = topic_of(entry, exchange)
        yield Entity(topic=name, topic_id=topic_id), entry


def partitions_of_topic(key: int, topic: Entity, entry: dict[str, Any]) -> Iterator[PartitionBody]:
    """Yield the partitions of one topic of an answer."""
    _, inner, number = OF_ANSWER[key]
    for partition in entry[inner] or ():
        yield PartitionBody(Entity(topic=topic.topic, topic_id=topic.topic_id, partition=partition[number]), partition)


def partitions_of_answer(exchange: Exchange, entities: Sequence[Entity]) -> Iterator[PartitionBody]:
    """Yield the partitions of an answer that are among these entities of its request."""
    wanted = EntityIndex(entities)
    for topic, entry in topics_of_answer(exchange):
        for place in partitions_of_topic(exchange.api.key, topic, entry):
            if (asked := wanted.find(place.entity)) is not None:
                yield PartitionBody(place.entity, place.body, asked)


def partitions_of_request(exchange: Exchange, entities: Sequence[Entity]) -> Iterator[PartitionBody]:
    """Yield the partitions of a request that are among these entities of it."""
    outer, inner, number = OF_REQUEST[exchange.api.key]
    wanted = EntityIndex(entities)
    for entry in exchange.request.body[outer] or ():
        name, topic_id = topic_of(entry, exchange)
        for partition in entry[inner] or ():
            entity = Entity(topic=name, topic_id=topic_id, partition=partition[number])
            if (asked := wanted.find(entity)) is not None:
                yield PartitionBody(entity, partition, asked)


class EntityIndex:
    """Index of entities by name and by id, whichever of the two each has."""

    def __init__(self, entities: Sequence[Entity]) -> None:
        self.by_name = {(one.topic, one.partition): one for one in entities if one.topic is not None}
        self.by_id = {(one.topic_id, one.partition): one for one in entities if one.topic_id is not None}

    def find(self, entity: Entity) -> Entity | None:
        """Return the entity for this partition, None when there is none."""
        by_name = None if entity.topic is None else self.by_name.get((entity.topic, entity.partition))
        if by_name is None and entity.topic_id is not None:
            return self.by_id.get((entity.topic_id, entity.partition))
        return by_name
