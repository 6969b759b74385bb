"""The errors of a response, told by the entities of its request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kproxy.rules.entity import Entity, entities
from kproxy.wire import Message
from kproxy.wire.breath import each, holds_many, keep
from kproxy.wire.elements import Roles, request_elements
from kproxy.wire.table.shapes import Shape, shape

from .tree import Handle, handles_of, reaches, roles_of


@holds_many
@dataclass(slots=True)
class Answered:
    """Element of a response: its code, and the elements in it."""

    code: int
    inside: dict[Handle, Answered] = field(default_factory=dict)


def errors_of(request: Message, response: Message, asked: Iterable[Entity] | None = None) -> dict[Entity, int]:
    """Return the error code in the response for each entity, 0 for none, also for those that the response lacks.

    The code is that of the entity's own element, else of the elements around it, else the one at the top. `asked`: the
    entities of the request, if they were changed (names for topic ids) or there are more (those of a fetch session).
    """
    form = shape(request.api.key, response.version)
    root = keep(Answered(response.body.get(form.code or "", 0), answered(form, 0, response.body)))
    roles = keep({where: said for said, where, _ in request_elements(request)})
    return {
        entity: code_of(form, root, roles[entity.where] if entity.where else roles_of(entity), entity.where)
        for entity in each(entities(request) if asked is None else asked)
    }


def answered(form: Shape, depth: int, parent: Mapping[str, Any]) -> dict[Handle, Answered]:
    found: dict[Handle, Answered] = {}
    if depth == len(form.response):
        return found
    level = form.response[depth]
    for number, element in each(enumerate(parent.get(level.array) or ())):
        one = Answered(element[level.code] if level.code else 0, answered(form, depth + 1, element))
        for handle in ((number,),) if form.positional else handles_of(level, level.roles(element)):
            found.setdefault(handle, one)
    return found


def code_of(form: Shape, root: Answered, roles: Roles, where: tuple[int, ...]) -> int:
    node, code = root, root.code
    for level in form.response:
        if form.positional:
            handles: tuple[Handle, ...] = (where[:1],)
        else:
            handles = handles_of(level, roles) if reaches(level, roles) else ()
        inner = next((node.inside[handle] for handle in handles if handle in node.inside), None)
        if inner is None:
            break
        node, code = inner, inner.code or code
    return code
