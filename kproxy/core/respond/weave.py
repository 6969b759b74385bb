"""A response with the elements of failed entities in it.

Strategy. Elements that the response has stay in their order, and those that failed are replaced where they stand. An
element that is missing goes in before the first one that the request names later. So a response in the request's order
keeps that order, and one in an order of the broker's own is not shuffled.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kproxy.wire.breath import each
from kproxy.wire.table.shapes import Level, Shape

from .element import element, put
from .tree import Node, handles_of


def weave(form: Shape, body: Mapping[str, Any], root: Node) -> dict[str, Any]:
    """Return a copy of a response's body with the errors of the tree; parts without errors are shared."""
    if not root.failing or not form.response or not any(level.code for level in form.response):
        return dict(body)
    return woven(form, 0, body, root)


def woven(form: Shape, depth: int, parent: Mapping[str, Any], node: Node) -> dict[str, Any]:
    """Return `parent` with its array at this depth woven with the node's children."""
    level = form.response[depth]
    present = parent.get(level.array) or []
    places = [node.place(handles_of(level, level.roles(one))) for one in each(present)]
    there = set(places)
    missing = [place for place, child in each(enumerate(node.children)) if child.failing and place not in there]
    missing.reverse()
    out: list[Any] = []
    for one, place in each(zip(present, places, strict=True)):
        if place is None:
            out.append(one)
            continue
        while missing and missing[-1] < place:
            out.append(built(form, depth, node.children[missing.pop()]))
        out.append(changed(form, depth, one, node.children[place]))
    out += [built(form, depth, node.children[place]) for place in each(reversed(missing))]
    return {**parent, level.array: out}


def changed(form: Shape, depth: int, one: dict[str, Any], node: Node) -> dict[str, Any]:
    """Return an element that is there, with the failed ones in it. It keeps its keys: it may know a name for the
    request's id."""
    if not node.failing:
        return one
    if node.failure is not None and not node.children:
        return element(form, form.response[depth], known(form.response[depth], one, node), node.failure)
    copy = woven(form, depth + 1, one, node)
    if node.failure is not None:  # asked for as a whole, and again in part
        put(copy, form.response[depth].code, form.response[depth].text, node.failure)
    return copy


def known(level: Level, one: dict[str, Any], node: Node) -> dict[str, Any]:
    return {**node.roles, **level.roles(one)}


def built(form: Shape, depth: int, node: Node) -> dict[str, Any]:
    """Return an element made from nothing, with all that failed in it."""
    made = element(form, form.response[depth], node.roles, node.failure)
    failing = [child for child in each(node.children) if child.failing]
    if failing:
        array = form.response[depth + 1].array
        made[array] = [built(form, depth + 1, child) for child in each(failing)]
    return made
