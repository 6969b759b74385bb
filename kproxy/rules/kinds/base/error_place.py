"""Places of errors in a response: at its top, or at each entity.

Without a wish it stands where brokers put it; the responses of `core` know that (`outer` in `wire/shapes.yaml`).
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from typing import Any, Literal

from kproxy.wire.table import schema
from kproxy.wire.table.shapes import Shape, shape

ErrorPlace = Literal["top", "entity"]


def has_top(form: Shape) -> bool:
    """Return True if an error of the whole request has a place of its own, not only one at each entity."""
    return form.code is not None or form.whole == "first"


@cache
def only_at_top(form: Shape) -> bool:
    """Return True if requests are about several things, and an error can be said of all of them together only."""
    return bool(form.request) and not form.carries and has_top(form)


def can_say(key: int, version: int, place: ErrorPlace | None) -> bool:
    """Return True if the response can say an error at this place; None: anywhere.

    What asks about one thing has the error of that at the top. A version that the table lacks says nothing.
    """
    if version not in schema.load(key).versions:
        return False
    form = shape(key, version)
    of_entity = form.carries if form.request else form.code is not None
    if place is None:
        return of_entity or has_top(form)
    return of_entity if place == "entity" else has_top(form)


def has_text(key: int, version: int) -> bool:
    """Return True if the response has a field for a text beside some error."""
    form = shape(key, version)
    return form.text is not None or any(level.text is not None for level in form.response)


def fail_outermost(
    form: Shape, body: dict[str, Any], groups: Collection[str | None], code: int, message: str | None = None
) -> bool:
    """Put an error at the elements of the outermost array, in place: the top for each of several groups (KIP-709).

    Only at those of these groups, at all of them if that is empty. Returns True if there was any.
    """
    level, *deeper = form.response
    failed = False
    for element in level.elements(body):
        if level.code is None or (groups and level.roles(element).get("group") not in groups):
            continue
        if deeper:
            element[deeper[0].array] = []
        element[level.code] = code
        if level.text is not None:
            element[level.text] = message
        failed = True
    return failed
