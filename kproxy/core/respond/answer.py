"""The response that a broker would send when a request fails.

Where the code stands when all of a request fails is what Kafka's own `getErrorResponse` does (the `whole` of
`wire/shapes.yaml`), compared with it in tests/kafka/test_error_answers.py.
"""

from __future__ import annotations

from typing import Any

from kproxy.wire import Message
from kproxy.wire.breath import each, keep
from kproxy.wire.elements import Roles, request_elements
from kproxy.wire.table import layout, schema
from kproxy.wire.table.api_keys import API_VERSIONS
from kproxy.wire.table.shapes import Shape, shape

from .element import empty, put
from .failure import Failure
from .tree import Failures, Node, add, tree
from .weave import built, weave

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
    """Return a response with the request's correlation id."""
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
