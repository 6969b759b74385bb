"""Readers of the columns of topics and partitions: those of one side of an exchange, the request or the response.

Words: *around* is the level outside of the topics, if there is one (a group, a transaction, a log directory).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import Any, NamedTuple
from uuid import UUID

from kproxy.sinks.audit.extract.column_fields import (
    OF_PARTITION_ANSWERED,
    OF_PARTITION_REQUESTED,
    ColumnFields,
    present,
)
from kproxy.wire.elements import TopicWalk, topic_walk
from kproxy.wire.table.layout import ZERO_UUID, Slot, Struct


class TopicElement(NamedTuple):
    """Topic in a message, and its partitions.

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

    def __init__(self, walk: TopicWalk, columns: tuple[tuple[str, str], ...]):
        self.walk, self.around, self.index = walk, walk.around, walk.index
        partition = walk.partition
        struct = partition.struct if partition is not None else None
        self.code = partition.code if partition is not None else None
        self.topic_code = None if walk.flat else walk.topics.code
        self.records = next((slot.name for slot in slots(struct) if slot.type == "records"), None)
        self.acknowledged = next((slot.name for slot in slots(struct) if slot.name == "acknowledge_error_code"), None)
        self.names_leader = any(slot.name == "current_leader" for slot in slots(struct))
        self.columns: ColumnFields = present(columns, struct)
        keys = walk.around.keys if walk.around is not None else ()
        self.around_role, self.around_field = keys[0] if keys else ("", "")
        self.around_code = walk.around.code if walk.around is not None else None

    def find(self, body: Mapping[str, Any], by_around: bool) -> Iterator[TopicElement]:
        """Yield all topics of a body. `by_around`: topics are the same only if what is around them is."""
        for name, topic_id, fields, around, partitions in self.walk.find(body):
            yield TopicElement(
                around[self.around_field] if by_around and around is not None else None,
                around[self.around_code] if self.around_code else 0,
                name,
                None if topic_id == ZERO_UUID else topic_id,
                fields[self.topic_code] if self.topic_code else 0,
                partitions,
            )

    def codes_around(self, body: Mapping[str, Any]) -> dict[Hashable, int]:
        """Return the error codes of what is around topics, also where there are none inside."""
        if self.around is None or self.around_code is None:
            return {}
        return {element[self.around_field]: element[self.around_code] for element in self.around.elements(body)}


def slots(struct: Struct | None) -> tuple[Slot, ...]:
    return () if struct is None else struct.all_slots


def topic_reader(key: int, version: int, *, answered: bool) -> TopicReader | None:
    """Return the reader of the topics in the requests or the responses of an API and version; None if there are
    none."""
    walk = topic_walk(key, version, "response" if answered else "request")
    columns = OF_PARTITION_ANSWERED if answered else OF_PARTITION_REQUESTED
    return None if walk is None else TopicReader(walk, columns)
