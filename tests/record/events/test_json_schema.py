"""The JSON Schemas are those of the declarations, and hold for lines."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from jsonschema import Draft202012Validator, ValidationError

from kproxy.record.events.schema import BY_NAME, EVENT_TYPES, REQUEST_EVENT, json_schema

DOCS = Path(__file__).parents[3] / "docs"


def tables() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tables", DOCS / "tables.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def line(**data: Any) -> dict[str, Any]:
    envelope = {
        "specversion": "1.0", "id": "17", "source": "host/5b0c/0", "type": "kproxy.request.v1",
        "time": "2026-11-21T10:11:12.123456Z", "datacontenttype": "application/json",
    }  # fmt: skip
    return {**envelope, "data": data}


def check(one: dict[str, Any]) -> None:
    Draft202012Validator(json_schema(BY_NAME[one["type"]])).validate(one)


@pytest.mark.parametrize("one", EVENT_TYPES, ids=lambda one: one.short)
def test_schemas_are_schemas(one: Any) -> None:
    """Each follows the dialect that it names."""
    Draft202012Validator.check_schema(json_schema(one))


def test_committed_schemas_are_current() -> None:
    """`python docs/tables.py` would change nothing."""
    expected = tables().schemas()
    assert {file: file.read_text() for file in (DOCS / "events").iterdir()} == expected


def test_good_lines() -> None:
    """Whatever is left out is fine, and so is a column that a newer kproxy has."""
    check(line())
    check(line(connection=1, topics=[{"topic": "a", "partitions": [{"partition": 3, "news": "x"}]}], news=[1]))


@pytest.mark.parametrize(
    "bad",
    [
        line() | {"type": "kproxy.summary.v1"},
        line() | {"specversion": "2.0"},
        line() | {"id": 17},
        {name: value for name, value in line().items() if name != "source"},
        {name: value for name, value in line().items() if name != "data"},
        line(connection="x"),
        line(version=1 << 31),
        line(request_in="yesterday"),
        line(topics={"topic": "a"}),
        line(topics=[{"partitions": [{"partition": "x"}]}]),
    ],
)
def test_bad_lines(bad: dict[str, Any]) -> None:
    """Another type, a version of CloudEvents, a missing or wrong part of the envelope, a wrong value at any depth."""
    with pytest.raises(ValidationError):
        Draft202012Validator(json_schema(REQUEST_EVENT)).validate(bad)


def test_words_are_in_the_schema() -> None:
    """Meaning, unit and the version of kproxy stand at each column."""
    found = json.loads((DOCS / "events" / "request.schema.json").read_text())["properties"]["data"]["properties"]
    assert found["latency_ms"] == {
        "type": "number",
        "description": "request_in to response_out",
        "x-unit": "ms",
        "x-since": "0.1",
    }
