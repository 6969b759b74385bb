"""Elements of a message's arrays that belong to some of its entities."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

from kproxy.protocol.codec.message import Message
from kproxy.protocol.table.shapes import Level, Shape, shape
from kproxy.rules.entity import Entity, maker

Lets = Callable[[Any, int], bool]
"""Asked with an array and an index into it."""

SAID = tuple(field.name for field in fields(Entity) if field.name != "where")


def elements_of(message: Message, entities: Sequence[Entity]) -> Lets:
    """Return a test for elements: those of levels of entities (`protocol/shapes.yaml`) pass if they are, or hold, one
    of
    these.

    Elements of all other arrays pass. The entities are those of the request, whatever the direction of the message is.
    """
    form = shape(message.api.key, message.version)
    levels = form.request if message.direction == "request" else form.lists
    refused: set[tuple[int, int]] = set()
    top = {role: message.body[field] for role, field in form.top} if message.direction == "request" else {}
    if levels:
        refuse(form, levels, message.body, top, Sorted(form, entities), refused)
    return lambda array, index: (id(array), index) not in refused


def refuse(
    form: Shape,
    levels: Sequence[Level],
    parent: dict[str, Any],
    around: dict[str, Any],
    entities: Sorted,
    refused: set[tuple[int, int]],
) -> None:
    """Note the elements that none of the entities is about."""
    level, place = levels[0], 0
    for name in level.arrays:
        array = parent.get(name) or []
        for index, element in enumerate(array):
            roles = {**around, **level.roles(element)}
            inside = [one for one in entities.near(roles, place) if is_about(form, one, roles, place)]
            if not inside:
                refused.add((id(array), index))
            elif len(levels) > 1 and level.struct is not None:
                refuse(form, levels[1:], element, roles, Sorted(form, inside), refused)
            place += 1


class Sorted:
    """Entities by what tells them apart, so that each element is compared with few: their place in arrays that are tied
    by it, else the first role that each of them has."""

    def __init__(self, form: Shape, entities: Sequence[Entity]) -> None:
        self.form = form
        self.by: dict[str, dict[Any, list[Entity]]] = {}
        names = (
            ("where",) if form.positional else ("topic", "topic_id", *(name for name in SAID if name[:5] != "topic"))
        )
        for name in names:
            sorted_: dict[Any, list[Entity]] = {}
            for entity in entities:
                value = entity.where[:1] if name == "where" else getattr(entity, name)
                sorted_.setdefault(value, []).append(entity)
            self.by[name] = sorted_
        self.entities = entities

    def near(self, roles: dict[str, Any], place: int) -> Sequence[Entity]:
        """Return the fewest entities among which are all that an element can be about."""
        if self.form.positional:
            return [*self.by["where"].get((), ()), *self.by["where"].get((place,), ())]
        known, best = maker(self.form)(roles, ()), self.entities
        for name, sorted_ in self.by.items():
            value = getattr(known, name)
            if value is None or (name == "topic_id" and not value.int):
                continue
            some = [sorted_.get(None, ()), sorted_.get(value, ())]
            if name == "topic_id" and known.topic is not None:  # a name decides, where both have one
                continue
            if sum(map(len, some)) < len(best):
                best = [*some[0], *some[1]]
        return best


def is_about(form: Shape, entity: Entity, roles: dict[str, Any], place: int) -> bool:
    """Return True if nothing that is known of an element speaks against this entity."""
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
