"""Answers to requests for "all", without the topics, groups and other entities that rules hide from the client.

A request that names what it wants is answered for each of these names, hidden ones with an error; only where it asks
for all there is, may an answer leave something out. Which value of a request's array means that, and which arrays
list, is in `protocol/shapes.yaml` (`all`, `lists`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kproxy.protocol import Message
from kproxy.protocol.breath import each
from kproxy.protocol.table.shapes import Level, Shape, shape
from kproxy.rules.entity import Entity, make

from .tree import Handle, handles_of

Visible = Callable[[Entity], bool]


def leave_out(request: Message, response: Message, visible: Visible) -> bool:
    """Remove from `response`, in place, the elements that were not asked for by name and are not visible; return True
    if there were any.

    `visible` gets an entity for each innermost element, with what the levels around it say; `where` is (). An element
    whose last inner element goes, goes too, unless it is a log directory.
    """
    form = shape(request.api.key, response.version)
    if not form.lists or form.positional:
        return False
    top = {role: request.body[field] for role, field in form.top if role == "group"}
    if not form.request:
        return swept(form.lists, response.body, top, visible)
    return by_request(form, 0, [request.body], [response.body], top, visible)


def by_request(
    form: Shape, depth: int, asked: Sequence[Mapping[str, Any]], said: Sequence[dict[str, Any]],
    around: Mapping[str, Any], visible: Visible,
) -> bool:  # fmt: skip
    """Follow the request down to an array that asks for all; elements that it names on the way stay.

    `asked` are the elements of the request that name the same thing, `said` those of the response. Which of several
    answers is to which of several questions nobody tells: if one of them asks for all, any answer may list all.
    """
    level = form.request[depth]
    if any(form.asks_all(one.get(level.array)) for one in asked):
        removed = [swept(form.lists[depth:], one, around, visible) for one in said]
        return any(removed)
    if depth + 1 == len(form.request) or depth + 1 >= len(form.lists):
        return False
    answers = form.lists[depth]
    found: dict[Handle, list[dict[str, Any]]] = defaultdict(list)
    for one in (one for parent in said for one in each(parent.get(answers.array) or ())):
        for handle in handles_of(answers, answers.roles(one)):
            found[handle].append(one)
    wanted: dict[Handle, list[tuple[Mapping[str, Any], Mapping[str, Any]]]] = defaultdict(list)
    for element in (element for parent in asked for element in each(level.elements(parent))):
        roles = {**around, **level.roles(element)}
        wanted[handles_of(answers, roles)[0]].append((element, roles))
    parts = [
        by_request(form, depth + 1, [element for element, _ in some], found[handle], some[0][1], visible)
        for handle, some in wanted.items()
        if handle in found
    ]
    return any(parts)


def swept(levels: tuple[Level, ...], parent: dict[str, Any], around: Mapping[str, Any], visible: Visible) -> bool:
    """Remove the elements that are not visible from the array of the first level, and inside of it; return True if
    there were any."""
    level, deeper = levels[0], levels[1:]
    kept, removed = [], False
    for element in each(parent.get(level.array) or ()):
        roles = {**around, **level.roles(element)}
        if deeper and deeper[0].elements(element):
            removed |= swept(deeper, element, roles, visible)
            if deeper[0].elements(element) or level.keys[0][0] == "dir":
                kept.append(element)
        elif visible(make(roles, ())):
            kept.append(element)
        else:
            removed = True
    if removed:
        parent[level.array] = kept
    return removed
