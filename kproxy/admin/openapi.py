"""OpenAPI 3.1, made from the table of operations and the models of what they take and give."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from kproxy.distribution import own_version
from kproxy.rules.json_schema import document_schema

from .guard import JSON, YAML
from .models import FailureShown
from .operation import Operation
from .problem import CODES

SCHEMAS = "#/components/schemas/{model}"
ALWAYS = ("unauthorized", "foreign_host", "foreign_origin", "invalid_query", "internal")
"""Codes that any operation may answer with."""

DESCRIPTION = """\
Rules and connections of a running kproxy. Every refusal has the same form; `error.code` is stable.

On loopback no token is needed, and the Host header must name this machine. POST and PUT need a Content-Type of
`application/json`, with a body or without; documents of rules may also be `application/yaml`.
"""


def describe(operations: Sequence[Operation]) -> dict[str, Any]:
    """Return the document that describes these operations."""
    answers: list[type[BaseModel]] = list(dict.fromkeys([FailureShown, *(one.answer for one in operations)]))
    _, shown = models_json_schema([(model, "serialization") for model in answers], ref_template=SCHEMAS)
    document, rules = document_schema(SCHEMAS)
    paths: dict[str, Any] = {}
    for one in operations:
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(one)
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


def _operation(one: Operation) -> dict[str, Any]:
    """Describe one operation; the path's own parameters are the words in braces."""
    inside = [part[1:-1] for part in one.path.split("/") if part.startswith("{")]
    found: dict[str, Any] = {
        "operationId": one.name,
        "summary": one.summary,
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in inside
        ] + list(_query(one.query)),
        "responses": {str(one.status): _answer(one)} | _refusals(one),
    }  # fmt: skip
    if one.body is not None:
        schema = {"$ref": SCHEMAS.format(model="Rule" if one.body == "rule" else "Document")}
        found["requestBody"] = {"required": True, "content": {kind: {"schema": schema} for kind in (JSON, YAML)}}
    return found


def _answer(one: Operation) -> dict[str, Any]:
    schema = {"$ref": SCHEMAS.format(model=one.answer.__name__)}
    return {"description": one.answer.__doc__, "content": {one.media: {"schema": schema}}}


def _refusals(one: Operation) -> dict[str, Any]:
    """Describe the refusals by status; several codes of one status share a description."""
    writes = ("unsupported_media_type", "too_slow", "too_many_bodies") if one.method in ("POST", "PUT") else ()
    wanted = {*ALWAYS, *one.refusals, *writes}
    failure = {"schema": {"$ref": SCHEMAS.format(model=FailureShown.__name__)}}
    found = {}
    for status, codes in CODES.items():
        words = [f"`{code}`: {text}" for code, text in codes.items() if code in wanted]
        if words:
            found[str(status)] = {"description": "; ".join(words), "content": {JSON: failure}}
    return found


def _query(model: type[BaseModel]) -> Iterable[dict[str, Any]]:
    schema = model.model_json_schema()
    for name, field in schema.get("properties", {}).items():
        field.pop("title", None)
        text = field.pop("description", "")
        yield {"name": name, "in": "query", "required": name in schema.get("required", ()), "description": text,
               "schema": field}  # fmt: skip
