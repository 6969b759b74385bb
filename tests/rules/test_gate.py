"""The gate: who may connect by the rules `allow_from`."""

from __future__ import annotations

import pytest

from kproxy.base.errors import DocumentError
from kproxy.rules.document.read import parse_rules
from kproxy.rules.exchange import Facts
from kproxy.rules.rule_set import RuleSet


def rules(*lines: str) -> RuleSet:
    text = "\n".join(f"- {{name: r{at}, kind: allow_from, {line}}}" for at, line in enumerate(lines))
    return RuleSet(parse_rules(f"rules:\n{text}").rules)


def facts(address: str, listener: str = "outside") -> Facts:
    return Facts(listener, "main", address)


@pytest.mark.parametrize(
    ("networks", "address", "comes_in"),
    [
        ("10.0.0.0/8", "10.255.255.255", True),
        ("10.0.0.0/8", "11.0.0.0", False),
        ("10.0.0.0/8", "9.255.255.255", False),
        ("10.0.0.1", "10.0.0.1", True),
        ("10.0.0.1", "10.0.0.2", False),
        ("10.0.0.0/8", "::ffff:10.0.0.1", True),
        ("10.0.0.0/8", "::ffff:11.0.0.1", False),
        ('"::ffff:10.0.0.0/104"', "10.0.0.1", True),
        ('"::ffff:10.0.0.0/104"', "::ffff:10.0.0.1", True),
        ('"::ffff:10.0.0.0/104"', "11.0.0.1", False),
        ('"2001:db8::/32"', "2001:db8:ffff::1", True),
        ('"2001:db8::/32"', "2001:db9::1", False),
        ('"::/0"', "2001:db8::1", True),
        ('"::/0"', "10.0.0.1", False),
        ("0.0.0.0/0", "10.0.0.1", True),
        ("0.0.0.0/0", "2001:db8::1", False),
        ('["::1", 10.0.0.0/8, 10.0.0.0/9, 192.0.2.0/24]', "192.0.2.255", True),
        ('["::1", 10.0.0.0/8, 10.0.0.0/9, 192.0.2.0/24]', "192.0.3.0", False),
        ('["::1", 10.0.0.0/8]', "::1", True),
        ('["::1", 10.0.0.0/8]', "::", False),
        ("0.0.0.0/0", "/run/client.sock", False),
        ("0.0.0.0/0", "", False),
    ],
)
def test_networks(networks: str, address: str, comes_in: bool) -> None:
    assert (rules(f"networks: {networks}").gate.ask(facts(address)) is None) is comes_in


def test_any_rule_that_holds_may_let_it_in() -> None:
    made = rules(
        "match: {listener: outside}, networks: 10.0.0.0/8",
        "match: {listener: outside}, networks: 192.0.2.0/24, close_with: fin, existing: close",
        "match: {listener: other}, networks: 203.0.113.0/24",
    )

    assert made.gate.ask(facts("192.0.2.1")) is None
    assert made.gate.ask(facts("203.0.113.1", "third")) is None
    barred = made.gate.ask(facts("203.0.113.1"))
    assert barred is not None
    assert (barred.close_with, barred.closes) == ("rst", True)
    assert barred.why == '203.0.113.1 is in none of the networks of "r0", "r1"'
    assert [(one.matched, one.fired, one.applied) for one in made.live] == [(2, 1, 1), (2, 1, 1), (0, 0, 0)]


def test_what_only_observes_counts_and_lets_in() -> None:
    """It is seen beside the others: one that lets the client in keeps it from being counted."""
    made = rules("networks: 10.0.0.0/8, mode: dry_run", "match: {listener: outside}, networks: 192.0.2.0/24")

    assert made.gate.ask(facts("203.0.113.1", "other")) is None
    assert made.gate.ask(facts("192.0.2.1")) is None
    assert made.gate.ask(facts("10.0.0.1")) is not None
    assert [(one.matched, one.fired, one.applied) for one in made.live] == [(3, 1, 0), (2, 1, 1)]


def test_a_look_counts_nothing() -> None:
    made = rules("networks: 10.0.0.0/8")

    barred = made.gate.check_quietly(facts("192.0.2.1"))
    assert barred is not None
    assert not barred.closes
    assert [(one.matched, one.fired, one.applied) for one in made.live] == [(0, 0, 0)]


def test_the_reason_is_short() -> None:
    made = rules(*["networks: 10.0.0.0/8"] * 10)

    barred = made.gate.ask(facts("192.0.2.1"))
    assert barred is not None
    assert barred.why == '192.0.2.1 is in none of the networks of "r0", "r1", "r2" and 7 more'


@pytest.mark.parametrize(
    ("line", "mistake"),
    [
        ("networks: []", "at least 1"),
        ("networks: 10.0.0.1/8", "expected a network such as 10.0.0.0/8, or an address"),
        ("match: {listener: a}", "networks"),
        ("networks: 10.0.0.0/8, close_with: half", "expected one of rst, fin"),
        ("networks: 10.0.0.0/8, existing: drop", "expected one of keep, close"),
        ("networks: 10.0.0.0/8, permanent: true", 'unknown key "permanent"'),
        ("networks: 10.0.0.0/8, when: {for: 5s}", "expected no `when`: the rule is always in force"),
        *(
            (f"networks: 10.0.0.0/8, match: {{{name}: {value}}}", f'so that "{name}" cannot be selected on')
            for name, value in (("sni", "a"), ("certificate", "CN=a"), ("node", 1), ("topic", "t"), ("principal", "p"))
        ),
    ],
)
def test_mistakes(line: str, mistake: str) -> None:
    with pytest.raises(DocumentError, match=mistake):
        rules(line)
