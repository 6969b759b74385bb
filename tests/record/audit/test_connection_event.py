"""Events of connections: what a client says of itself can always be written."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from kproxy.record.audit.state_events import MOST_BOUND, Ended, authenticated, closed, opened
from kproxy.record.events.schema import CONNECTION_EVENT
from kproxy.rules.exchange import Facts
from kproxy.rules.kinds.advertise import AdvertiseRule
from kproxy.rules.kinds.prefix import PrefixRule
from kproxy.rules.kinds.rename_topic import RenameTopic
from kproxy.rules.rule_set import RuleSet
from kproxy.session.sasl.principal import LoginOutcome
from tests.record.audit.exchanges import FakeWho
from tests.support.event_validation import mistakes

END = Ended("client_closed", "client closed", 1.5, 0.002, 5, 4, 1, 500, 400, 0)


@dataclass
class Live(FakeWho):
    """A connection of a running proxy."""

    tls: bool = True
    sni: str | None = "kafka.example.com"
    outcome: LoginOutcome | None = None
    end: Ended | None = None


def test_the_three_events_of_a_connection() -> None:
    """Opened, authenticated, closed with its totals; all as declared."""
    who = Live(outcome=LoginOutcome("PLAIN", 0), end=END)
    events = [opened(who), authenticated(who, LoginOutcome("PLAIN", 58)), closed(who, "till")]
    assert [event["action"] for event in events] == ["open", "authentication", "close"]
    assert [mistakes(CONNECTION_EVENT, event) for event in events] == [[], [], []]
    assert events[0]["sni"] == "kafka.example.com"
    assert events[1]["error"] == "SASL_AUTHENTICATION_FAILED"
    assert (events[2]["client_id"], events[2]["connect_ms"], events[2]["unanswered"]) == ("till", 2.0, 1)
    assert "error" not in authenticated(who, LoginOutcome("PLAIN", 0))


def test_opened_lists_bound_rules_up_to_limit() -> None:
    """Rules that bind when a connection opens are in its event; a connection without one has no such column."""
    rules = [
        PrefixRule(name="tenant", kind="prefix", prefix="a."),
        AdvertiseRule(name="outside", kind="advertise", host="kafka.example.com"),
        *[RenameTopic(name=f"r{one}", kind="rename_topic", topics={f"a{one}": f"b{one}"}) for one in range(200)],
    ]
    event = opened(Live(bound=RuleSet(rules).bind(Facts("inside", "main", "10.1.2.3"))))

    assert mistakes(CONNECTION_EVENT, event) == []
    assert event["bound_rules"][:2] == [{"rule": "tenant", "kind": "prefix"}, {"rule": "outside", "kind": "advertise"}]
    assert len(event["bound_rules"]) == MOST_BOUND
    assert "bound_rules" not in opened(Live())


def test_texts_of_hostile_clients() -> None:
    """Bytes that are not UTF-8 and endless names do not keep an event from being written."""
    who = Live(principal="\udcff" * 10_000, sni="\ud800", end=END)
    for event in (opened(who), closed(who, "\udcff" * 30_000)):
        assert mistakes(CONNECTION_EVENT, event) == []
        assert len(msgspec.json.encode(event)) < 3000
