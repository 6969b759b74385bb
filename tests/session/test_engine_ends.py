"""Live rules where something else happens at the same time: other rules come, the client goes, kproxy drains."""

from __future__ import annotations

from kproxy.session.commands import BROKER, CLIENT
from kproxy.session.plan import Plan
from kproxy.session.shared import ClusterState
from kproxy.tools.rehearse.dialogue import Dialogue, frames, request, response

PRODUCE, FETCH, METADATA, API_VERSIONS, HEARTBEAT = 0, 1, 3, 18, 12
HELD = "rules:\n  - {name: wait, kind: error, match: {api: Heartbeat}, when: {hold: true, nth: 1}, error: 27}\n"
SLOW = "rules:\n  - {name: slow, kind: delay, delay: 200ms, at: request}\n"


def numbers(data: bytes) -> list[int]:
    """Correlation ids of responses."""
    return [int.from_bytes(frame[:4], "big") for frame in frames(data)]


def let_go(talk: Dialogue) -> None:
    talk.rules.live[0].resume()
    talk.session.released(talk.now)
    talk.obey()


def swap(talk: Dialogue, *live: int) -> None:
    """Only these rules are in force from the next frame on."""
    talk.session.use(Plan(talk.session.plan.bound, [talk.rules.live[number] for number in live]), talk.now)
    talk.obey()


# ---- other rules while a frame waits


def test_a_held_request_obeys_the_rules_it_was_held_under() -> None:
    """The rule is removed while it holds a request: what was decided about that one stands, and is for no other."""
    talk = Dialogue(HELD)
    talk.client(request(HEARTBEAT, 4, 1) + request(HEARTBEAT, 4, 2) + request(HEARTBEAT, 4, 3))
    swap(talk)
    let_go(talk)
    talk.broker(response(HEARTBEAT, 4, 2) + response(HEARTBEAT, 4, 3))

    answers = talk.responses(*[(HEARTBEAT, 4)] * 3)
    assert [answer.header["correlation_id"] for answer in answers] == [1, 2, 3]
    assert [answer.body["error_code"] for answer in answers] == [27, 0, 0]
    assert talk.session.idle


def test_what_follows_a_held_request_obeys_the_new_rules() -> None:
    """Frames that wait behind it have no ruling yet, though they came in the same read."""
    text = HELD + "  - {name: fail, kind: error, match: {api: Heartbeat}, error: 25}\n"
    talk = Dialogue(text)
    swap(talk, 0)
    talk.client(request(HEARTBEAT, 4, 1) + request(HEARTBEAT, 4, 2))
    swap(talk, 1)
    let_go(talk)

    assert [answer.body["error_code"] for answer in talk.responses(*[(HEARTBEAT, 4)] * 2)] == [27, 25]
    assert [running.fired for running in talk.rules.live] == [1, 1]


def test_a_delay_that_is_over_is_not_for_the_next_frame() -> None:
    """The rules change while a request is delayed, and then again: nothing of the delay is left."""
    talk = Dialogue(SLOW)
    talk.client(request(HEARTBEAT, 4, 1))
    swap(talk)
    talk.later(0.3)
    swap(talk, 0)
    talk.client(request(HEARTBEAT, 4, 2))
    assert [message.header["correlation_id"] for message in talk.requests()] == [1]
    talk.later(0.3)
    assert [message.header["correlation_id"] for message in talk.requests()] == [1, 2]
    assert talk.rules.live[0].applied == 2


def test_an_unknown_version_of_api_versions_is_answered_and_forgotten() -> None:
    """A rule delays all: kproxy's own answer to a newer ApiVersions is not taken for what comes next."""
    talk = Dialogue(SLOW)
    newest = request(API_VERSIONS, 4, 1)
    talk.client(newest[:6] + (99).to_bytes(2, "big") + newest[8:])
    talk.later(0.3)
    assert numbers(talk.to_client) == [1]
    talk.client(request(HEARTBEAT, 4, 2))
    assert talk.to_broker == b""
    talk.later(0.3)
    assert talk.to_broker == request(HEARTBEAT, 4, 2)
    assert talk.rules.live[0].matched == 2


# ---- the end


def test_a_drain_does_not_wait_for_a_held_request() -> None:
    """What was sent before it is answered; then the connection ends, and nobody holds anything any more."""
    talk = Dialogue(HELD)
    talk.client(request(METADATA, 9, 1, topics=None) + request(HEARTBEAT, 4, 2))
    talk.session.drain(talk.now)
    talk.obey()
    assert talk.closed is None
    talk.broker(response(METADATA, 9, 1))
    assert talk.closed is not None
    assert talk.closed.cause == "drained"
    assert talk.to_broker == request(METADATA, 9, 1, topics=None)
    talk.session.end(talk.now)
    assert not talk.rules.live[0].held


def test_a_drain_does_not_wait_for_what_a_rule_has_stalled() -> None:
    """Before the drain or after it began: nothing will ever come, so the connection ends."""
    rules = "rules:\n  - {name: lost, kind: drop, match: {api: Heartbeat}, what: response}\n"
    for first in (True, False):
        talk = Dialogue(rules)
        talk.client(request(HEARTBEAT, 4, 1))
        for step in (0, 1) if first else (1, 0):
            if step:
                talk.broker(response(HEARTBEAT, 4, 1))
            else:
                talk.session.drain(talk.now)
                talk.obey()
        assert talk.closed is not None
        assert talk.closed.cause == "drained"


