"""The broker's answer to the rest of a request, completed to an answer to all of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kproxy.wire import Message
from kproxy.wire.breath import each
from kproxy.wire.table.shapes import Shape, shape

from .element import element
from .overwrite import overwrite_top
from .tree import Failures, Node, tree
from .weave import weave


def merge(request: Message, response: Message, failures: Failures) -> Message:
    """Return the response to `without(request, failures)` with an element for each failed entity, in the request's
    order.

    `request` is the whole one. In arrays tied by position the broker's elements fill the places that did not fail.
    Entities whose level has no error code (see `why_not`) are left out; an error that brokers say at the top (see
    `fails_all`) leaves nothing of the answer. A new message; the response stays as it is.
    """
    form = shape(request.api.key, response.version)
    root = tree(form, request, failures)
    if root.failure is not None and form.code is not None:
        return overwrite_top(response, root.failure)
    complete = interleaved if form.positional else weave
    body = complete(form, response.body, root)
    return Message(response.api, response.version, response.header, body, response.trailing)


def interleaved(form: Shape, body: Mapping[str, Any], root: Node) -> dict[str, Any]:
    """Return `body` with the broker's elements at the places that did not fail."""
    level = form.response[0]
    answered = iter(body.get(level.array) or ())
    out = []
    for child in each(root.children):
        if child.failure is not None:
            out.append(element(form, level, {}, child.failure))
        else:
            out += [one for one in (next(answered, None),) if one is not None]
    return {**body, level.array: [*out, *answered]}
