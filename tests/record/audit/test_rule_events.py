"""What is recorded of rules."""

from __future__ import annotations

from typing import Any

from kproxy.record.audit.event_sink import EventGate
from kproxy.record.audit.state_events import RuleEvents
from kproxy.rules.document.read import parse_rules
from kproxy.tools.rehearse.dialogue import Dialogue, request
from tests.record.audit.exchanges import TimedEvents

RULE = "rules: [{name: slow, kind: delay, match: {api: Heartbeat}, delay: 1ms}]"


def made(live: Any = ()) -> tuple[RuleEvents, TimedEvents]:
    kept = TimedEvents("kproxy.rule.v1")
    return RuleEvents(EventGate(kept, lambda: None), lambda: live), kept


def test_counts_are_told_once_a_minute_and_only_what_has_grown() -> None:
    """Two requests in one minute are one event; a minute without any is none."""
    talk = Dialogue(RULE)
    rules, kept = made(talk.rules.live)
    rules.tick(60.0)

    for number in (1, 2):
        talk.client(request(12, 4, number)).later(0.01)
    rules.tick(119.0)
    rules.tick(120.0)
    rules.tick(180.0)

    [(time, data)] = kept.events
    assert time == 60.0
    assert data == {
        "action": "fired", "rule": "slow", "kind": "delay", "origin": talk.rules.live[0].origin,
        "minute": "1970-01-01T00:01:00.000000Z", "matched": 2, "fired": 2, "applied": 2,
    }  # fmt: skip


def test_a_rule_whose_counters_were_reset_is_told_from_0() -> None:
    """Nothing negative is ever told."""
    talk = Dialogue(RULE)
    rules, kept = made(talk.rules.live)
    talk.client(request(12, 4, 1)).later(0.01)
    rules.report()

    talk.rules.live[0].reset()
    talk.client(request(12, 4, 2)).later(0.01)
    rules.report()

    assert [data["matched"] for _, data in kept.events] == [1, 1]


def test_what_happens_to_rules() -> None:
    """Loading, swapping, refusing, changing and expiring are told with the set that is in force afterwards."""
    rules, kept = made()

    rules.loaded(1.0, "file", "v1", 2)
    rules.loaded(2.0, "api", "v2", 3, "v1")
    rules.rejected(3.0, "file", "v2", [f"a.yaml:{line}:1: wrong" for line in range(500)])
    rules.changed(4.0, "removed all of origin api", None, "v3", 2)
    rules.changed(5.0, "disabled", "slow", "v3", 2)
    rules.changed(6.0, "expired", "slow", "v4", 1)

    assert [(time, data["action"]) for time, data in kept.events] == [
        (1.0, "loaded"), (2.0, "swapped"), (3.0, "rejected"), (4.0, "removed"), (5.0, "changed"), (6.0, "expired"),
    ]  # fmt: skip
    assert len(kept.events[2][1]["mistakes"]) == 100
    assert kept.events[4][1]["change"] == "disabled"


def test_rules_that_are_no_live_rules_have_no_counts() -> None:
    """A rename is bound when a connection opens; it has nothing to count here."""
    document = parse_rules("rules: [{name: r, kind: rename_topic, topics: {a: b}}]")
    rules, kept = made(document.live)

    rules.report()

    assert kept.events == []
