"""Rules that are right, and can never act: alone, or beside others."""

from __future__ import annotations

import pytest

from kproxy.rules.document.check import ListenerTraits
from kproxy.rules.document.lint import lint_rules
from kproxy.rules.document.read import read_document
from kproxy.rules.kinds import KINDS
from kproxy.rules.values.source import Source

ERROR = "kind: error, error: NOT_LEADER_OR_FOLLOWER"


def found(*rules: str, listeners: dict[str, ListenerTraits] | None = None) -> list[str]:
    """Doubts about these rules, from line and column on."""
    text = "rules:\n" + "\n".join(f"- {{name: r{number}, {rule}}}" for number, rule in enumerate(rules, 1))
    source = Source("f", text)
    written = read_document(source).parsed_rules
    assert source.lines() == []
    return [str(doubt).removeprefix("f:") for doubt in lint_rules(written, listeners)]


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ("kind: delay, delay: 1s, match: {api: Heartbeat, topic: a}", "requests of Heartbeat say no topic"),
        ("kind: delay, delay: 1s, match: {api: Heartbeat, acks: all}", "Heartbeat has no such acks"),
        ("kind: delay, delay: 1s, match: {api: Heartbeat, version: '>=9'}", "Heartbeat has no such versions"),
        ("kind: delay, delay: 1s, match: {topic: a, member: m, api: [Produce, Heartbeat]}",
         "no version of Produce, Heartbeat says member and topic together"),
        ("kind: move_coordinator, match: {api: Produce}",
         "move_coordinator, as it is written here, does nothing with Produce"),
        ("kind: drop, what: request, match: {error: any}",
         'it acts on requests, and "error" is known only when the response has come'),
    ],
)  # fmt: skip
def test_selectors_that_nothing_has(rule: str, text: str) -> None:
    """The reason names API and selector."""
    (doubt,) = found(rule)

    assert doubt.partition(": ")[2] == f"this rule can never act: {text}"


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ("kind: delay, delay: 1s, match: {api: Fetch, topic: a}, not: {topic: a}",
         "this rule can never act: not takes away all that match selects"),
        ("kind: rename_topic, topics: {a: b}, match: {listener: x}, not: {listener: x}",
         "this rule can never act: not takes away all that match selects"),
        ("kind: delay, delay: 1s, when: {first: 3, every: 5}",
         "this rule can never act: none of the first 3 is a multiple of 5"),
        ("kind: delay, delay: 1s, when: {for: 0s}", "this rule can never act: it is in force for no time"),
        ("kind: delay, delay: 1s, when: {hold: true}, mode: dry_run", "nothing is held by a rule in dry-run mode"),
        ("kind: refuse, when: {hold: true}",
         "a rule about new connections holds nothing, because only requests are held"),
        ("kind: delay, delay: 1s, at: response, match: {error: any}, when: {hold: true}",
         "nothing is held by a rule that selects errors: the request has gone by then"),
    ],
)  # fmt: skip
def test_words_that_leave_nothing(rule: str, text: str) -> None:
    (doubt,) = found(rule)

    assert doubt.partition(": ")[2] == text


def test_a_rule_behind_one_that_decides_everything() -> None:
    """Named, with the same or weaker selectors before it; not if the first one has a trigger, or is a dry run, or
    leaves something."""
    first, second = f"{ERROR}, match: {{api: Produce}}", f"{ERROR}, match: {{api: Produce, topic: a}}"
    text = '3:3: this rule can never act: "r1" before it decides every request that it is about'

    assert found(first, second) == [text]
    assert found("kind: drop, what: request, match: {api: Produce}", second) == [text]
    for harmless in (
        f"{first}, when: {{nth: 1}}",
        f"{first}, mode: dry_run",
        f"{first}, at: response",
        f"{first}, not: {{topic: b}}",
        f"{ERROR}, match: {{api: Fetch}}",
        f"{ERROR}, match: {{api: Produce, topic: b}}",
    ):
        assert found(harmless, second) == []


def test_versions_that_other_rules_stop() -> None:
    """A rule for versions that no client may use."""
    assert found("kind: limit_versions, apis: {Produce: 0-8}", f"{ERROR}, match: {{api: Produce, version: '>=9'}}") == [
        '3:58: this rule can never act: Produce 9: the rule "r1" allows 0-8'
    ]


def test_names_that_only_brokers_use() -> None:
    """Selectors speak client-side names; the doubt says which one that is."""
    names = "kind: rename_topic, topics: {orders: prod.orders}"

    assert found(names, f"{ERROR}, match: {{api: Produce, topic: [orders, prod.orders]}}") == [
        '3:96: "prod.orders" never matches: rules select by the names that clients use, and clients call it orders'
    ]


def test_what_only_tls_tells() -> None:
    """With listeners that have none."""
    rule = "kind: rename_topic, topics: {a: b}, match: {sni: x}"

    assert found(rule, listeners={"in": ListenerTraits("main", tls=True)}) == []
    (doubt,) = found(rule, listeners={"in": ListenerTraits("main", tls=False)})
    assert doubt.endswith("this rule can never act: sni is told by TLS, which no listener of it has")


def test_what_kinds_warn_of_has_the_place_of_the_rule() -> None:
    """`warnings` of the kind itself."""
    (doubt,) = found("kind: delay, at: response, delay: 1s, match: {api: Produce, acks: 0}")

    assert doubt.startswith("2:3: a Produce request with acks=0 has no response")


def test_rules_of_stages_are_seen_beside_those_of_the_document() -> None:
    source = Source(
        "f",
        f"""
rules: [{{name: a, {ERROR}, match: {{api: Produce}}}}]
scenario:
  stages:
    - {{for: 1s, rules: [{{name: b, {ERROR}, match: {{api: Produce}}}}]}}
    - {{for: 1s, rules: [{{name: c, {ERROR}, match: {{api: Fetch}}}}]}}
    - {{for: 1s, rules: [{{name: d, {ERROR}, match: {{api: Fetch}}}}]}}
""",
    )

    assert [doubt.parsed.name for doubt in lint_rules(read_document(source).parsed_rules)] == ["b"]


@pytest.mark.parametrize("kind", KINDS)
def test_no_example_of_a_kind_can_never_act(kind: str) -> None:
    """They are copied."""
    source = Source("f", "rules:\n" + KINDS[kind].example)

    assert not [one for one in lint_rules(read_document(source).parsed_rules) if "can never act" in one.text]
