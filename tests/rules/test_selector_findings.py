"""Why a rule is about a request, or is not: each selector by itself, with what is known and what is not."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kproxy.rules.document.read import parse_rules
from kproxy.rules.entity import Entity
from kproxy.tools.rehearse.explain.target import KnownRequest, explain_selectors

PRODUCE, METADATA, HEARTBEAT = 0, 3, 12
ORDERS_0 = Entity(topic="orders", partition=0, where=(0, 0))
CLICKS_1 = Entity(topic="clicks", partition=1, where=(1, 0))


def judged(selectors: str, subject: KnownRequest) -> tuple[str, list[tuple[str, str]]]:
    rule = parse_rules(f"rules: [{{name: r, kind: delay, delay: 1s, {selectors}}}]").rules[0]
    found = explain_selectors(rule, subject)
    return found.word, [(one.selector, one.text) for one in found.findings]


@pytest.mark.parametrize(
    ("selectors", "known", "word", "text"),
    [
        ("match: {client_id: 'e-*'}", {"client_id": "e-1"}, "holds", "client id: it is e-1, the rule wants e-*"),
        ("match: {client_id: 'e-*'}", {"client_id": "x"}, "fails", "client id: it is x, the rule wants e-*"),
        ("match: {client_id: 'e-*'}", {"client_id": None}, "fails", "client id: there is none, the rule wants e-*"),
        ("match: {client_id: [a, b]}", {}, "open", "if its client id is a or b"),
        ("match: {client_address: 10.0.0.0/8}", {"client_address": "10.1.1.1"}, "holds",
         "client address: it is 10.1.1.1, the rule wants 10.0.0.0/8"),
        ("match: {node: 1-3}", {"node": 4}, "fails", "node: it is 4, the rule wants 1-3"),
        ("match: {size: '>1kB'}", {"size": 1000}, "fails", "size: it is 1000, the rule wants 1001-2147483647"),
        ("match: {acks: all}", {"acks": -1}, "holds", "acks: it is -1, the rule wants -1"),
        ("match: {error: any}", {"error": 6}, "holds", "error: it is NOT_LEADER_OR_FOLLOWER, the rule wants any"),
        ("match: {error: any}", {"error": 0}, "fails", "error: it is NONE, the rule wants any"),
        ("match: {api: Fetch}", {}, "fails", "it is Produce 9, the rule wants Fetch"),
        ("match: {version: '>=10'}", {}, "fails", "it is Produce 9, the rule wants 10-2147483647"),
        ("match: {group: g}", {}, "fails", "Produce 9 requests say no group"),
        ("not: {client_id: a}", {"client_id": "a"}, "fails", "client id: it is a, the rule wants a"),
        ("not: {client_id: a}", {}, "open", "unless its client id is a"),
    ],
)  # fmt: skip
def test_selectors_of_connections_and_headers(selectors: str, known: dict[str, Any], word: str, text: str) -> None:
    """What holds, what fails and what is open, in words with both sides."""
    found, reasons = judged(selectors, KnownRequest(PRODUCE, 9, known))

    assert (found, [text for _, text in reasons]) == (word, [text])


def test_not_that_does_not_apply_says_nothing() -> None:
    """One selector of `not` that fails makes the rest of it irrelevant."""
    for selectors, known in (("not: {client_id: a, listener: x}", {"client_id": "b"}), ("not: {api: Fetch}", {})):
        assert judged(selectors, KnownRequest(PRODUCE, 9, known)) == ("holds", [])


@pytest.mark.parametrize(
    ("selectors", "word", "reasons"),
    [
        ("match: {topic: orders}", "holds", [("topic", "topic is orders")]),
        ("match: {topic: x}", "fails", [("topic", "topic: it is orders, clicks, the rule wants x")]),
        ("match: {topic: orders, partition: 1}", "fails",
         [("topic and partition", "nothing that it asks about has this topic and partition together")]),
        ("not: {topic: orders}", "holds", []),
        ("not: {topic: '*'}", "fails", [("not topic", "topic is *")]),
        ("match: {topic: orders}, not: {partition: 0}", "fails",
         [("not partition", "partition is 0")]),
        ("match: {transactional_id: t}", "fails",
         [("transactional_id", "transactional id: it has none, the rule wants t")]),
    ],
)  # fmt: skip
def test_selectors_of_what_a_frame_is_about(selectors: str, word: str, reasons: list[tuple[str, str]]) -> None:
    """All that a frame asks about is known; one entity must have all that is selected."""
    assert judged(selectors, KnownRequest(PRODUCE, 9, {}, (ORDERS_0, CLICKS_1), whole=True)) == (word, reasons)


def test_entities_are_those_that_are_selected() -> None:
    """For what a rule would do with them."""
    rule = parse_rules(
        "rules: [{name: r, kind: delay, delay: 1s, match: {topic: [orders, clicks]}, not: {partition: 0}}]"
    )

    assert explain_selectors(
        rule.rules[0], KnownRequest(PRODUCE, 9, {}, (ORDERS_0, CLICKS_1), whole=True)
    ).entities == (CLICKS_1,)


def test_a_topic_that_is_given_by_id_may_be_any() -> None:
    """Its name is not in the frame."""
    by_id = Entity(topic_id=UUID(int=7), partition=0)

    assert judged("match: {topic: orders}", KnownRequest(1, 13, {}, (by_id,), whole=True)) == (
        "open",
        [("topic", "if its topic is orders")],
    )


def test_of_an_api_only_what_is_said_is_known() -> None:
    """The rest of what it is about is open."""
    assert judged("match: {topic: orders, partition: 0}", KnownRequest(PRODUCE, 9, {}, (Entity(topic="orders"),))) == (
        "open",
        [("partition", "if its partition is 0")],
    )
    assert judged("match: {acks: all}", KnownRequest(HEARTBEAT, 4, {})) == (
        "fails",
        [("acks", "Heartbeat 4 has no acks")],
    )
