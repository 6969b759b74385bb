"""A drain waits for brokers only: what kproxy itself holds leaves at once, or is not sent.

Each test of a kind stops with its frame held, then drains without any time passing.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kproxy.rules.kinds import KINDS
from kproxy.session.commands import CLIENT
from kproxy.session.held_memory import HeldMemory
from kproxy.session.shared import ClusterState
from kproxy.tools.rehearse.dialogue import Dialogue, frames, request, response
from tests.support.frames import produce

PRODUCE, METADATA, HEARTBEAT = 0, 3, 12
ASKED, ANSWERED = request(METADATA, 9, 1, topics=[]), response(METADATA, 9, 1)


def drained(talk: Dialogue) -> Dialogue:
    talk.session.drain(talk.now)
    talk.obey()
    return talk


def held_request(line: str, before: bytes = b"", asked: bytes = ASKED) -> Dialogue:
    """Return a dialogue in which a rule holds a request back that came behind those of `before`."""
    talk = Dialogue(f"rules: [{{name: r, {line}}}]")
    for each in frames(before):
        talk.client(len(each).to_bytes(4, "big") + each)
    out = talk.to_broker
    talk.client(asked)
    assert talk.to_broker == out
    assert talk.closed is None
    return talk


def held_response(line: str) -> Dialogue:
    """Return a dialogue in which a rule holds the response back."""
    talk = Dialogue(f"rules: [{{name: r, {line}}}]").client(ASKED).broker(ANSWERED)
    assert (talk.to_client, talk.closed) == (b"", None)
    return talk


def request_is_not_sent(line: str, before: bytes = b"", asked: bytes = ASKED) -> None:
    talk = held_request(line, before, asked)
    out = talk.to_broker
    drained(talk)
    for number, each in enumerate(frames(out)):
        assert talk.closed is None  # what the broker has seen is answered first
        key = int.from_bytes(each[:2], "big")
        talk.broker(response(key, 9, int.from_bytes(each[4:8], "big")))
        assert len(frames(talk.to_client)) == number + 1
    assert talk.closed is not None and talk.closed.cause == "drained"
    assert talk.to_broker == out


def response_leaves(line: str) -> None:
    talk = drained(held_response(line))
    assert talk.to_client == ANSWERED
    assert talk.closed is not None and talk.closed.cause == "drained"


def delay() -> None:
    request_is_not_sent("kind: delay, delay: 1h, at: request")
    response_leaves("kind: delay, delay: 1h, at: response")


def intercept() -> None:
    request_is_not_sent("kind: intercept, match: {api: Metadata}")
    response_leaves("kind: intercept, match: {api: Metadata}, at: response")


def quota() -> None:
    """A request that waits for its turn, a connection that is muted, and one that waits to be read."""
    line = "kind: quota, produce: 1kB/s, requests: 1000/s"
    big, small = produce(1, "orders", records=b"r" * 50_000), produce(2, "orders", records=b"r")
    request_is_not_sent(line, big, small)

    talk = Dialogue(f"rules: [{{name: r, {line}}}]").client(big).broker(response(PRODUCE, 9, 1))
    assert not talk.read[CLIENT]
    assert drained(talk).closed is not None

    muted = Dialogue(f"rules: [{{name: r, {line}}}]").client(big).broker(response(PRODUCE, 9, 1)).client(small[:20])
    muted = drained(muted)
    assert muted.read[CLIENT]  # the rest of a request that has begun

    talk = Dialogue("rules: [{name: r, kind: quota, connections: 4/min}]")
    waiting = Dialogue(plan=talk.session.plan, number=2)
    assert not waiting.read[CLIENT]
    assert drained(waiting).closed is not None


def throttle_time() -> None:
    talk = Dialogue("rules: [{name: r, kind: throttle_time, delay: 1h, mute: true}]").client(ASKED).broker(ANSWERED)
    assert not talk.read[CLIENT]
    assert drained(talk).closed is not None


def drop() -> None:
    for what, stalled in (("request", held_request), ("response", held_response)):
        talk = stalled(f"kind: drop, what: {what}, match: {{api: Metadata}}")
        assert drained(talk).closed is not None


def blackhole() -> None:
    assert drained(held_request("kind: blackhole")).closed is not None


def disconnect() -> None:
    talk = Dialogue("rules: [{name: r, kind: disconnect, close_with: half, match: {api: Metadata}}]").client(ASKED)
    assert drained(talk.broker(ANSWERED) if talk.to_broker else talk).closed is not None


def shape(line: str) -> Callable[[], None]:
    def of_connection() -> None:
        talk = Dialogue(f"rules: [{{name: r, {line}}}]").client(ASKED)
        assert talk.shapes
        drained(talk)
        assert talk.shapes == ()
        assert talk.broker(ANSWERED).closed is not None

    return of_connection


def reorder_responses() -> None:
    """A response that leaves behind the next one waits for a broker, not for kproxy."""
    talk = Dialogue("rules: [{name: r, kind: reorder_responses, when: {nth: 1}}]")
    talk.client(ASKED + request(METADATA, 9, 2, topics=[])).broker(ANSWERED)
    assert talk.to_client == b""
    drained(talk).broker(response(METADATA, 9, 2))
    assert len(frames(talk.to_client)) == 2
    assert talk.closed is not None


HOLDING: dict[str, Callable[[], None]] = {
    "bandwidth": shape("kind: bandwidth, rate: 1B/s"),
    "blackhole": blackhole,
    "delay": delay,
    "disconnect": disconnect,
    "drop": drop,
    "intercept": intercept,
    "quota": quota,
    "reorder_responses": reorder_responses,
    "slice": shape("kind: slice, bytes: 1, every: 1s"),
    "throttle_time": throttle_time,
}
"""Kinds whose rules hold a frame or a connection back, each with its test."""
PASSING = {
    "add_header", "add_node", "advertise", "allow_from", "bad_assignment", "bad_length", "change_partitions",
    "client_rack", "filter_records", "set_field", "mask",
    "corrupt", "corrupt_records", "deny", "drop_commit", "drop_records", "duplicate_records", "duplicate_response",
    "empty_fetch", "error", "fence_producer", "hide_node", "hide_topic", "limit_versions", "malformed_batch",
    "move_coordinator", "move_leader", "no_controller", "no_leader", "omit_offset", "poison_records",
    "preferred_replica", "prefix", "python", "read_only", "rebalance", "recreate_topic", "refuse", "rename_group",
    "rename_topic", "rename_transactional_id", "reorder_records", "require", "rewind_offset", "set", "set_record",
    "set_watermark", "shift_epoch", "short_body", "short_session", "stale_metadata", "trailing_bytes", "truncate",
    "unknown_tag", "wrong_address", "wrong_correlation_id",
}  # fmt: skip
"""Kinds that hold nothing by themselves. `python` returns the decisions of the others."""


def test_kinds_all_hold_or_pass() -> None:
    """A new kind that holds frames needs a test here."""
    assert set(KINDS) == set(HOLDING) | PASSING
    assert not set(HOLDING) & PASSING


@pytest.mark.parametrize("kind", HOLDING)
def test_drain_of_what_a_kind_holds_takes_no_time(kind: str) -> None:
    HOLDING[kind]()


def test_drain_request_held_by_a_trigger_is_not_sent() -> None:
    """`when: {hold: true}` of any kind."""
    request_is_not_sent("kind: delay, delay: 0ms, when: {hold: true}")


@pytest.mark.parametrize(
    "line",
    [
        "kind: delay, delay: 1h, at: response",
        "kind: intercept, at: response, match: {api: Metadata}",
        "kind: throttle_time, delay: 1h, mute: true",
    ],
)
def test_drain_response_that_comes_later_is_not_held(line: str) -> None:
    """A rule does not hold what the broker answers during the drain."""
    talk = drained(Dialogue(f"rules: [{{name: r, {line}}}]").client(ASKED))
    assert talk.closed is None
    assert talk.broker(ANSWERED).closed is not None
    assert len(frames(talk.to_client)) == 1


@pytest.mark.parametrize(
    "line",
    [
        "kind: delay, delay: 1h",
        "kind: quota, produce: 1kB/s",
        "kind: intercept",
        "kind: delay, delay: 0ms, when: {hold: true}",
    ],
)
def test_drain_request_without_answer_is_sent(line: str) -> None:
    """With acks=0 the client would not notice that its records are lost."""
    first, second = (produce(number, "orders", acks=0, records=b"r" * 9000) for number in (1, 2))
    talk = Dialogue(f"rules: [{{name: r, match: {{api: Produce}}, {line}}}]").client(first + second)
    assert talk.to_broker != first + second
    drained(talk)
    assert talk.to_broker == first + second
    assert talk.closed is not None


def test_drain_request_that_waits_for_memory_is_not_sent() -> None:
    """Others have the memory for held frames, perhaps for long."""
    shared = ClusterState(requests=HeldMemory(100))
    rules = "rules: [{name: r, kind: delay, delay: 1h, match: {topic: orders}}]"
    first, second = (Dialogue(rules, shared=shared, number=number) for number in (1, 2))
    asked = request(METADATA, 9, 1, topics=[{"name": "x" * 60}])
    first.client(asked[:-1])
    second.client(asked[:-1])
    assert second.session.requests.blocked == "memory"
    assert drained(second).closed is not None
    assert second.to_broker == b""
