"""Answers to requests for "all", without the topics, groups and other entities that rules hide from the client.

A request that lists names is answered for each of them, hidden ones with an error. Only the answer to a request for all
may leave something out. Which value of a request's array means that, and which arrays list, is in
`protocol/shapes.yaml` (`all`, `lists`).

Merges of a broker's partial response: the broker gets all or part of a request, and some entities fail.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from operator import gt, ne
from typing import Any

from kproxy.base.cooperative import yield_point, yielding
from kproxy.protocol import Message
from kproxy.protocol.table.shapes import Level, Shape, shape
from kproxy.rules.entity import Entity, make

from .error_responses import Failure, Failures, Handle, Node, element, handles_of, top_error, tree, weave

Visible = Callable[[Entity], bool]


def leave_out(request: Message, response: Message, visible: Visible) -> bool:
    """Remove from `response`, in place, the elements that were not requested by name and are not visible; return True
    if there were any.

    `visible` gets an entity for each innermost element, with the roles of the enclosing levels; `where` is (). An
    element is removed with its last inner element, unless it is a log directory.
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
    """Follow the request down to an array that asks for all; elements named above it stay.

    `asked` are the elements of the request that name the same thing, `said` those of the response. Responses are not
    paired with requests: if one of several requests asks for all, any response may list all.
    """
    level = form.request[depth]
    if any(form.asks_all(one.get(level.array)) for one in asked):
        removed = [swept(form.lists[depth:], one, around, visible) for one in said]
        return any(removed)
    if depth + 1 == len(form.request) or depth + 1 >= len(form.lists):
        return False
    answers = form.lists[depth]
    found: dict[Handle, list[dict[str, Any]]] = defaultdict(list)
    for one in (one for parent in said for one in yielding(parent.get(answers.array) or ())):
        for handle in handles_of(answers, answers.roles(one)):
            found[handle].append(one)
    wanted: dict[Handle, list[tuple[Mapping[str, Any], Mapping[str, Any]]]] = defaultdict(list)
    for entry in (entry for parent in asked for entry in yielding(level.elements(parent))):
        roles = {**around, **level.roles(entry)}
        wanted[handles_of(answers, roles)[0]].append((entry, roles))
    parts = [
        by_request(form, depth + 1, [entry for entry, _ in some], found[handle], some[0][1], visible)
        for handle, some in wanted.items()
        if handle in found
    ]
    return any(parts)


def swept(levels: tuple[Level, ...], parent: dict[str, Any], around: Mapping[str, Any], visible: Visible) -> bool:
    """Remove the elements that are not visible from the array of the first level, and inside of it; return True if
    there were any."""
    level, deeper = levels[0], levels[1:]
    kept, removed = [], False
    for entry in yielding(parent.get(level.array) or ()):
        roles = {**around, **level.roles(entry)}
        if deeper and deeper[0].elements(entry):
            removed |= swept(deeper, entry, roles, visible)
            if deeper[0].elements(entry) or level.keys[0][0] == "dir":
                kept.append(entry)
        elif visible(make(roles, ())):
            kept.append(entry)
        else:
            removed = True
    if removed:
        parent[level.array] = kept
    return removed


SIGNS = {">": gt, "!=": ne}
KEPT = ("throttle_time_ms", "session_id")
"""Fields that keep the broker's values when an error is set at the top: a quota's hint, and the continuing fetch
session."""


def without(request: Message, entities: Iterable[Entity]) -> Message | None:
    """Return the request without these entities, found by their place in it; None when the request would be empty.

    Elements are removed with their last entity; null arrays stay null. A Fetch or ShareFetch in a continuing session
    still asks for the partitions of the session, so it is sent without topics. Unchanged parts are shared with the
    request.
    """
    form = shape(request.api.key, request.version)
    gone = {entity.where for entity in yielding(entities)}
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
    """Return True if the request continues a session, so that it asks for more than it lists."""
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
        for asked in parent.get(array) or ():
            yield_point()
            here, index = (*path, index), index + 1
            if here in gone:
                continue
            if len(levels) > 1 and levels[1].elements(asked):
                rest, inside = pruned(levels[1:], asked, gone, here)
                if inside:
                    kept.append(rest)
                continue
            kept.append(asked)
        if parent.get(array) is not None:
            copy[array] = kept
        left += len(kept)
    return copy, left


def merge(request: Message, response: Message, failures: Failures) -> Message:
    """Return the response to `without(request, failures)` with an element for each failed entity, in the request's
    order.

    `request` is the complete one. In arrays tied by position the broker's elements fill the places that did not fail.
    Entities without an error code at their level are left out; a broker error at the top level replaces the entire
    answer. Returns a new message; the response is not changed.
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
    for child in yielding(root.children):
        if child.failure is not None:
            out.append(element(form, level, {}, child.failure))
        else:
            out += [one for one in (next(answered, None),) if one is not None]
    return {**body, level.array: [*out, *answered]}


def overwrite(request: Message, response: Message, failures: Failures) -> Message:
    """Return the broker's full response with these entities failed, as a broker would send them with that error.

    Entities are found by topic name or id; those that the response lacks (an incremental Fetch) are added. An entity
    with `where` () and a partition is one of the fetch session that the request does not list; any other is the request
    itself. Its error goes to the top, or, if the response has no code there, to all entities of the answer. Entities
    without an error code at their level stay unchanged. Returns a new message; the response is not changed.
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
    """Return the response that a broker sends when a request fails at the top: the code and empty arrays; the throttle
    time stays."""
    form = shape(response.api.key, response.version)
    body = top_error(form, None, failure)
    body |= {name: response.body[name] for name in KEPT if name in body and name in response.body}
    return Message(response.api, response.version, response.header, body, response.trailing)


def replaced(form: Shape, body: dict[str, Any], root: Node) -> dict[str, Any]:
    """Return the body with errors in those elements that are tied to the request's failed ones by their place."""
    level = form.response[0]
    elements = list(body.get(level.array) or ())
    for number, child in yielding(enumerate(root.children)):
        if child.failure is not None and number < len(elements):
            elements[number] = element(form, level, {}, child.failure)
    return {**body, level.array: elements}


def everywhere(form: Shape, depth: int, parent: dict[str, Any], failure: Failure) -> dict[str, Any]:
    """Return a copy of `parent` with every innermost element failed, under its existing keys."""
    level = form.response[depth]
    if depth + 1 < len(form.response):
        out = [everywhere(form, depth + 1, one, failure) for one in yielding(parent.get(level.array) or ())]
    else:
        out = [element(form, level, level.roles(one), failure) for one in yielding(parent.get(level.array) or ())]
    return {**parent, level.array: out}
