"""Whatever is in a file of tests: mistakes with places, or a result; never anything else."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kproxy.base.errors import DocumentError
from kproxy.protocol import apis
from kproxy.protocol.table import layout
from kproxy.protocol.table.layout import Slot, Struct
from kproxy.protocol.table.schema import Api
from kproxy.tools.rehearse.cases.document import load_cases
from kproxy.tools.rehearse.cases.model import CaseStep, ExpectedFrame, SentRequest
from kproxy.tools.rehearse.cases.play import CaseFailure, play
from tests.support.random_values import random_struct

RULES = "rules: [{name: r, kind: delay, delay: 1s, match: {api: Produce}}]"
APIS = st.sampled_from(["Produce", "Fetch", "Metadata", "JoinGroup", "FindCoordinator", "Prodce"])
FIELDS = st.sampled_from(["topics", "topic_data", "name", "partitions", "acks", "records", "key", "group_id", "hex",
                          "batch", "error_code", "_tagged_fields", "x"])  # fmt: skip
WORDS = st.sampled_from(["untouched", "nothing", "1s", ">3", "NOT_COORDINATOR", "00ff", "r"])
NUMBERS = st.integers(-(2**40), 2**40) | st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.none() | st.booleans() | NUMBERS | st.text(max_size=5) | WORDS
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(FIELDS, inner, max_size=3), max_leaves=8
)
REQUESTS = st.fixed_dictionaries({"api": APIS}, optional={"version": st.integers(0, 14), "body": VALUES}) | VALUES
FRAMES = st.dictionaries(st.sampled_from(ExpectedFrame.keys()), VALUES, max_size=3) | VALUES
STEPS = st.dictionaries(st.sampled_from(CaseStep.keys()), VALUES, max_size=3) | st.fixed_dictionaries(
    {"client": REQUESTS | st.lists(REQUESTS, max_size=2)},
    optional={"to_broker": FRAMES, "broker": st.fixed_dictionaries({"body": VALUES}) | VALUES, "to_client": FRAMES},
)


@settings(max_examples=150, deadline=None)
@given(st.lists(STEPS, max_size=3), st.dictionaries(st.sampled_from(["seed", "topics", "connection"]), VALUES))
def test_any_steps_are_refused_or_played(steps: list[Any], more: dict[str, Any]) -> None:
    """Nothing but a DocumentError is raised, each of its mistakes has a place, and so has each failure."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "r.test.yaml"
        file.with_name("r.yaml").write_text(RULES)
        file.write_text(json.dumps({"tests": [{"name": "t", "steps": steps, **more}]}, allow_nan=False, default=str))
        mistakes, failures = result(file)
        assert all(line.startswith(f"{folder}/r") and line.split(":")[1].isdigit() for line in mistakes)
        assert all(one.position.startswith(str(file)) and "went wrong" not in one.what for one in failures)


def result(file: Path) -> tuple[list[str], list[CaseFailure]]:
    """Mistakes, or what is wrong with what was played."""
    try:
        return [], [failure for case in load_cases(file) for failure in play(case)]
    except DocumentError as error:
        return error.mistakes or ["none"], []


def test_requests_are_sent_by_those_keys() -> None:
    """So that the test above is about what it seems to be about."""
    assert {"api", "version", "body"} <= set(SentRequest.keys())


def written(of: Struct, value: dict[str, Any]) -> dict[str, Any]:
    """A body as a test would have it: nulls only where they may be, and what YAML can say."""
    found = {}
    for slot in of.all_slots:
        inner = value[slot.name]
        if inner is None:
            inner = None if slot.nullable else slot.default()
        if slot.array and inner is not None:
            found[slot.name] = [one(slot, "" if each is None else each) for each in inner]
        else:
            found[slot.name] = None if inner is None else one(slot, inner)
    if "_tagged_fields" in value:
        found["_tagged_fields"] = [[tag, {"hex": data.hex()}] for tag, data in value["_tagged_fields"]]
    return found


def one(slot: Slot, value: Any) -> Any:
    if slot.struct is not None:
        return written(slot.struct, value)
    match value:
        case bytes():
            return {"hex": value.hex()}
        case UUID():
            return str(value)
        case float():
            return 1.5
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


@pytest.mark.parametrize("api", [api for api in apis() if api.versions], ids=str)
def test_what_is_sent_is_what_is_expected(api: Api, tmp_path: Path) -> None:
    """For each API, random values of all kinds: as a body of the client, as one of the broker, and as they come out."""
    random = Random(api.key)
    version = api.versions.last
    structs = [layout.body(api.key, version, way) for way in ("request", "response")]
    asked, said = (written(struct, random_struct(struct, random)) for struct in structs)
    if api.name == "Produce":
        asked["acks"] = -1
    step = {
        "client": {"api": api.name, "version": version, "body": asked},
        "to_broker": [{"exactly": asked}],
        "broker": {"body": said},
        "to_client": [{"exactly": said}],
    }
    (tmp_path / "r.yaml").write_text("rules: []")
    case = {"name": "t", "connection": {"advertise": False}, "steps": [step]}
    (tmp_path / "r.test.yaml").write_text(json.dumps({"tests": [case]}))

    assert result(tmp_path / "r.test.yaml") == ([], [])
