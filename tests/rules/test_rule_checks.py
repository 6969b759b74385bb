"""Mistakes between rules, and between rules and listeners."""

from __future__ import annotations

import pytest

from kproxy.base.errors import DocumentError
from kproxy.rules.document.check import ListenerTraits
from kproxy.rules.document.read import parse_rules

LISTENERS = {"inside": ListenerTraits("main", tls=False), "outside": ListenerTraits("main", tls=True)}


def mistakes(*rules: str) -> list[str]:
    """Lines without file, for rules that stand one on each line from line 2 on."""
    try:
        parse_rules("rules:\n" + "\n".join(f"- {rule}" for rule in rules), "f", LISTENERS)
    except DocumentError as error:
        return [line.removeprefix("f:") for line in error.mistakes]
    return []


def test_a_rule_that_can_never_act_is_refused() -> None:
    """After an advertise rule for everybody no other has a connection left."""
    first, second = "{name: a, kind: advertise}", "{name: b, kind: advertise, match: {sni: x}}"

    assert mistakes(second, first) == []
    assert mistakes(first, second) == [
        '3:3: this rule can never act, "a" advertises for all connections before it'
    ]  # fmt: skip


def test_a_name_that_a_later_rule_takes_is_refused() -> None:
    """The first rule gives x to a, the second gives x to b: nobody could reach a any more."""
    first = "{name: r, kind: rename_topic, topics: {a: x, c: y}}"
    second = "{name: s, kind: rename_topic, topics: {b: x}}"

    assert mistakes(first, second) == ['2:45: "x" would be unreachable: the rule "s" gives that name to "b"']


def test_a_chain_of_renames_is_right() -> None:
    """The second rule may rename what the first one gives, and a glob covers it."""
    first = "{name: r, kind: rename_topic, topics: {a: x}}"

    assert mistakes(first, "{name: s, kind: rename_topic, topics: {x: z}}") == []
    assert mistakes(first, '{name: s, kind: rename_topic, topics: {"*": "prod.*"}}') == []


def test_globs_that_meet_over_two_rules_are_refused() -> None:
    first = '{name: r, kind: rename_topic, topics: {"a-*": "x-*"}}'
    second = '{name: s, kind: rename_topic, topics: {"b-*": "x-*"}}'

    assert mistakes(first, second) == ['2:49: "x-*" would be unreachable: the rule "s" gives that name to "b-…"']


def test_rules_for_different_connections_do_not_meet() -> None:
    """Two listeners may map to one topic."""
    first = "{name: r, kind: rename_topic, topics: {a: x}, match: {listener: inside}}"
    second = "{name: s, kind: rename_topic, topics: {b: x}, match: {listener: outside}}"

    assert mistakes(first, second) == []


@pytest.mark.parametrize("side", ["match", "not"])
def test_selected_listeners_and_clusters_must_be_there(side: str) -> None:
    """A name that no listener has is a mistake; patterns may match none."""
    rule = f"{{name: a, kind: advertise, {side}: {{listener: [outsid, 'x-*'], cluster: man}}}}"

    assert [line.split(": ", 1)[1] for line in mistakes(rule)] == [
        'unknown listener "outsid", did you mean "outside"? allowed: inside, outside',
        'unknown cluster "man", did you mean "main"? allowed: main',
    ]


def test_sni_needs_a_listener_with_tls() -> None:
    """Unless the rule is for listeners that have it."""
    sni = "sni: 'b{node}.example.com:443'"

    assert mistakes(f"{{name: a, kind: advertise, {sni}}}") == [
        "2:35: sni needs TLS towards clients, and listener inside has none"
    ]
    assert mistakes(f"{{name: a, kind: advertise, {sni}, match: {{listener: outside}}}}") == []


def test_nodes_that_share_a_port_need_tls() -> None:
    """The port alone does not say which node is meant."""
    nodes = "nodes: {1: 'a:9093', 2: 'b:9093'}"

    assert mistakes(f"{{name: a, kind: advertise, {nodes}}}") == [
        "2:37: nodes that share port 9093 need TLS towards clients to be told apart, and listener inside has none"
    ]


def test_an_advertise_rule_cannot_hold_where_brokers_keep_their_addresses() -> None:
    """On a transparent listener; one that selects others may."""
    listeners = {**LISTENERS, "diverted": ListenerTraits("main", tls=False, transparent=True)}
    text = "rules:\n- {name: a, kind: advertise, host: h, match: {listener: %s}}\n"

    assert len(parse_rules(text % "inside", "f", listeners)) == 1
    with pytest.raises(DocumentError) as caught:
        parse_rules(text % '"*"', "f", listeners)
    assert caught.value.mistakes == [
        "f:2:3: brokers keep their own addresses on listener diverted, which is transparent"
    ]
