"""Recorded exchanges under candidate rules: what would have been different."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kproxy.base.errors import DocumentError
from kproxy.rules.exchange import Facts
from kproxy.tools.rehearse.dialogue import request, response
from kproxy.tools.rehearse.whatif.candidate import Candidate
from kproxy.tools.rehearse.whatif.exchange import PackedExchange, RecordedClient
from kproxy.tools.rehearse.whatif.rehearsal import RehearsalFinding

PRODUCE, METADATA, HEARTBEAT = 0, 3, 12
CALLER = RecordedClient("one", Facts("outside", "main", "10.0.0.1"))
BEGAN = 1_700_000_000.0


def exchange(
    number: int, key: int = HEARTBEAT, version: int = 4, *, took: float = 0.01, unanswered: bool = False,
    asked: dict[str, Any] | None = None, answered: dict[str, Any] | None = None,
) -> PackedExchange:  # fmt: skip
    when = BEGAN + number
    sent = request(key, version, number, **(asked or {}))[4:]
    if unanswered:
        return PackedExchange(number, key, version, number, "tester", sent, when)
    got = response(key, version, number, **(answered or {}))[4:]
    return PackedExchange(number, key, version, number, "tester", sent, when, got, when + took)


def found(
    rules: str, *exchanges: PackedExchange, topics: dict[UUID, str] | None = None
) -> list[tuple[str, RehearsalFinding]]:
    candidate = Candidate([("r.yaml", rules)], BEGAN, topics)
    return list(candidate.findings(CALLER, exchanges))


def test_without_rules_nothing_differs() -> None:
    """Also where responses overlap with later requests."""
    slow = [exchange(number, took=2.5) for number in range(1, 20)]

    assert found("rules: []", *slow) == []


def test_requests_of_one_correlation_id_are_rehearsed_each() -> None:
    """They were under way together. Each has its own answer and its own rules; nothing is lost."""
    rules = "rules: [{name: broken, kind: error, match: {api: Heartbeat}, when: {nth: 2}, error: NOT_COORDINATOR}]"
    same = []
    for number in (1, 2, 3, 4):
        one = exchange(number, took=9.5)
        one.correlation_id, one.request = 7, request(HEARTBEAT, 4, 7)[4:]
        one.response = response(HEARTBEAT, 4, 7)[4:]
        same.append(one)

    assert found("rules: []", *same) == []
    ((_, finding),) = found(rules, *same)
    assert (finding.recorded.number, finding.rules, finding.answered, finding.lost) == (2, ["broken"], True, False)


def test_an_error_in_the_brokers_place() -> None:
    """The request would not have reached the broker; its recorded answer has no use."""
    rules = "rules: [{name: broken, kind: error, match: {api: Heartbeat}, when: {nth: 2}, error: NOT_COORDINATOR}]"

    ((rule, finding),) = found(rules, *[exchange(number) for number in (1, 2, 3)])

    assert rule == ""
    assert finding.recorded.number == 2
    assert (finding.rules, finding.answered, finding.response_changed) == (["broken"], True, True)
    assert not finding.lost


def test_a_delay_adds_to_the_recorded_time() -> None:
    """300 ms on the way there and 200 on the way back; later exchanges of the connection come later, too."""
    rules = """
rules:
  - {name: there, kind: delay, match: {api: Heartbeat}, delay: 300ms}
  - {name: back, kind: delay, match: {api: Heartbeat}, delay: 200ms, at: response}
