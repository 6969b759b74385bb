"""What a session tells its observer: how long frames were held, for what, and which rules fired."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from kproxy.session.commands import NO_ANSWER
from kproxy.tools.rehearse.dialogue import Dialogue, request, response

PRODUCE, METADATA, OFFSET_COMMIT, HEARTBEAT, LIST_GROUPS = 0, 3, 8, 12, 16


class Noted:
    """An observer that remembers."""

    def __init__(self) -> None:
        self.waits: list[tuple[int, float, bool, bool]] = []
        self.fired: list[tuple[int, list[str]]] = []
        self.answered: list[int] = []
        self.older: list[int] = []
        self.failures: list[tuple[int, set[int]]] = []
        self.throttles: list[tuple[int, str, float, int]] = []

    def waited(self, correlation_id: int, seconds: float, *, response: bool, by_rule: bool, older: int = 0) -> None:
        self.waits.append((correlation_id, seconds, response, by_rule))

    def acted(self, correlation_id: int, names: Iterable[str], *, answered: bool = False, older: int = 0) -> None:
        if answered:
            self.answered.append(correlation_id)
        else:
            self.fired.append((correlation_id, list(names)))
        self.older.append(older)

    def failed(self, correlation_id: int, codes: Iterable[int]) -> None:
        self.failures.append((correlation_id, set(codes)))

    def throttled(self, correlation_id: int, rule: str, mute: float, *, older: int = 0) -> None:
        self.throttles.append((correlation_id, rule, mute, older))


def watched(rules: str = "", **more: bool) -> tuple[Dialogue, Noted]:
    talk, noted = Dialogue(rules, **more), Noted()
    talk.session.observer = noted
    return talk, noted


DELAYS = """
rules:
  - {name: slow there, kind: delay, match: {api: Heartbeat}, delay: 200ms}
  - {name: slow back, kind: delay, match: {api: Heartbeat}, delay: 300ms, at: response}
"""


def test_waits_by_rules_are_told_apart_by_direction() -> None:
    """200 ms on the way there and 300 ms on the way back, each under the exchange's correlation id."""
    talk, noted = watched(DELAYS)

    talk.client(request(HEARTBEAT, 4, 7)).later(0.2).broker(response(HEARTBEAT, 4, 7)).later(0.3)

    assert noted.waits == [(7, pytest.approx(0.2), False, True), (7, pytest.approx(0.3), True, True)]
    assert noted.fired == [(7, ["slow there"]), (7, ["slow back"])]


@pytest.mark.parametrize("match", ["api: Produce", "api: Produce, client_id: kproxy", "topic: a"])
@pytest.mark.parametrize("version", [2, 3, 8, 9, 12])
@pytest.mark.parametrize("chunk", [0, 1])
def test_a_request_that_is_due_no_answer_is_told_as_such(match: str, version: int, chunk: int) -> None:
    """However little of it the rule needs: correlation ids alone would have it be the next exchange of the same id."""
    talk, noted = watched(f"rules: [{{name: slow, kind: delay, match: {{{match}}}, delay: 1ms}}]")
    topics = [{"name": "a", "partition_data": [{"index": 0, "records": b""}]}]
    for acks in (0, 1):
        talk.client(request(0, version, 7, "kproxy", acks=acks, topic_data=topics), chunk).later(0.1)

    assert noted.fired == [(7, ["slow"])] * 2
    assert noted.older == [NO_ANSWER, 0]


def test_a_frame_that_waits_for_a_nodes_port_is_held_by_nobodys_rule() -> None:
    """An answer that names brokers waits until their ports are there."""
    talk, noted = watched(advertise=True)
    talk.nodes = None
    brokers = [{"node_id": 1, "host": "b1", "port": 9092}]
    talk.client(request(METADATA, 12, 3)).broker(response(METADATA, 12, 3, brokers=brokers)).later(0.5)

    talk.session.nodes_ready({1: ("proxy", 9093)}, talk.now)
    talk.obey()

    assert noted.waits == [(3, pytest.approx(0.5), True, False)]
    assert len(talk.responses((METADATA, 12))) == 1


