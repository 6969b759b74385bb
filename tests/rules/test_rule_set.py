"""What of all rules holds for one connection."""

from __future__ import annotations

from kproxy.rules.document.read import parse_rules
from kproxy.rules.exchange import Facts
from kproxy.rules.rule_set import MatchingRules, RuleSet

TEXT = """
rules:
  - {name: inner, kind: rename_topic, topics: {orders: sales}, match: {listener: inside}}
  - {name: all, kind: rename_topic, topics: {"*": "prod.*"}}
  - {name: public, kind: advertise, host: h.example.com, not: {client_address: 10.0.0.0/8}}
  - {name: private, kind: advertise, host: h.internal}
"""


def test_rules_hold_for_the_connections_they_match() -> None:
    """Renames compose in file order, the first advertise rule is taken."""
    rules = parse_rules(TEXT)
    inside = rules.bind(Facts("inside", "main", "10.0.0.1"))
    outside = rules.bind(Facts("outside", "main", "192.0.2.1"))

    assert inside.rules == ("inner", "all", "private")
    assert inside.names is not None and inside.names.topics is not None
    assert inside.names.topics.to_broker(b"orders") == b"prod.sales"
    assert inside.advertise is not None
    assert inside.advertise.host == "h.internal"
    assert outside.rules == ("all", "public", "private")
    assert outside.advertise is not None
    assert outside.advertise.host == "h.example.com"


def test_connections_with_the_same_rules_share_what_they_come_to() -> None:
    """Whatever else differs between them."""
    rules = parse_rules(TEXT)

    assert rules.bind(Facts("inside", "a", "10.0.0.1")) is rules.bind(Facts("inside", "b", "10.9.9.9"))


def test_no_rules_bind_nothing() -> None:
    """An empty set is a set."""
    assert RuleSet().bind(Facts("l", "c", "::1")) == MatchingRules()
    assert len(RuleSet()) == 0


def test_the_id_follows_the_content() -> None:
    """Same rules, same id; another order or another name, another id."""
    one, two = "{name: a, kind: advertise, host: h, not: {sni: x}}", "{name: b, kind: rename_topic, topics: {a: b}}"
    ids = [parse_rules(f"rules: [{first}, {second}]").id for first, second in [(one, two), (one, two), (two, one)]]

    assert ids[0] == ids[1] != ids[2]


def test_origins_name_the_place() -> None:
    """For logs and for the list of rules."""
    assert parse_rules(TEXT, "r.yaml").origins[1] == "r.yaml:4:5"
