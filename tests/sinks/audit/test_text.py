"""Texts and times of events."""

from __future__ import annotations

import pytest

from kproxy.sinks.audit.text import LONGEST, milliseconds, plain, stamp


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, None),
        ("", None),
        ("orders", "orders"),
        ("größe", "größe"),
        ("a\udcffb", "a?b"),
        ("x" * LONGEST, "x" * LONGEST),
        ("x" * (LONGEST + 1), "x" * (LONGEST - 1) + "…"),
    ],
)
def test_texts(text: str | None, expected: str | None) -> None:
    """JSON can hold what comes out, and it is no longer than the limit."""
    assert plain(text) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0.0, "1970-01-01T00:00:00.000000Z"),
        (1795255200.0000004, "2026-11-21T10:00:00.000000Z"),
        (1795255200.9999996, "2026-11-21T10:00:01.000000Z"),
        (1795255200.123456, "2026-11-21T10:00:00.123456Z"),
        (-0.5, "1969-12-31T23:59:59.500000Z"),
        (1e13, "9999-12-31T23:59:59.000000Z"),
        (-1e13, "1000-01-01T00:00:00.000000Z"),
    ],
)
def test_times(seconds: float, expected: str) -> None:
    """Rounded to a microsecond, also across the end of a second; of damaged captures the nearest that can be."""
    assert stamp(seconds) == expected


def test_durations() -> None:
    """To the microsecond, and never below zero."""
    assert milliseconds(0.0123456) == 12.346
    assert milliseconds(-0.001) == 0.0
