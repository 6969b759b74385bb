"""Many rules: those that name other things are not asked, and nothing else changes by that."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest

from kproxy.core import part_index, ruled
from kproxy.core.matcher import Matcher
from kproxy.core.part_index import PartIndex
from kproxy.core.ruled import Part
from kproxy.rules.depth import Depth
from kproxy.rules.entity import Entity
from kproxy.rules.facts import Facts
from kproxy.testing.dialogue import Dialogue, request

HEARTBEAT, PRODUCE = 12, 0


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


def indexed(rules: list[dict[str, Any]]) -> PartIndex:
    live = Dialogue(json.dumps({"rules": rules})).rules.bind(Facts("", "", "")).live
    return PartIndex([Part(one, Matcher(one.rule, 0, 9), Depth.BODY, Depth.NOTHING) for one in live])


@pytest.mark.parametrize(
    ("topics", "expected"),
    [
        (["orders"], [0, 1, 2, 3, 5]),
        (["clicks"], [1, 2, 3, 4, 5]),
        (["other"], [1, 3, 5]),
        (["clicks", "orders"], [0, 1, 2, 3, 4, 5]),
        ([None], [1, 3, 5]),
    ],
)
def test_rules_are_found_by_what_they_name(topics: list[str | None], expected: list[int]) -> None:
    """In file order; globs and rules without names are always asked."""
    found = indexed(RULES).candidates(Asked(), [Entity(topic=topic, partition=0) for topic in topics])  # type: ignore[arg-type]
    assert [part.running.name for part in found] == [f"rule {number}" for number in expected]


def test_a_thousand_rules_for_other_topics_are_not_asked() -> None:
    """Only those for this topic are candidates."""
    index = indexed([rule(number, api="Produce", topic=f"topic-{number}") for number in range(1000)])
    assert [part.running.name for part in index.candidates(Asked(), [Entity(topic="topic-7")])] == ["rule 7"]  # type: ignore[arg-type]


def test_the_index_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """With and without it the same rules fire."""
    counts = []
    for worth in (1, 1000):
        monkeypatch.setattr(part_index, "WORTH_IT", worth)
        talk = Dialogue(json.dumps({"rules": [one | {"mode": "observe"} for one in RULES]}))
        for topic in ("orders", "clicks", "other"):
            data = [{"name": topic, "partition_data": [{"index": 1, "records": b"r"}]}]
            talk.client(request(PRODUCE, 9, 1, acks=1, topic_data=data))
        counts.append([(running.matched, running.fired) for running in talk.rules.live])
    assert counts[0] == counts[1]
    assert sum(matched for matched, _ in counts[0]) > len(RULES)


@pytest.mark.parametrize("version", [3, 9, 13])
@pytest.mark.parametrize("match", [{"topic": ["orders", "audit"]}, {"client_id": "tester"}, {"client_id": "other"}])
def test_a_first_look_changes_nothing(monkeypatch: pytest.MonkeyPatch, match: dict[str, Any], version: int) -> None:
    """Requests that it spares all else are those that no rule would have been about."""
    counts = []
    for looks in (True, False):
        if not looks:
            monkeypatch.setattr(ruled, "peek", lambda *arguments: None)
        talk = Dialogue(json.dumps({"rules": [rule(1, api="Produce", **match) | {"mode": "observe"}]}))
        asked = b""
        for topic in ("orders", "clicks", "audit", "orders"):
            named = {"topic_id": UUID(int=7)} if version == 13 else {"name": topic}
            data = [named | {"partition_data": [{"index": 1, "records": b"r"}]}]
            asked += request(PRODUCE, version, 1, acks=1, topic_data=data)
        talk.client(asked)
        if version < 13 or "topic" not in match:
            assert talk.to_broker == asked
        counts.append([(running.matched, running.fired) for running in talk.rules.live])
    assert counts[0] == counts[1]
