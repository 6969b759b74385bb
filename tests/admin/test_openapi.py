"""The description of the API is right, whole, and about what is there."""

from __future__ import annotations

import inspect
import json
import threading
from typing import Any

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator
from starlette.routing import Route

from kproxy.admin.api import DESCRIPTION, OPERATIONS, description, written_description
from kproxy.admin.problem import CODES
from kproxy.rules.kinds import KINDS

OPEN = {"/livez", "/readyz", "/readyz/{cluster}", "/metrics", DESCRIPTION, "/view", "/view/{file:path}"}


def test_it_is_valid_openapi() -> None:
    """By the rules of OpenAPI 3.1."""
    OpenAPIV31SpecValidator(json.loads(json.dumps(description()))).validate()


def test_every_route_is_described(api: Any) -> None:
    """With each of its methods, and nothing more is."""
    routes = {
        (route.path, method.lower())
        for route in api.app.router.routes
        if isinstance(route, Route) and route.path not in OPEN
        for method in (route.methods or set()) - {"HEAD"}
    }
    described = {(path, method) for path, methods in description()["paths"].items() for method in methods}

    assert routes == described
    assert len({one.name for one in OPERATIONS}) == len(OPERATIONS)


def test_every_reference_leads_somewhere() -> None:
    """And every kind of rule is among the bodies."""
    document = description()
    schemas = document["components"]["schemas"]
    text = json.dumps(document)
    wanted = {part.split('"')[0] for part in text.split('"#/components/schemas/')[1:]}

    assert wanted <= schemas.keys()
    assert set(schemas["Rule"]["discriminator"]["mapping"]) == set(KINDS)
    assert "#/$defs" not in text


@pytest.mark.trio
async def test_openapi_document_is_made_once_in_a_thread(api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Making it takes a second."""
    made_by = []

    def make() -> dict[str, str]:
        made_by.append(threading.current_thread())
        return {"openapi": "3.1.0"}

    monkeypatch.setattr("kproxy.admin.api.description", make)
    written_description.cache_clear()
    for _ in range(2):
        answer = await api("GET", DESCRIPTION)
        assert answer.json["openapi"] == "3.1.0"
        assert answer.headers["content-type"] == "application/json"
    written_description.cache_clear()
    assert len(made_by) == 1
    assert made_by[0] is not threading.main_thread()


def test_every_code_is_one_of_the_table() -> None:
    """What an operation says that it may refuse with."""
    known = {code for codes in CODES.values() for code in codes}
    assert {code for one in OPERATIONS for code in one.refusals} <= known


def test_operations_with_long_responses_list_their_refusal() -> None:
    """The limit is checked before the operation, if the table has the code."""
    annotations = {one.name: inspect.signature(one.handle).return_annotation for one in OPERATIONS}
    long = {name for name, annotation in annotations.items() if annotation in ("LongResponse", "CountedResponse")}

    assert {"list_rules", "get_config", "list_held", "get_frame"} <= long
    assert {one.name for one in OPERATIONS if "too_many_answers" in one.refusals} == long
