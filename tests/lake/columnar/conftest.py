"""Rows of bronze and of silver's tables, made of literal lines, without Spark."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest

from kproxy.lake.columnar.columns import TIMESTAMP
from kproxy.lake.columnar.task import LINES, giving
from kproxy.lake.tables import COMMIT_APIS, GROUP_APIS, OFFSET_APIS, READ_APIS, WRITE_APIS
from kproxy.lake.transforms import bronze as kinds
from kproxy.record.events.schema import REQUEST_EVENT, SUMMARY_EVENT

_OF_APIS = {
    REQUEST_EVENT.name: {
        WRITE_APIS: kinds.WRITE,
        READ_APIS: kinds.READ,
        COMMIT_APIS: kinds.COMMIT,
        OFFSET_APIS: kinds.OFFSET,
        GROUP_APIS: kinds.GROUP,
    },
    SUMMARY_EVENT.name: {WRITE_APIS: kinds.SUMMARY_WRITE, READ_APIS: kinds.SUMMARY_READ},
}


def kind_of(event: dict[str, Any]) -> str:
    """As bronze sorts it (transforms/bronze.py), said in Python."""
    name, data = event["type"], event["data"]
    if name == SUMMARY_EVENT.name and not {"topic", "topic_id"} & data.keys():
        return kinds.SUMMARY
    of_apis = _OF_APIS.get(name, {})
    found = [kind for apis, kind in of_apis.items() if data.get("api") in apis]
    return found[0] if found else name.split(".")[1]


def bronze(*lines: str) -> pa.RecordBatch:
    """Rows of bronze, with the columns that a task is given."""
    events = [json.loads(line) for line in lines]
    columns = {
        "line": pa.array(lines, pa.string()),
        "source": pa.array([event["source"] for event in events], pa.string()),
        "event_id": pa.array([int(event["id"]) for event in events], pa.int64()),
        "time": pa.array([datetime.fromisoformat(event["time"]) for event in events], TIMESTAMP),
        "kind": pa.array([kind_of(event) for event in events], pa.string()),
    }
    return pa.RecordBatch.from_arrays([columns[name] for name in LINES], names=LINES)


@pytest.fixture
def batch() -> Callable[..., pa.RecordBatch]:
    """batch(line, …): rows of bronze."""
    return bronze


@pytest.fixture
def rows() -> Callable[..., list[dict[str, Any]]]:
    """rows("requests", line, …): the rows of a table, with dt, that are made of lines; of all tables the same lines."""

    def made(name: str, *lines: str) -> list[dict[str, Any]]:
        return [row for part in giving(name)([bronze(*lines)]) for row in part.to_pylist()]

    return made