def test_a_muted_connection_drains_at_once() -> None:
    """Nothing is in flight: that its client is not read now is no reason to wait."""
    talk = Dialogue("rules:\n  - {name: wait, kind: throttle_time, delay: 3s, mute: true}\n")
    talk.client(request(HEARTBEAT, 4, 1)).broker(response(HEARTBEAT, 4, 1))
    assert not talk.read[CLIENT]
    talk.session.drain(talk.now)
    talk.obey()
    assert talk.closed is not None


def test_a_client_that_has_gone_still_has_its_delayed_request_sent() -> None:
    talk = Dialogue(SLOW)
    talk.client(request(HEARTBEAT, 4, 1))
    talk.session.eof(CLIENT, talk.now)
    talk.obey()
    assert talk.closed is None
    talk.later(0.3)
    assert talk.to_broker == request(HEARTBEAT, 4, 1)


def test_a_delayed_answer_leaves_though_the_broker_has_gone() -> None:
    """The broker's end is judged behind it."""
    talk = Dialogue(SLOW.replace("request", "response"))
    talk.client(request(HEARTBEAT, 4, 1)).broker(response(HEARTBEAT, 4, 1))
    talk.session.eof(BROKER, talk.now)
    talk.obey()
    assert talk.closed is None
    talk.later(0.3)
    assert numbers(talk.to_client) == [1]
    assert talk.closed is not None
    assert talk.closed.cause == "broker_closed"


# ---- answers of kproxy's own, before an end


def test_answers_before_a_closed_request_leave_first() -> None:
    """Two requests in one read: the first is answered by kproxy, the second ends the connection, in whatever way."""
    text = "rules:\n  - {name: fail, kind: error, match: {api: Heartbeat}, error: 27}\n"
    for end in ("kind: disconnect, close_with: fin", "kind: disconnect, close_with: half", "kind: drop, what: request"):
        for chunk in (0, 7):
            talk = Dialogue(text + f"  - {{name: cut, {end}, match: {{api: Metadata}}}}\n")
            talk.client(request(HEARTBEAT, 4, 1) + request(METADATA, 9, 2, topics=None), chunk)
            assert numbers(talk.to_client) == [1], end
            talk.client(request(HEARTBEAT, 4, 3))
            assert numbers(talk.to_client) == [1], end


def test_nothing_follows_a_half_close() -> None:
    """The FIN is the last thing that the client gets, though an answer was due behind another."""
    text = "rules:\n  - {name: fail, kind: error, match: {api: Heartbeat}, error: 27}\n"
    text += "  - {name: cut, kind: disconnect, close_with: half, match: {api: Metadata}, at: response}\n"
    talk = Dialogue(text)
    talk.client(request(METADATA, 9, 1, topics=None) + request(HEARTBEAT, 4, 2)).broker(response(METADATA, 9, 1))
    talk.client(request(HEARTBEAT, 4, 3))
    assert talk.shut == {CLIENT}
    assert talk.to_client == b""


def test_own_answers_count_as_requests_in_flight() -> None:
    """One request that the broker does not answer, and any number behind it that kproxy does: there is an end."""
    text = "rules:\n  - {name: fail, kind: error, match: {api: Heartbeat}, error: 27}\n"
    talk = Dialogue(text, shared=ClusterState(max_in_flight=4))
    talk.client(request(METADATA, 9, 1, topics=None))
    sent = 0
    while talk.read[CLIENT] and sent < 100:
        sent += 1
        talk.client(request(HEARTBEAT, 4, 1 + sent))
    assert sent == 4
    talk.broker(response(METADATA, 9, 1))
    assert numbers(talk.to_client) == [1, 2, 3, 4, 5]
    assert talk.read[CLIENT]


def test_requests_of_which_much_is_remembered_are_few() -> None:
    """Long Fetches behind one that takes its time: rules remember their partitions, so the client is not read."""
    text = "rules:\n  - {name: deny, kind: deny, match: {topic: secret}}\n"
    talk = Dialogue(text)
    opening = {"session_id": 0, "session_epoch": 0}
    long = {**opening, "topics": [{"topic": "open", "partitions": [{"partition": n} for n in range(10_000)]}]}
    sent = 0
    while talk.read[CLIENT] and sent < 100:
        sent += 1
        talk.client(request(FETCH, 7, sent, **long))
    assert sent == 5
    for number in range(1, 4):
        assert not talk.read[CLIENT]
        talk.broker(response(FETCH, 7, number))
    assert talk.read[CLIENT]
    talk.client(request(FETCH, 7, 6, **opening)).client(request(FETCH, 7, 7, **opening))
    assert talk.read[CLIENT]
    for number in range(4, 8):
        talk.broker(response(FETCH, 7, number))
    assert numbers(talk.to_client) == list(range(1, 8))
    for number in range(8, 900):
        talk.client(request(FETCH, 7, number, **opening))
    assert talk.read[CLIENT]


def test_a_stalled_connection_is_read() -> None:
    """The response is lost while a request is delayed: what the client sends is thrown away, and its end is seen."""
    text = "rules:\n  - {name: lost, kind: drop, match: {api: Metadata}, what: response}\n"
    text += "  - {name: slow, kind: delay, match: {api: Heartbeat}, delay: 1s}\n"
    talk = Dialogue(text)
    talk.client(request(METADATA, 9, 1, topics=None) + request(HEARTBEAT, 4, 2))
    assert not talk.read[CLIENT]
    talk.broker(response(METADATA, 9, 1))
    assert talk.read[CLIENT]
    talk.later(2)
    assert talk.to_broker == request(METADATA, 9, 1, topics=None)
    talk.session.eof(CLIENT, talk.now)
    talk.obey()
    assert talk.closed is not None
    assert talk.closed.cause == "stalled"