"""
    findings = [finding for _, finding in found(rules, exchange(1), exchange(2))]

    assert [finding.rules for finding in findings] == [["there", "back"]] * 2
    assert [finding.delay for finding in findings] == [pytest.approx(0.5)] * 2
    assert not any(finding.request_changed or finding.response_changed for finding in findings)


def test_a_connection_that_a_rule_closes_goes_on_as_a_new_one() -> None:
    """The exchange is lost, those after it are not."""
    rules = "rules: [{name: cut, kind: disconnect, close_with: fin, match: {api: Heartbeat}, when: {nth: 2}}]"

    ((_, finding),) = found(rules, *[exchange(number) for number in (1, 2, 3)])

    assert (finding.recorded.number, finding.lost, finding.rules) == (2, True, ["cut"])
    assert "cut" in finding.closed


def test_a_request_that_is_held_for_good_is_lost() -> None:
    """Nobody releases it; what comes behind it on the connection would have come on another one."""
    rules = "rules: [{name: wait, kind: delay, delay: 0ms, match: {api: Heartbeat}, when: {nth: 1, hold: true}}]"

    findings = [finding for _, finding in found(rules, exchange(1), exchange(2))]

    assert [(finding.recorded.number, finding.lost) for finding in findings] == [(1, True)]


def test_names_are_rehearsed_rule_by_rule() -> None:
    """Of two renames each changes its own topic's requests."""
    rules = """
rules:
  - {name: orders, kind: rename_topic, topics: {orders: prod.orders}}
  - {name: clicks, kind: rename_topic, topics: {clicks: prod.clicks}}
"""
    asks = [
        exchange(number, METADATA, 9, asked={"topics": [{"name": name}]})
        for number, name in ((1, "orders"), (2, "clicks"), (3, "other"))
    ]

    findings = found(rules, *asks)

    assert {(rule, one.recorded.number) for rule, one in findings if one.request_changed} == {
        ("orders", 1),
        ("clicks", 2),
    }


def test_topic_ids_have_the_names_that_the_recording_shows() -> None:
    """A rule on a topic's name holds for requests that give its id."""
    orders = UUID("11111111-2222-4333-8444-555555555555")
    rules = "rules: [{name: refused, kind: error, match: {api: Produce, topic: orders}, error: NOT_LEADER_OR_FOLLOWER}]"
    part = {"index": 0, "records": None}
    ask = {"acks": -1, "topic_data": [{"topic_id": orders, "partition_data": [part]}]}
    said = {"responses": [{"topic_id": orders, "partition_responses": [{"index": 0, "base_offset": 5}]}]}
    write = exchange(1, PRODUCE, 13, asked=ask, answered=said)

    ((_, finding),) = found(rules, write, topics={orders: "orders"})
    assert finding.answered
    assert found(rules, write) == []


def test_requests_without_an_answer() -> None:
    """acks=0 has none; a rule may be about it all the same."""
    rules = "rules: [{name: slow, kind: delay, match: {api: Produce}, delay: 1s}]"
    ask = {"acks": 0, "topic_data": []}

    ((_, finding),) = found(rules, exchange(1, PRODUCE, 9, unanswered=True, asked=ask))

    assert (finding.rules, finding.lost) == (["slow"], False)


def test_what_rules_counted_and_what_is_approximate() -> None:
    """A count over all connections is; one for each connection is not."""
    rules = """
rules:
  - {name: a, kind: delay, match: {api: Heartbeat}, delay: 1ms, when: {nth: 2}}
  - {name: b, kind: delay, match: {api: Heartbeat}, delay: 1ms, when: {nth: 2, count_scope: connection}}
  - {name: c, kind: delay, match: {api: Heartbeat}, delay: 1ms}
"""
    candidate = Candidate([("r.yaml", rules)], BEGAN)
    for key in ("one", "two"):
        list(candidate.findings(RecordedClient(key, CALLER.facts), [exchange(1), exchange(2)]))

    assert [(one.rule, one.matched, one.fired, one.approximate) for one in candidate.counted()] == [
        ("a", 4, 1, True),
        ("b", 4, 2, False),
        ("c", 4, 4, False),
    ]


def test_rules_with_a_mistake_are_refused() -> None:
    """With its place."""
    with pytest.raises(DocumentError, match=r'r\.yaml:1:25: unknown kind "dely"'):
        Candidate([("r.yaml", "rules: [{name: a, kind: dely}]")], BEGAN)


def test_rehearsal_after_many_exchanges_keeps_no_output() -> None:
    """A recording may have millions of exchanges on one connection."""
    rules = "rules: [{name: broken, kind: error, match: {api: Heartbeat}, error: NOT_COORDINATOR}]"
    candidate = Candidate([("r.yaml", rules)], BEGAN)
    rehearsal = candidate.all.rehearsal(CALLER, 1, {})
    for number in range(1, 20):
        rehearsal.exchange(exchange(number))

    assert len(rehearsal.findings) == 19
    assert not rehearsal.log and not rehearsal.to_client and not rehearsal.to_broker and not rehearsal.open
