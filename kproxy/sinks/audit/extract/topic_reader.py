"""Topics and partitions of a request, or of a response: the levels of its shape, by what they mean.

Words: *around* is the level outside of the topics, if there is one (a group, a transaction, a log directory);
*requested* and *answered* are the two sides.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import Any, NamedTuple
from uuid import UUID

from kproxy.wire.layout import ZERO_UUID, Slot, Struct
from kproxy.wire.shapes import ITSELF, Level

from .fields import OF_PARTITION_ANSWERED, OF_PARTITION_REQUESTED, ColumnFields, present

TOPIC, TOPIC_ID, PARTITION = "topic", "topic_id", "partition"

LISTED = ("partitions", "partition_index")
"""Array and key of the partitions that Metadata and DescribeTopicPartitions list though nobody asks for them singly."""


class TopicElement(NamedTuple):
    """Element of the topics' level of a message: the topic that it is about, and its partitions.

    `around`: what tells it from the same topic elsewhere in the message. `partitions`: elements, or numbers.
    """

    around: Hashable
    around_code: int
    name: str | None
    topic_id: UUID | None
    code: int
    partitions: list[Any]


class TopicReader:
    """Reader of the topics in messages of one direction.

    `index`: the field that holds a partition's number, None: the element is the number.
    """

    def __init__(
        self, around: Level | None, topics: Level, partitions: Level | None, columns: tuple[tuple[str, str], ...]
    ):
        self.around, self.topics, self.partitions = around, topics, partitions
        keys = dict(topics.keys)
        self.name, self.topic_id = keys.get(TOPIC), keys.get(TOPIC_ID) or unkeyed_id(topics)
        flat = PARTITION in keys
        partition = topics if flat else partitions
        self.arrays = () if flat or partitions is None else partitions.arrays
        self.flat = flat
        self.has_partitions = partition is not None
        field = dict(partition.keys)[PARTITION] if partition is not None else ITSELF
        self.index = None if field == ITSELF else field
        struct = partition.struct if partition is not None else None
        self.code = partition.code if partition is not None else None
        self.topic_code = None if flat else topics.code
        self.records = next((slot.name for slot in slots(struct) if slot.type == "records"), None)
        self.acknowledged = next((slot.name for slot in slots(struct) if slot.name == "acknowledge_error_code"), None)
        self.names_leader = any(slot.name == "current_leader" for slot in slots(struct))
        self.columns: ColumnFields = present(columns, struct)
        self.around_role, self.around_field = around.keys[0] if around is not None and around.keys else ("", "")
        self.around_code = around.code if around is not None else None

    def find(self, body: Mapping[str, Any], by_around: bool) -> Iterator[TopicElement]:
        """Yield all topics of a body. `by_around`: topics are the same only if what is around them is."""
        if self.around is None:
            yield from self.inside(body, None, 0)
            return
        for element in self.around.elements(body):
            code = element[self.around_code] if self.around_code else 0
            yield from self.inside(element, element[self.around_field] if by_around else None, code)

    def codes_around(self, body: Mapping[str, Any]) -> dict[Hashable, int]:
        """Return the error codes of what is around topics, also where there are none inside."""
        if self.around is None or self.around_code is None:
            return {}
        return {element[self.around_field]: element[self.around_code] for element in self.around.elements(body)}

    def inside(self, parent: Mapping[str, Any], around: Hashable, around_code: int) -> Iterator[TopicElement]:
        for element in self.topics.elements(parent):
            if self.topics.struct is None:
                yield TopicElement(around, around_code, element, None, 0, [])
                continue
            name = element[self.name] if self.name else None
            topic_id = element[self.topic_id] if self.topic_id else None
            code = element[self.topic_code] if self.topic_code else 0
            partitions: list[Any] = [element] if self.flat else []
            for array in self.arrays:
                partitions += element.get(array) or ()
            yield TopicElement(around, around_code, name, None if topic_id == ZERO_UUID else topic_id, code, partitions)


def unkeyed_id(topics: Level) -> str | None:
    """Return the field of an id that a topic has although nothing is found by it, as in CreateTopics."""
    return next((slot.name for slot in slots(topics.struct) if slot.name == TOPIC_ID), None)


def slots(struct: Struct | None) -> tuple[Slot, ...]:
    return () if struct is None else (*struct.slots, *struct.tagged)


def topic_reader(levels: tuple[Level, ...], *, answered: bool) -> TopicReader | None:
    """Return the reader of the topics in these levels; None if there are none."""
    columns = OF_PARTITION_ANSWERED if answered else OF_PARTITION_REQUESTED
    for depth, level in enumerate(levels):
        roles = {role for role, _ in level.keys}
        if roles & {TOPIC, TOPIC_ID}:
            deeper = levels[depth + 1 : depth + 2]
            partitions = deeper[0] if deeper else listed_partitions(level) if answered else None
            return TopicReader(levels[depth - 1] if depth else None, level, partitions, columns)
    return None


def listed_partitions(level: Level) -> Level | None:
    """Return the level of partitions that a topic lists in a response that is about topics only."""
    array, key = LISTED
    for slot in slots(level.struct):
        if slot.name == array and slot.struct is not None:
            code = next((inner.name for inner in slot.struct.slots if inner.kind == "error_code"), None)
            return Level((array,), ((PARTITION, key),), slot.path, slot.struct, code, None)
    return None
