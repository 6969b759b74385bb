"""The table of kinds."""

from __future__ import annotations

import textwrap

import pytest

from kproxy.rules.document.read import parse_rules
from kproxy.rules.document.reference import rows, sentence
from kproxy.rules.kinds import KINDS
from kproxy.rules.kinds.base.rule import LiveRule
from kproxy.runtime.config.network import ListenerSasl


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_says_what_it_is(kind: str) -> None:
    """It is called what the table calls it, begins with a sentence, and describes each field."""
    model = KINDS[kind]

    assert [row.what for row in rows(model) if row.key == "kind"] == [f"`{kind}`"]
    assert sentence(model).endswith(".")
    assert all(row.text for row in rows(model))
    assert model.directions
    assert model.needs or issubclass(model, LiveRule)


@pytest.mark.parametrize("kind", KINDS)
def test_its_example_is_a_rule_of_this_kind(kind: str) -> None:
    """What `kproxy rules kinds` shows can be pasted below `rules:`."""
    rules = parse_rules("rules:\n" + textwrap.indent(KINDS[kind].example, "  ")).rules

    assert [rule.kind for rule in rules] == [kind]


def test_reference_row_list_default_shows_entries() -> None:
    found = {row.key: row.default for row in rows(ListenerSasl)}

    assert found["mechanisms"] == "[SCRAM-SHA-256, SCRAM-SHA-512]"
    assert found["max_session"] == "0s"
