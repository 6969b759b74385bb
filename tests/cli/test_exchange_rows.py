"""Rows of exchanges: what stands in their cells, and how people see them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from kproxy.cli.tail import TABLE, WIDE, colour, fitted, milliseconds, size
from kproxy.record.filters import topics
from tests.support.exchange_factory import conversation, write_capture
from tests.support.terminal_output import on_a_terminal

pytestmark = pytest.mark.process


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"topics": [{"topic": "a", "partitions": [{"partition": 0}, {"partition": 3}]}, {"topic": "b"}]}, "a[0,3] b"),
        ({"topics": [{"topic_id": "7f3a"}], "omitted_topics": 3}, "7f3a …"), ({"topics": [{}]}, "?"),
        ({"group": "g"}, "group:g"), ({"resources": [{"type": "user", "name": "bob"}]}, "user:bob"), ({}, ""),
    ],
)  # fmt: skip
def test_what_it_was_about(data: dict[str, Any], expected: str) -> None:
    """Topics with partitions, else the group, else whatever there is."""
    assert topics(data) == expected


def test_short_numbers() -> None:
    """A few characters say enough."""
    assert [milliseconds(value) for value in (None, 0.214, 12.4, 999, 2500)] == [
        None,
        "0.21ms",
        "12ms",
        "999ms",
        "2.50s",
    ]
    assert [size(value) for value in (None, 80, 1234, 3_000_000, 2 * 10**9)] == [None, "80", "1.2k", "3.0M", "2.0G"]


def test_cells_fit_their_width() -> None:
    """An ellipsis says that something is left out; numbers stand at the right."""
    assert [fitted("abc", 5), fitted("abc", -5), fitted("abcdef", 4), fitted("abc", 0)] == [
        "abc  ",
        "  abc",
        "abc…",
        "abc",
    ]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"outcome": "answered"}, None), ({"error": "X"}, "red"), ({"errors": ["X"]}, "red"),
        ({"responder": "kproxy", "error": "X"}, "cyan"), ({"outcome": "unanswered"}, "yellow"),
        ({"outcome": "closed"}, "yellow"), ({"decode_error": "why"}, "magenta"), ({"outcome": "no_answer_due"}, None),
    ],
)  # fmt: skip
def test_colours_say_what_became_of_it(data: dict[str, Any], expected: str | None) -> None:
    """Waiting, failed, answered by kproxy, not read."""
    assert colour(data) == expected


def test_every_cell_takes_an_event_that_says_nothing() -> None:
    """All columns may be absent."""
    for cell in (*TABLE, *WIDE):
        cell.read({})


def test_on_a_terminal(tmp_path: Path) -> None:
    """A head, columns below each other, and colours."""
    write_capture(tmp_path / "a.pcapng", conversation())
    shown = on_a_terminal(["tail", "a.pcapng"], tmp_path, NO_COLOR="")
    head, _, _, failed, *_ = (re.sub(r"\x1b\[[0-9;]*m", "", line) for line in shown.splitlines())

    assert head.startswith("     # time          conn client           node      api                    topics")
    assert failed.startswith("     3 12:00:03.000     3 etl              1         Produce v8             orders[0]")
    assert failed.index("NOT_LEADER") == head.index("error")
    assert "\x1b[31m" in shown
