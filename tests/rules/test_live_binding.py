"""Which live rules a connection has to do with, beside what it is bound to."""

from __future__ import annotations

import pytest

from kproxy.rules.document.read import parse_rules
from kproxy.rules.exchange import Facts

pytestmark = pytest.mark.usefixtures("tiny")
TEXT = """
rules:
  - {name: all, kind: tiny}
  - {name: names, kind: rename_topic, topics: {a: b}, match: {listener: inside}}
  - {name: of frames, kind: tiny, match: {topic: orders}, not: {api: Fetch, listener: inside}}
  - {name: inside, kind: tiny, match: {listener: inside, client_id: x}}
  - {name: not inside, kind: tiny, not: {listener: inside}}
  - {name: one node, kind: tiny, match: {node: 2-3}}
"""


def live(facts: Facts) -> list[str]:
    return [running.name for running in parse_rules(TEXT).bind(facts).live]


def test_selectors_of_the_connection_decide() -> None:
    """Those of frames decide later, frame by frame; `not` excludes a connection only by what is known of it alone."""
    inside, outside = Facts("inside", "c", "::1"), Facts("outside", "c", "::1", node=3)

    assert live(inside) == ["all", "of frames", "inside"]
    assert live(outside) == ["all", "of frames", "not inside", "one node"]
    assert live(Facts("outside", "c", "::1", node=1)) == ["all", "of frames", "not inside"]


def test_the_key_is_about_what_is_bound() -> None:
    """Live rules do not make a connection outdated; other names do."""
    inside, outside = Facts("inside", "c", "::1"), Facts("outside", "c", "::1")
    rules, others = parse_rules(TEXT), parse_rules(TEXT.replace("name: all, kind: tiny", "name: all, kind: tiny_quota"))
    renamed = parse_rules(TEXT.replace("{a: b}", "{a: c}"))

    assert rules.bind(inside).rules == ("names",)
    assert rules.bind(inside).key == others.bind(inside).key != renamed.bind(inside).key
    assert rules.bind(outside).key == renamed.bind(outside).key == ""
    assert rules.id != others.id


def test_one_set_has_each_live_rule_once() -> None:
    """Every connection counts in the same object."""
    rules = parse_rules(TEXT)
    one, two = rules.bind(Facts("inside", "c", "::1")), rules.bind(Facts("outside", "c", "::1"))

    assert one.live[0] is two.live[0] is rules.live[0]
    assert [running.name for running in rules.live] == ["all", "of frames", "inside", "not inside", "one node"]
