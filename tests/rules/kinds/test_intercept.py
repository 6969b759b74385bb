"""intercept: what may be written, and what is said of it."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.rules.document.read import parse_rules


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('filter: "~k prodduce"', 'unknown API "prodduce", did you mean "Produce"?'),
        ("hold_for: 50ms", "expected at least 0.1 s"),
        ("hold_for: 11m", "expected at most 600 s"),
        ("on_timeout: fly", "fly"),
        ("on_timeout: {error: NOPE}", "NOPE"),
        ("on_timeout: {error: 0}", "expected an error code, got 0"),
        ("max_frames: 0", "expected at least 1, got 0"),
        ("at: broker", "broker"),
    ],
)
def test_what_is_no_such_rule_is_refused(mistakes_of: Any, text: str, told: str) -> None:
    """With the place in a filter."""
    found = mistakes_of(f"kind: intercept, {text}")
    assert len(found) == 1, found
    assert told in found[0]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("filter: '~e NOT_LEADER'", ["error is not known when the request comes, write at: response"]),
        ("filter: 'latency > 1s', at: response", []),
        ("match: {acks: 0}, at: both", ["a Produce request with acks=0 has no response, this rule never holds one"]),
        ("match: {api: Produce}, on_timeout: {error: REQUEST_TIMED_OUT}", []),
    ],
)
def test_what_it_will_not_do_is_said(text: str, told: list[str]) -> None:
    """When it loads, and by `kproxy check`."""
    rules = parse_rules(f"rules:\n  - {{name: hold, kind: intercept, {text}}}\n")
    assert list(rules.live[0].rule.warnings()) == told
