"""Rules that limit versions, and leave nothing together."""

from __future__ import annotations

import pytest

from kproxy.base.errors import DocumentError
from kproxy.rules.document.read import parse_rules

FIRST = "  - {name: a, kind: limit_versions, apis: {Fetch: 0-5, Metadata: 9}}\n"


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ("apis: {Fetch: '>=6'}", 'f:3:51: nothing is left of Fetch: the rule "a" allows 0-5'),
        ("apis: {3: 0-8}, match: {sni: x}", 'f:3:47: nothing is left of 3: the rule "a" allows 9'),
        ("apis: {Met*data: 0-8}", 'f:3:54: nothing is left of Met*data: the rule "a" allows 9'),
        ("apis: {'³': 0-8}", 'f:3:44: unknown API "³", "kproxy protocol" lists all 102'),
    ],
)
def test_two_rules_that_leave_nothing(second: str, message: str) -> None:
    """It is said at the later rule, with the name of the earlier one."""
    with pytest.raises(DocumentError) as caught:
        parse_rules(f"rules:\n{FIRST}  - {{name: b, kind: limit_versions, {second}}}", file="f")

    assert str(caught.value) == message


@pytest.mark.parametrize("second", ["apis: {Fetch: 5-11}", "hide: Fetch", 'kafka: "2.8"', "apis: {Produce: 0-9}"])
def test_rules_that_leave_something_or_hide_it(second: str) -> None:
    """Ranges that overlap, and what is hidden on purpose."""
    parse_rules(f"rules:\n{FIRST}  - {{name: b, kind: limit_versions, {second}}}")


def test_rules_for_different_connections() -> None:
    """They never meet."""
    rule = "  - {{name: {0}, kind: limit_versions, match: {{listener: {0}}}, apis: {{Fetch: {1}}}}}\n"

    parse_rules("rules:\n" + rule.format("a", 3) + rule.format("b", 4))
