"""Responses that a broker would send when a request fails, or some of its entities.

Strategy. Elements that a response has stay in their order, and those that failed are replaced where they stand. An
element that is missing goes in before the first one that the request names later. So a response in the request's order
keeps that order, and one in an order of the broker's own is not shuffled.

Where the code stands when all of a request fails is what Kafka's own `getErrorResponse` does (the `whole` of
`protocol/shapes.yaml`), compared with it in tests/kafka/test_error_answers.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kproxy.protocol import Message
from kproxy.protocol.breath import breathe, each, keep
from kproxy.protocol.elements import Roles, request_elements
from kproxy.protocol.table import layout, schema
from kproxy.protocol.table.api_keys import API_VERSIONS
from kproxy.protocol.table.layout import Slot, Struct
from kproxy.protocol.table.shapes import Level, Shape, shape

from .tree import Failure, Failures, Node, add, handles_of, tree

UNSUPPORTED_VERSION = 35


def fail(request: Message, failure: Failure) -> Message:
    """Return the response to a request that fails as a whole. Also for a Produce with acks 0, which brokers do not
    answer.

    An ApiVersions request that fails with UNSUPPORTED_VERSION is answered in version 0, as KIP-511 has it.
    """
    form = shape(request.api.key, request.version)
    if request.api.key == API_VERSIONS and failure.code == UNSUPPORTED_VERSION:
        return unsupported(request)
    body = top_error(form, request, failure if form.whole in ("top", "both") else None)
    if form.whole != "top":
        fill(form, body, request, failure)
    return response_to(request, body)


def fail_each(request: Message, failures: Failures) -> Message:
    """Return the response to a request of which nothing is left: each entity with its own error, the code not at the
    top.

    An entity that is the request itself fails as `fail` has it.
    """
    form = shape(request.api.key, request.version)
    root = tree(form, request, failures)
    if root.failure is not None:
        return fail(request, root.failure)
    return response_to(request, weave(form, top_error(form, request, None), root))


def response_to(request: Message, body: dict[str, Any], version: int | None = None) -> Message:
    header = {"correlation_id": request.header["correlation_id"]}
    return Message(request.api, request.version if version is None else version, header, body)


def top_error(form: Shape, request: Message | None, failure: Failure | None) -> dict[str, Any]:
    """Return a response's body with nothing in its arrays, and the error at the top if it has a field for one."""
    body = empty(layout.body(form.api.key, form.version, "response"), form.blank)
    for name, asked in form.echo.items():
        if request is not None and name in body:
            body[name] = request.body[asked]
    if failure is not None:
        put(body, form.code, form.text, failure)
    return body


def fill(form: Shape, body: dict[str, Any], request: Message, failure: Failure) -> None:
    """Put an element with this error into `body` for every entity, or for every element of the first level."""
    root = keep(Node())
    for roles, where, _ in request_elements(request):
        add(form, root, outermost(form, roles) if form.whole == "first" else roles, where, failure)
    if form.response:
        body[form.response[0].array] = [built(form, 0, child) for child in each(root.children)]


def outermost(form: Shape, roles: Roles) -> Roles:
    names = [role for role, _ in form.response[0].keys]
    return {role: value for role, value in roles.items() if role in names}


def unsupported(request: Message) -> Message:
    """Return the response of error 35 with the one entry that a client needs to ask again (KIP-511)."""
    known: schema.Versions = request.api.versions
    entry = {"api_key": API_VERSIONS, "min_version": known.first, "max_version": known.last}
    return response_to(request, {"error_code": UNSUPPORTED_VERSION, "api_keys": [entry]}, version=0)


def empty(struct: Struct, blank: Mapping[str, Any]) -> dict[str, Any]:
    """Return a struct of defaults, except for the names in `blank`."""
    breathe()
    slots = struct.all_slots
    return {slot.name: blank[slot.name] if slot.name in blank else slot.default() for slot in slots}


def element(form: Shape, level: Level, roles: Mapping[str, Any], failure: Failure | None) -> dict[str, Any]:
    """Return an element of a response level with these keys, and the error if its level carries one."""
    assert level.struct is not None
    made = empty(level.struct, form.blank)
    for slot in level.struct.slots:
        for role, field in level.keys:
            if field == slot.name and role in roles:
                made[field] = fitted(slot, roles[role])
    if failure is not None:
        put(made, level.code, level.text, failure)
    return made


def put(struct: dict[str, Any], code: str | None, text: str | None, failure: Failure) -> None:
    """Set the error and its text in a struct that has fields for them."""
    if code is not None:
        struct[code] = failure.code
    if text is not None:
        struct[text] = failure.message


def fitted(slot: Slot, value: Any) -> Any:
    """Return a request's key as the response's field takes it: null only where that may be, structs without unknown
    tags."""
    if slot.struct is not None and value:
        return [{inner.name: one[inner.name] for inner in slot.struct.slots} for one in value]
    return slot.default() if value is None and not slot.nullable else value


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
