"""Events whose values are not of their columns' types."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from kproxy.cli import main
from kproxy.cli.exchange_input import judge
from kproxy.record.events.schema import REQUEST_EVENT
from tests.support.exchange_factory import conversation, event_lines

WRONG: list[dict[str, Any]] = [
    {"latency_ms": "3"}, {"request_in": 17}, {"topics": "orders"}, {"topics": [None]}, {"errors": [{}]},
    {"request_bytes": [1]}, {"topics": [{"partitions": [{"records": "3"}]}]}, {"connection": {}},
]  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG, ids=json.dumps)
@pytest.mark.parametrize("command", ["stats", "tail", "tail -o wide"])
def test_a_line_with_a_wrong_value_is_counted_as_one_that_cannot_be_read(
    tmp_path: Path, command: str, wrong: dict[str, Any]
) -> None:
    """The others are told; standard error says where the first bad one is."""
    lines = [json.loads(line) for line in event_lines(conversation()).splitlines()]
    lines[3]["data"] |= wrong
    file = tmp_path / "events.ndjson"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    ran = CliRunner().invoke(main, [*command.split(), str(file)])

    assert (ran.exit_code, ran.stderr) == (0, f"kproxy: 1 line could not be read, first {file}:4\n")
    assert ran.stdout.startswith("5 exchanges") if command == "stats" else len(ran.stdout.splitlines()) == 5


def test_what_is_newer_passes() -> None:
    """Columns and types that are not known here are no mistake, nor are numbers without a fraction or absent values."""
    judge(REQUEST_EVENT.name, {"of_tomorrow": {"a": 1}, "latency_ms": 3, "topics": [{"next": 1, "partitions": None}]})
    judge("kproxy.tomorrow.v1", {"api": 3})
    with pytest.raises(msgspec.ValidationError, match=r"\$\.topics\[0\]\.topic"):
        judge(REQUEST_EVENT.name, {"topics": [{"topic": 3}]})
