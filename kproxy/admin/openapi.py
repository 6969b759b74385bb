"""OpenAPI 3.1, made from the table of operations and the models of what they take and give."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from kproxy.base.distribution import own_version
from kproxy.rules.document.reference import document_schema

from .guard import BYTES, JSON, YAML
from .models import FailureShown
from .operation import Operation
from .problem import CODES

SCHEMAS = "#/components/schemas/{model}"
ALWAYS = ("unauthorized", "foreign_host", "foreign_origin", "foreign_site", "invalid_query", "internal")
"""Codes that any operation may answer with."""

DESCRIPTION = """\
Rules and connections of a running kproxy. Every refusal has the same form; `error.code` is stable.

On loopback no token is needed, and the Host header must name this machine. POST and PUT need a Content-Type of
`application/json`, with a body or without; documents of rules may also be `application/yaml`, and captures are
`application/octet-stream`.

With the token for reading all is refused that changes something (403 `read_only`). What changes something is logged,
with the address it came from, and with the name in the header `Kproxy-Who` where that is sent.
"""


def describe(operations: Sequence[Operation]) -> dict[str, Any]:
    """Return the document that describes these operations."""
    answers: list[type[BaseModel]] = list(
        dict.fromkeys([FailureShown, *(operation.answer for operation in operations)])
    )
    bodies = dict.fromkeys(one.body for one in operations if isinstance(one.body, type))
    models: list[tuple[type[BaseModel], Literal["validation", "serialization"]]] = [
        *((model, "serialization") for model in answers), *((model, "validation") for model in bodies)
    ]  # fmt: skip
    _, shown = models_json_schema(models, ref_template=SCHEMAS)
    document, rules = document_schema(SCHEMAS)
    paths: dict[str, Any] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {"title": "kproxy admin API", "version": own_version(), "description": DESCRIPTION,
                 "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"}},
        "servers": [{"url": "/"}],
        "security": [{}, {"token": []}],
        "paths": paths,
        "components": {
            "schemas": {**shown["$defs"], **rules, "Document": document},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }  # fmt: skip


def _operation(operation: Operation) -> dict[str, Any]:
    """Describe one operation; the path's own parameters are the words in braces."""
    inside = [part[1:-1] for part in operation.path.split("/") if part.startswith("{")]
    description: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in inside
        ] + list(_query(operation.query)),
        "responses": {str(operation.status): _answer(operation)} | _refusals(operation),
    }  # fmt: skip
    if operation.body == "bytes":
        content = {BYTES: {"schema": {"type": "string", "format": "binary"}}}
        description["requestBody"] = {"required": True, "content": content}
    elif isinstance(operation.body, type):
        schema = {"$ref": SCHEMAS.format(model=operation.body.__name__)}
        description["requestBody"] = {"required": True, "content": {JSON: {"schema": schema}}}
    elif operation.body is not None:
        schema = {"$ref": SCHEMAS.format(model="Rule" if operation.body == "rule" else "Document")}
        description["requestBody"] = {"required": True, "content": {kind: {"schema": schema} for kind in (JSON, YAML)}}
    return description


def _answer(operation: Operation) -> dict[str, Any]:
    schema = {"$ref": SCHEMAS.format(model=operation.answer.__name__)}
    return {"description": operation.answer.__doc__, "content": {operation.media: {"schema": schema}}}


def _refusals(operation: Operation) -> dict[str, Any]:
    """Describe the refusals by status; several codes of one status share a description."""
    sent = ("unsupported_media_type", "too_slow", "too_many_bodies") if operation.method in ("POST", "PUT") else ()
    wanted = {*ALWAYS, *operation.refusals, *sent, *(("read_only",) if operation.writes else ())}
    failure = {"schema": {"$ref": SCHEMAS.format(model=FailureShown.__name__)}}
    by_status = {}
    for status, codes in CODES.items():
        words = [f"`{code}`: {text}" for code, text in codes.items() if code in wanted]
        if words:
            by_status[str(status)] = {"description": "; ".join(words), "content": {JSON: failure}}
    return by_status


def _query(model: type[BaseModel]) -> Iterable[dict[str, Any]]:
    schema = model.model_json_schema()
    for name, field in schema.get("properties", {}).items():
        field.pop("title", None)
        text = field.pop("description", "")
        yield {"name": name, "in": "query", "required": name in schema.get("required", ()), "description": text,
               "schema": field}  # fmt: skip