def test_an_answer_of_kproxys_own_is_told_with_the_rule_that_gave_it() -> None:
    """The observer learns which rule fired, and that the broker did not see the request."""
    talk, noted = watched(
        "rules: [{name: broken, kind: error, match: {api: Heartbeat}, error: COORDINATOR_NOT_AVAILABLE}]"
    )

    talk.client(request(HEARTBEAT, 4, 9))

    assert (noted.fired, noted.answered) == ([(9, ["broken"])], [9])


def test_rules_that_only_observe_are_told_too() -> None:
    """They fire, though they do nothing."""
    rule = "{name: looks, kind: error, mode: dry_run, match: {api: Heartbeat}, error: COORDINATOR_NOT_AVAILABLE}"
    talk, noted = watched(f"rules: [{rule}]")

    talk.client(request(HEARTBEAT, 4, 9))

    assert (noted.fired, noted.answered) == ([(9, ["looks"])], [])


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        ("kind: error, match: {api: OffsetCommit, topic: t}, error: 28", 28),
        ("kind: error, match: {api: OffsetCommit, topic: t}, error: 28, at: response", 28),
        ('kind: set, match: {api: OffsetCommit, topic: t}, fields: {"topics[].partitions[].error_code": 28}', 28),
    ],
)
def test_error_codes_that_rules_put_into_a_brokers_answer_are_told(rule: str, code: int) -> None:
    """In the broker's place for one of several topics, after its work, and field by field."""
    talk, noted = watched(f"rules: [{{name: broken, {rule}}}]")
    parts = [{"partition_index": 0, "committed_offset": 1}]
    topics = [{"name": name, "partitions": parts} for name in ("t", "u")]
    talk.client(request(OFFSET_COMMIT, 8, 5, group_id="g", topics=topics))
    asked = [one["name"] for one in talk.requests()[0].body["topics"]]
    answer = [{"name": name, "partitions": [{"partition_index": 0, "error_code": 0}]} for name in asked]
    talk.broker(response(OFFSET_COMMIT, 8, 5, topics=answer))

    assert noted.failures == [(5, {code})]


class Placed(Noted):
    """Remembers how many exchanges with the same id came before, too."""

    def __init__(self) -> None:
        super().__init__()
        self.places: list[tuple[str, int]] = []

    def waited(self, correlation_id: int, seconds: float, *, response: bool, by_rule: bool, older: int = 0) -> None:
        self.places.append(("waited", older))

    def acted(self, correlation_id: int, names: Iterable[str], *, answered: bool = False, older: int = 0) -> None:
        self.places.append(("answered" if answered else "fired", older))


def test_exchanges_of_one_correlation_id_are_told_apart() -> None:
    """Three are sent together: the first passes, the second is answered by kproxy, and the third waits. The rule that
    looks at answers has its say of the first, whose turn it is."""
    talk = Dialogue("""
rules:
  - {name: deny, kind: error, match: {api: ListGroups}, error: 29}
  - {name: slow, kind: delay, match: {api: Heartbeat}, delay: 200ms, when: {nth: 2}}
  - {name: late, kind: error, match: {api: Heartbeat, error: 25}, error: 27}
""")
    placed = Placed()
    talk.session.observer = placed
    talk.client(request(HEARTBEAT, 4, 7) + request(LIST_GROUPS, 4, 7) + request(HEARTBEAT, 4, 7)).later(0.2)
    talk.broker(response(HEARTBEAT, 4, 7, error_code=25))

    assert placed.places == [("fired", 1), ("answered", 1), ("fired", 2), ("waited", 2), ("fired", 0)]


def test_a_request_that_is_due_no_answer_has_no_place() -> None:
    """One without acks is in nobody's way."""
    talk = Dialogue("rules:\n  - {name: set, kind: set, match: {api: Produce}, at: request, fields: {timeout_ms: 5}}\n")
    placed = Placed()
    talk.session.observer = placed
    talk.client(request(PRODUCE, 9, 7, acks=1) + request(PRODUCE, 9, 7, acks=0) + request(PRODUCE, 9, 7, acks=1))

    assert placed.places == [("fired", 0), ("fired", NO_ANSWER), ("fired", 1)]
