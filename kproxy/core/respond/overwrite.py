"""Errors after the work: the broker has answered, and the client is told otherwise."""

from __future__ import annotations

from typing import Any

from kproxy.wire import Message
from kproxy.wire.breath import each
from kproxy.wire.table.shapes import Shape, shape

from .answer import top_error
from .element import element
from .failure import Failure
from .tree import Failures, Node, tree
from .weave import weave

KEPT = ("throttle_time_ms", "session_id")
"""Fields that an error at the top leaves as the broker said them: a quota's hint, and the continuing fetch session."""


def overwrite(request: Message, response: Message, failures: Failures) -> Message:
    """Return the broker's full response in which these entities have failed: as a broker would send them with that
    error.

    Entities are found by topic name or id; those that the response lacks (an incremental Fetch) are added. An entity
    with `where` () and a partition is one of the fetch session that the request does not list; any other is the request
    itself, and its error goes to the top, or, where a response has no code there, to everything that was answered.
    Entities whose level has no error code stay as they are. A new message; the response stays as it is.
    """
    form = shape(request.api.key, response.version)
    root = tree(form, request, failures)
    if root.failure is not None:
        if form.code is not None:
            return overwrite_top(response, root.failure)
        body = everywhere(form, 0, response.body, root.failure) if form.carries else dict(response.body)
    elif form.positional:
        body = replaced(form, response.body, root)
    else:
        body = weave(form, response.body, root)
    return Message(response.api, response.version, response.header, body, response.trailing)


def overwrite_top(response: Message, failure: Failure) -> Message:
    """Return the response that a broker sends when a request fails at the top: the code, nothing in the arrays; the
    throttle time stays."""
    form = shape(response.api.key, response.version)
    body = top_error(form, None, failure)
    body |= {name: response.body[name] for name in KEPT if name in body and name in response.body}
    return Message(response.api, response.version, response.header, body, response.trailing)


def replaced(form: Shape, body: dict[str, Any], root: Node) -> dict[str, Any]:
    """Return the body with errors in those elements that are tied to the request's failed ones by their place."""
    level = form.response[0]
    elements = list(body.get(level.array) or ())
    for number, child in each(enumerate(root.children)):
        if child.failure is not None and number < len(elements):
            elements[number] = element(form, level, {}, child.failure)
    return {**body, level.array: elements}


def everywhere(form: Shape, depth: int, parent: dict[str, Any], failure: Failure) -> dict[str, Any]:
    """Return a copy of `parent` in which every innermost element has failed, under the keys that it has."""
    level = form.response[depth]
    if depth + 1 < len(form.response):
        out = [everywhere(form, depth + 1, one, failure) for one in each(parent.get(level.array) or ())]
    else:
        out = [element(form, level, level.roles(one), failure) for one in each(parent.get(level.array) or ())]
    return {**parent, level.array: out}
