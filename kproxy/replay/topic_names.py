"""Names of topic ids, from responses that have both side by side: Metadata, CreateTopics and others."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from kproxy.wire import Message
from kproxy.wire.table.layout import ZERO_UUID

from .structs import carriers, layout_of, of_kind, structs

KIND, NAME = "topic_id", "topic_name"
SHOWING = carriers(KIND, "response") & carriers(NAME, "response")
"""The keys of the APIs whose answers show names beside ids."""


def pairs(message: Message) -> Iterator[tuple[UUID, str]]:
    """Yield the ids and names that stand together in this message."""
    for struct, value in structs(layout_of(message), message.body):
        ids = [value[slot.name] for slot in of_kind(struct, KIND) if not slot.array]
        names = [value[slot.name] for slot in of_kind(struct, NAME) if not slot.array]
        if len(ids) == len(names) == 1 and ids[0] != ZERO_UUID and names[0]:
            yield ids[0], names[0]
