"""Many rules: those that name other things are not asked, and nothing else changes by that."""

from __future__ import annotations

import json
from typing import Any, get_args
from uuid import UUID

import pytest

from kproxy.rules.entity import Entity
from kproxy.rules.exchange import Facts, FrameDepth
from kproxy.rules.kinds import KINDS
from kproxy.rules.kinds.base.rule import LiveRule
from kproxy.rules.select.match import PatternSet
from kproxy.session.compiled_rule import HOLDS, LONGEST_TEXT, MATCHES, CompiledRule, FieldIndex, RuleIndex, RuleMatcher
from kproxy.tools.rehearse.dialogue import Dialogue


def rule(number: int, **match: Any) -> dict[str, Any]:
    return {"name": f"rule {number}", "kind": "error", "match": match, "error": 29}


RULES = [
    rule(0, api="Produce", topic="orders"),
    rule(1, api="Produce", topic="or*"),
    rule(2, api="Produce", topic=["clicks", "orders"], partition=1),
    rule(3, api="Produce", client_id="tester"),
    rule(4, api="Produce", topic="clicks", client_id="tester"),
    rule(5, api="Produce"),
]


class Asked:
    """The part of an exchange that the index looks at."""

    client_id, principal = "tester", None


def indexed(rules: list[dict[str, Any]]) -> RuleIndex:
    live = Dialogue(json.dumps({"rules": rules})).rules.bind(Facts("", "", "")).live
    return RuleIndex(
        [CompiledRule(one, RuleMatcher(one.rule, 0, 9), FrameDepth.BODY, FrameDepth.NOTHING) for one in live]
    )


def candidates(index: RuleIndex, *entities: Entity) -> list[str]:
    """Names of the rules that can be about a request with these entities."""
    groups = {number for entity in entities for number in index.about(entity)}
    return [index.parts[number].running.name for number in index.candidates(Asked(), groups)]


@pytest.mark.parametrize(
    ("topics", "expected"),
    [
        (["orders"], [0, 1, 3, 5]),
        (["clicks"], [3, 4, 5]),
        (["other"], [3, 5]),
        (["clicks", "orders"], [0, 1, 3, 4, 5]),
        ([None], [3, 5]),
    ],
)
def test_rules_are_found_by_what_they_name(topics: list[str | None], expected: list[int]) -> None:
    """In file order; rules without names are always asked, globs where they hold."""
    assert candidates(indexed(RULES), *(Entity(topic=topic, partition=0) for topic in topics)) == [
        f"rule {number}" for number in expected
    ]


def test_a_thousand_rules_for_other_topics_are_not_asked() -> None:
    """Only those for this topic are candidates."""
    index = indexed([rule(number, api="Produce", topic=f"topic-{number}") for number in range(1000)])
    assert candidates(index, Entity(topic="topic-7")) == ["rule 7"]


def test_patterns_are_tried_once_for_each_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """What they said is remembered, up to a number of names, and for names that are not far too long."""
    tried: list[str] = []
    matching = PatternSet.matching
    monkeypatch.setattr(PatternSet, "matching", lambda self, text: tried.append(text) or matching(self, text))
    field = FieldIndex()
    field.add(7, indexed(RULES).parts[1].running.rule, ["o*", "orders"])
    for _ in range(3):
        assert field.about("orders") == {7}
    assert tried == ["orders"]
    for _ in range(2):
        assert field.about("o" * (LONGEST_TEXT + 1)) == {7}
    assert len(tried) == 3


def test_rules_for_what_a_request_lacks_are_found() -> None:
    """A denied topic may be the one whose id nobody has named, and a commit may be listed by an answer only."""
    denied = {"name": "denied", "kind": "deny", "match": {"topic": "orders"}}
    index = indexed([denied, rule(1, api="Produce", topic="orders")])
    assert candidates(index, Entity(topic_id=UUID(int=7))) == ["denied"]
    assert not candidates(index, Entity(topic="clicks"))


def test_every_kind_matches_in_a_way_that_the_index_knows() -> None:
    """A kind that decides in another way what it is about stays outside of the index, and this is to be noticed."""
    kinds = [kind for kind in KINDS.values() if issubclass(kind, LiveRule)]
    assert len(kinds) > 30
    for kind in kinds:
        assert kind.holds_for in HOLDS, kind
        (match,) = (one for one in get_args(kind.model_fields["match"].annotation) if one is not type(None))
        assert match.holds_entity in MATCHES, kind
