"""Requests that ask for all there is, or for more than their entities tell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kproxy.wire.codec.message import Message
from kproxy.wire.table import schema
from kproxy.wire.table.shapes import Shape, shape


def asks_all(request: Message) -> bool:
    """Return True if the answer lists things that this request does not name."""
    form = shape(request.api.key, request.version)
    if not form.lists or form.positional:
        return False
    return not form.request or any_all(form, 0, request.body)


def any_all(form: Shape, depth: int, parent: Mapping[str, Any]) -> bool:
    if depth == len(form.request):
        return False
    level = form.request[depth]
    if any(form.asks_all(parent.get(array)) for array in level.arrays if array in parent):
        return True
    if level.struct is None:
        return False
    return any(any_all(form, depth + 1, element) for element in level.elements(parent))


def can_ask_all(key: int, version: int) -> bool:
    """Return True if there are such requests of this API and version; of one that the table lacks nobody can tell."""
    if version not in schema.load(key).versions:
        return False
    form = shape(key, version)
    return bool(form.lists) and not form.positional and (form.all != "never" or not form.request)


def listed_roles(key: int, version: int) -> frozenset[str]:
    """Return the selectors that can hold for what such an answer lists."""
    form = shape(key, version)
    roles = {role for keys in (form.top, *(level.keys for level in form.lists)) for role, _ in keys}
    if "topic" in roles or "topic_id" in roles:
        roles |= {"topic", "topic_id"}
    if "resource_name" in roles:
        roles |= {"topic", "group", "transactional_id"}
    return frozenset(roles)
