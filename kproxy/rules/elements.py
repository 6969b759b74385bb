"""Which elements of a message's arrays belong to some of its entities."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

from kproxy.rules.entity import Entity, maker
from kproxy.wire.message import Message
from kproxy.wire.shapes import Level, Shape, shape

Lets = Callable[[Any, int], bool]
"""Asked with an array and an index into it."""

SAID = tuple(field.name for field in fields(Entity) if field.name != "where")


def elements_of(message: Message, entities: Sequence[Entity]) -> Lets:
    """A test for elements: those of levels of entities (`wire/shapes.yaml`) pass if they are, or hold, one of these.

    Elements of all other arrays pass. The entities are those of the request, whatever the direction of the message is.
    """
    form = shape(message.api.key, message.version)
    levels = form.request if message.direction == "request" else form.lists
    refused: set[tuple[int, int]] = set()
    top = {role: message.body[field] for role, field in form.top} if message.direction == "request" else {}
    if levels:
        refuse(form, levels, message.body, top, entities, refused)
    return lambda array, index: (id(array), index) not in refused


def refuse(
    form: Shape,
    levels: Sequence[Level],
    parent: dict[str, Any],
    around: dict[str, Any],
    entities: Sequence[Entity],
    refused: set[tuple[int, int]],
) -> None:
    """Note the elements that none of the entities is about."""
    level, place = levels[0], 0
    for name in level.arrays:
        array = parent.get(name) or []
        for index, element in enumerate(array):
            roles = {**around, **level.roles(element)}
            inside = [one for one in entities if is_about(form, one, roles, place)]
            if not inside:
                refused.add((id(array), index))
            elif len(levels) > 1 and level.struct is not None:
                refuse(form, levels[1:], element, roles, inside, refused)
            place += 1


def is_about(form: Shape, entity: Entity, roles: dict[str, Any], place: int) -> bool:
    """Whether nothing that is known of an element speaks against this entity."""
    if form.positional:
        return entity.where[:1] in ((), (place,))
    known = maker(form)(roles, ())
    if known.topic is not None and entity.topic is not None:
        if known.topic != entity.topic:
            return False
    elif known.topic_id and known.topic_id.int and entity.topic_id and known.topic_id != entity.topic_id:
        return False
    rest = (name for name in SAID if name not in ("topic", "topic_id"))
    return all(
        getattr(known, name) is None or getattr(entity, name) is None or getattr(known, name) == getattr(entity, name)
        for name in rest
    )
