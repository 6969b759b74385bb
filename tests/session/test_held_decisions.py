"""What people decide about held frames leaves kproxy's own state right, whoever else decides about the same ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kproxy.session import held_frames as held_module
from kproxy.session.commands import BROKER, CLIENT
from kproxy.session.held_frames import HeldFrame
from kproxy.tools.rehearse.dialogue import Dialogue, request, response
from tests.support.frames import fetch, fetched
from tests.support.holding import HeldOwner, held_in, holding, only

HEARTBEAT, FETCH = 12, 1
BEAT, OTHER = request(HEARTBEAT, 4, 1, group_id="g"), request(HEARTBEAT, 4, 1, group_id="h")
HOLD = "  - {name: hold, kind: intercept, match: {api: Heartbeat}, hold_for: 20s}\n"
DECISIONS: dict[str, Callable[[HeldFrame], None]] = {
    "fields": lambda held: held.becomes(OTHER[4:]),
    "bytes": lambda held: held.leaves_as(OTHER[4:]),
    "answer": lambda held: held.answer(response(HEARTBEAT, 4, 1, error_code=27)[4:]),
    "drop": lambda held: held.drop("continue"),
    "close": lambda held: held.close("fin"),
}


def held_twice(then: str) -> tuple[Dialogue, HeldFrame, HeldFrame]:
    """One frame that two rules hold, the second one for a shorter time."""
    other = HOLD.replace("name: hold", "name: other").replace("20s", f"5s, on_timeout: {then}")
    talk = holding(f"rules:\n{HOLD}{other}")
    talk.client(BEAT)
    first, second = held_in(talk)
    return talk, first, second


@pytest.mark.parametrize("decision", DECISIONS)
def test_who_decides_is_heard_of_by_those_who_look_at_the_same_frame(decision: str) -> None:
    """The revision that they have seen is another one now, and they are told."""
    talk, first, second = held_twice("pass")
    told: list[Any] = []
    talk.shared.desk.tell.append(lambda what, held, how, who: told.append((what, held.id)))
    DECISIONS[decision](first)
    first.let_go()
    assert (first.revision, second.revision) == (1, 2)
    assert ("changed", second.id) in told


@pytest.mark.parametrize("then", ["close", "{error: REBALANCE_IN_PROGRESS}"])
@pytest.mark.parametrize("decision", ["answer", "drop", "close"])
def test_what_somebody_has_decided_is_not_decided_anew_by_time(decision: str, then: str) -> None:
    """That was what the other rule would have done with a frame of which nobody knows what to do."""
    talk, first, second = held_twice(then)
    DECISIONS[decision](first)
    first.let_go()
    assert (talk.to_broker, talk.to_client, talk.closed) == (b"", b"", None)
    talk.later(6)
    assert second.gone == "timed_out"
    said = response(HEARTBEAT, 4, 1, error_code=27)
    assert (talk.to_broker, talk.to_client) == (b"", said if decision == "answer" else b"")
    assert (talk.closed is not None) == (decision == "close")


def test_time_that_is_asked_for_again_and_again_costs_no_memory() -> None:
    """The lane looks again when the first time is over, as often as that is moved."""
    talk = holding(f"rules:\n{HOLD}")
    talk.client(BEAT)
    held = only(talk)
    for _ in range(1000):
        held.extend(0.1)
    assert len(talk.session.timers.calls) == 1
    assert held.until is not None
    talk.later(held.until - talk.now - 0.1)
    assert only(talk) is held
    talk.later(0.2)
    assert (held.gone, talk.to_broker) == ("timed_out", BEAT)


def test_a_rule_that_goes_while_a_frame_is_evaluated_does_not_hold_it() -> None:
    """Of a long frame that is put aside meanwhile: nobody would let it go any more."""
    text = "  - {name: wait, kind: delay, match: {api: Heartbeat}, when: {hold: true}, delay: 1ms}\n"
    talk = holding(f"rules:\n{HOLD.replace('hold_for', 'filter: ~g g, hold_for')}{text}")
    plan = type(talk.session.plan)(talk.session.plan.bound)

    def judge(*_: Any) -> bool:
        talk.session.use(plan, talk.now)
        for running in talk.rules.live:
            running.resume("rule_gone")
        return True

    talk.shared.desk.judge = judge
    talk.client(BEAT)
    talk.later(0.01)
    assert (held_in(talk), talk.to_broker) == ([], BEAT)


@pytest.mark.parametrize("decision", ["fields", "bytes", "answer", "drop"])
def test_a_fetch_session_is_begun_anew_behind_a_request_that_was_changed(decision: str) -> None:
    """What the broker knows of it is not what the client has said, and rules go by that."""
    rules = "rules:\n  - {name: hold, kind: intercept, match: {api: Fetch}, when: {nth: 2}}\n"
    talk = holding(rules + "  - {name: secret, kind: deny, match: {topic: secret}}\n")
    talk.client(fetch(1, "orders", session_id=0, session_epoch=0)).broker(fetched(1, "orders", session_id=77))
    talk.client(fetch(2, session_id=77, session_epoch=1))
    held, asked = only(talk), fetch(2, "bills", session_id=77, session_epoch=1)[4:]
    match decision:
        case "fields":
            held.becomes(asked)
        case "bytes":
            held.leaves_as(asked)
        case "answer":
            held.answer(fetched(2, session_id=77)[4:])
        case _:
            held.drop("continue")
    held.let_go()
    if decision in ("fields", "bytes"):
        talk.broker(fetched(2, "bills", session_id=77))
    before = len(talk.to_broker)
    talk.client(fetch(3, session_id=77, session_epoch=2))
    assert len(talk.to_broker) == before
    if decision != "drop":  # whose answer never comes
        assert talk.responses(*[(FETCH, 11)] * 3)[-1].body["error_code"] == 70
    assert talk.closed is None


def test_frames_that_are_evaluated_at_the_same_time_have_one_room() -> None:
    """Of two long ones, each of which was told that there is room, the second one passes."""
    talk = holding(f"rules:\n{HOLD.replace('hold_for', 'filter: ~g g, hold_for')}")
    talk.shared.desk.most_bytes = len(BEAT)
    other = Dialogue(shared=talk.shared, plan=talk.session.plan, number=2)
    other.session.owner = HeldOwner(other)

    def judge(*_: Any) -> bool:
        talk.shared.desk.judge = lambda *_: True
        other.client(BEAT)
        return True

    talk.shared.desk.judge = judge
    talk.client(BEAT)
    assert [one.session for one in held_in(talk)] == [other.session]
    assert (talk.to_broker, talk.shared.desk.passed_over) == (BEAT, 1)


def test_a_frame_that_is_too_long_to_be_looked_at_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """`when: {hold: true}` holds frames of any length."""
    monkeypatch.setattr(held_module, "MOST_BYTES", 10)
    talk = holding("rules:\n  - {name: wait, kind: delay, match: {api: Heartbeat}, when: {hold: true}, delay: 1ms}\n")
    talk.client(BEAT)
    held = only(talk)
    assert (held.is_whole, held.is_long, held.frame(), held.came()) == (True, True, None, None)
    held.let_go()
    talk.later(0.01)
    assert talk.to_broker == BEAT


def test_what_comes_behind_a_held_frame_is_not_read() -> None:
    """But for what one read had brought."""
    talk = holding(f"rules:\n{HOLD}")
    talk.client(BEAT * 300)
    held = only(talk)
    assert (talk.read[CLIENT], talk.read[BROKER], held.behind) == (False, True, 100)
    assert len(talk.session.requests.kept or b"") == 300 * len(BEAT)
