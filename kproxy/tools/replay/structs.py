"""Structs of a message, each with its layout, so that fixes find fields by what the table says of them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any
from uuid import UUID

from kproxy.protocol import Message
from kproxy.protocol.table import layout, schema
from kproxy.protocol.table.layout import ZERO_UUID, Slot, Struct

ERROR_CODE = "error_code"


def layout_of(message: Message) -> Struct:
    """Return the layout of a message's body."""
    return layout.body(message.api.key, message.version, message.direction)


def structs(struct: Struct, value: dict[str, Any]) -> Iterator[tuple[Struct, dict[str, Any]]]:
    """Yield the struct itself and all that are in it, in wire order, each with its layout."""
    yield struct, value
    for slot in struct.all_slots:
        inner = value.get(slot.name)
        if slot.struct is None or inner is None:
            continue
        for element in inner if slot.array else (inner,):
            yield from structs(slot.struct, element)


def of_kind(struct: Struct, kind: str) -> Iterator[Slot]:
    """Yield the fields of this struct, not of those in it, that hold such a value."""
    return (slot for slot in struct.all_slots if slot.kind == kind)


def codes(message: Message) -> set[int]:
    """Return all error codes of a response but 0."""
    present: set[int] = set()
    for struct, value in structs(layout_of(message), message.body):
        present.update(value[slot.name] for slot in of_kind(struct, ERROR_CODE) if not slot.array)
    return present - {0}


@cache
def carriers(kind: str, direction: str) -> frozenset[int]:
    """Return the keys of all APIs that carry such a value in some version."""
    return frozenset(key for key in schema.paths() if kind in layout.kinds(key, direction))


TOPIC_ID, TOPIC_NAME = "topic_id", "topic_name"
SHOWING = carriers(TOPIC_ID, "response") & carriers(TOPIC_NAME, "response")
"""Keys of the APIs whose responses show names beside ids."""


def pairs(message: Message) -> Iterator[tuple[UUID, str]]:
    """Yield the ids and names that stand together in this message."""
    for struct, value in structs(layout_of(message), message.body):
        ids = [value[slot.name] for slot in of_kind(struct, TOPIC_ID) if not slot.array]
        names = [value[slot.name] for slot in of_kind(struct, TOPIC_NAME) if not slot.array]
        if len(ids) == len(names) == 1 and ids[0] != ZERO_UUID and names[0]:
            yield ids[0], names[0]
