"""A request with some of its entities taken out: what the broker gets when the others are answered in its place."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from operator import gt, ne
from typing import Any

from kproxy.rules.entity import Entity
from kproxy.wire import Message
from kproxy.wire.breath import breathe, each
from kproxy.wire.table.shapes import Level, Shape, shape

SIGNS = {">": gt, "!=": ne}


def without(request: Message, entities: Iterable[Entity]) -> Message | None:
    """Return the request without these entities, found by their place in it; None when nothing is left to ask.

    Elements whose last entity goes, go too; null arrays stay null. A Fetch or ShareFetch in a session that goes on
    still asks for what the session holds, so it is left with no topics. What is untouched is shared with the request.
    """
    form = shape(request.api.key, request.version)
    gone = {entity.where for entity in each(entities)}
    if not gone:
        return request
    if () in gone and not form.session:
        return None
    gone.discard(())
    if not gone:
        return request if goes_on(form, request.body) else None
    body, left = pruned(form.request, request.body, gone, ())
    if left or goes_on(form, request.body):
        return Message(request.api, request.version, request.header, body, request.trailing)
    return None


def goes_on(form: Shape, body: Mapping[str, Any]) -> bool:
    """Return True if the request belongs to a session that goes on, so that it asks for more than it lists."""
    if form.session is None:
        return False
    name, sign, number = form.session
    return bool(SIGNS[sign](body[name], number))


def pruned(
    levels: tuple[Level, ...], parent: Mapping[str, Any], gone: Collection[tuple[int, ...]], path: tuple[int, ...]
) -> tuple[dict[str, Any], int]:
    """Return a copy of `parent` without the entities at the paths `gone`, and how many elements its array has left."""
    copy, left, index = dict(parent), 0, 0
    for array in levels[0].arrays:
        kept = []
        for element in parent.get(array) or ():
            breathe()
            here, index = (*path, index), index + 1
            if here in gone:
                continue
            if len(levels) > 1 and levels[1].elements(element):
                element, inside = pruned(levels[1:], element, gone, here)
                if not inside:
                    continue
            kept.append(element)
        if parent.get(array) is not None:
            copy[array] = kept
        left += len(kept)
    return copy, left
