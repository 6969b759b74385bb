"""Events of connections: what a client says of itself can always be written."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from kproxy.core.sasl.principal import LoginOutcome
from kproxy.events.schema import CONNECTION_EVENT
from kproxy.sinks.audit.state_events import Ended, authenticated, closed, opened
from tests.support.event_validation import mistakes

from .exchanges import FakeWho

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
    assert [event["what"] for event in events] == ["open", "authentication", "close"]
    assert [mistakes(CONNECTION_EVENT, event) for event in events] == [[], [], []]
    assert events[0]["sni"] == "kafka.example.com"
    assert events[1]["error"] == "SASL_AUTHENTICATION_FAILED"
    assert (events[2]["client_id"], events[2]["connect_ms"], events[2]["unanswered"]) == ("till", 2.0, 1)
    assert "error" not in authenticated(who, LoginOutcome("PLAIN", 0))


def test_texts_of_hostile_clients() -> None:
    """Bytes that are not UTF-8 and endless names do not keep an event from being written."""
    who = Live(principal="\udcff" * 10_000, sni="\ud800", end=END)
    for event in (opened(who), closed(who, "\udcff" * 30_000)):
        assert mistakes(CONNECTION_EVENT, event) == []
        assert len(msgspec.json.encode(event)) < 3000
