"""A broker's session that is renewed on the client's own connection (KIP-368), as the client and the broker see it."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kproxy.protocol import decode_request
from kproxy.protocol.sasl.mechanisms import Tokens, plain
from kproxy.session.commands import BROKER
from kproxy.session.plan import ConnectionSettings
from kproxy.session.sasl.login import CORRELATION, NO_SASL, LoggedIn
from kproxy.tools.rehearse.dialogue import Dialogue, frames, request, response

HANDSHAKE, AUTHENTICATE, HEARTBEAT = 17, 36, 12


class Plain:
    """Credentials of a test."""

    mechanism = "PLAIN"

    def tokens(self) -> Tokens:
        return plain("me", "secret")

    def clean(self, text: str) -> str:
        return text


def logged_in(dialogue: Any, lifetime: float = 100.0) -> Dialogue:
    """A connection on which kproxy has logged in for so long, and one exchange has passed."""
    talk: Dialogue = dialogue(ConnectionSettings(advertise=False, ends_sasl=True))
    talk.client(request(HEARTBEAT, 4, 1))
    talk.session.logins.logged_in(Plain(), LoggedIn(2, lifetime), talk.now)
    talk.obey()
    talk.broker(response(HEARTBEAT, 4, 1))
    talk.out[0].clear()
    talk.out[1].clear()
    return talk


def sent(talk: Dialogue) -> list[int]:
    """API keys of what has gone to the broker since the last look."""
    found = [decode_request(frame).api.key for frame in frames(talk.to_broker)]
    talk.out[BROKER].clear()
    return found


def shaken(**values: Any) -> bytes:
    return bytes(response(HANDSHAKE, 1, CORRELATION, mechanisms=["PLAIN"], **values))


def accepted(lifetime_ms: int = 100_000, **values: Any) -> bytes:
    return bytes(response(AUTHENTICATE, 2, CORRELATION, session_lifetime_ms=lifetime_ms, **values))


@pytest.mark.parametrize("chunk", [0, 1, 7])
def test_a_renewal_is_unseen(dialogue: Any, chunk: int) -> None:
    """When it is time the login goes out behind what is in flight; what the client sends meanwhile waits, and leaves
    behind it; the client gets its own answers, in order. And again, after the next session."""
    talk = logged_in(dialogue)
    talk.client(request(HEARTBEAT, 4, 2))
    talk.later(84.9)
    assert sent(talk) == [HEARTBEAT]
    talk.later(10.2)
    assert sent(talk) == [HANDSHAKE]
    talk.client(request(HEARTBEAT, 4, 3) + request(HEARTBEAT, 4, 4), chunk)
    talk.broker(response(HEARTBEAT, 4, 2) + shaken(), chunk)
    assert sent(talk) == [AUTHENTICATE]
    talk.broker(accepted(), chunk)
    assert sent(talk) == [HEARTBEAT, HEARTBEAT]
    talk.broker(response(HEARTBEAT, 4, 3) + response(HEARTBEAT, 4, 4))

    assert talk.to_client == b"".join(response(HEARTBEAT, 4, number) for number in (2, 3, 4))
    assert talk.session.idle and all(talk.read.values())
    talk.later(84.0)
    assert sent(talk) == []
    talk.later(11.2)
    assert sent(talk) == [HANDSHAKE]


def test_a_frame_that_is_under_way_is_not_cut(dialogue: Any) -> None:
    """The login waits for the rest of a request of which the broker has the beginning, and the next one for it."""
    talk = logged_in(dialogue)
    long = request(HEARTBEAT, 4, 2, member_id="x" * 3000)
    talk.client(long[:2000])
    talk.later(96)
    assert talk.to_broker == long[:2000]
    talk.client(long[2000:] + request(HEARTBEAT, 4, 3))
    assert talk.to_broker[: len(long)] == long
    assert [decode_request(one).api.key for one in frames(talk.to_broker)[1:]] == [HANDSHAKE]
    talk.broker(response(HEARTBEAT, 4, 2) + shaken()).broker(accepted())
    assert [decode_request(one).api.key for one in frames(talk.to_broker)[1:]] == [HANDSHAKE, AUTHENTICATE, HEARTBEAT]


def test_a_frame_that_has_only_begun_waits(dialogue: Any) -> None:
    """A header of which a part is here has not left: the login goes first."""
    talk = logged_in(dialogue)
    asked = request(HEARTBEAT, 4, 2)
    talk.client(asked[:9])
    talk.later(96)
    assert sent(talk) == [HANDSHAKE]
    talk.client(asked[9:])
    talk.broker(shaken()).broker(accepted())
    assert sent(talk) == [AUTHENTICATE, HEARTBEAT]


def test_a_session_without_an_end_is_not_renewed(dialogue: Any) -> None:
    """Brokers without connections.max.reauth.ms say 0."""
    talk = logged_in(dialogue, lifetime=0.0)
    assert talk.wakes == []


def test_a_renewal_that_is_refused(dialogue: Any) -> None:
    """The connection closes, with the broker's words; what waited has not been sent."""
    talk = logged_in(dialogue)
    talk.later(96).client(request(HEARTBEAT, 4, 2))
    talk.broker(shaken()).broker(accepted(error_code=58, error_message="no more"))

    assert talk.closed is not None
    assert (talk.closed.cause, talk.closed.blame) == ("broker_login", "broker")
    assert talk.closed.message == "kproxy's login at the broker cannot be renewed: error 58: no more"
    assert sent(talk) == [HANDSHAKE, AUTHENTICATE]
    assert talk.shared.counters.events["broker_renewals_failed"] == 1


def test_a_broker_that_does_not_answer(dialogue: Any) -> None:
    """After thirty seconds it is given up."""
    talk = logged_in(dialogue)
    talk.later(140)
    assert talk.closed is not None and "not done in 30 s" in talk.closed.message


def test_a_drain_waits_for_it(dialogue: Any) -> None:
    """A connection that is to end does so when the login is through; a client that has ended, too."""
    talk = logged_in(dialogue)
    talk.later(96)
    talk.session.drain(talk.now)
    talk.obey()
    assert talk.closed is None
    talk.broker(shaken()).broker(accepted())
    assert talk.closed is not None and talk.closed.cause == "drained"


def test_a_clients_sasl_goes_nowhere(dialogue: Any) -> None:
    """It is answered at its turn, as on a listener without SASL; in versions that are not read, it closes."""
    talk = logged_in(dialogue)
    talk.session.logins.sasl = NO_SASL
    talk.client(request(HEARTBEAT, 4, 2) + request(HANDSHAKE, 1, 3, mechanism="PLAIN"))
    assert talk.to_client == b""
    talk.broker(response(HEARTBEAT, 4, 2))
    talk.client(request(AUTHENTICATE, 2, 4, auth_bytes=b"\0me\0secret"))
    said = talk.responses((HEARTBEAT, 4), (HANDSHAKE, 1), (AUTHENTICATE, 2))
    assert [one.body["error_code"] for one in said] == [0, 34, 34]
    assert sent(talk) == [HEARTBEAT]
    talk.client(b"\0\0\0\x0e\0\x11\0\x09\0\0\0\x05\0\0wxyz")
    assert talk.closed is not None and talk.closed.cause == "api_blocked"


# ---- whatever the order


class Broker:
    """Answers what it gets, one by one when told to; from SaslHandshake on it takes nothing but SaslAuthenticate."""

    def __init__(self, talk: Dialogue) -> None:
        self.talk, self.seen, self.waiting = talk, 0, deque[tuple[int, int, int]]()
        self.shaken = False
        self.logins = 0

    def look(self) -> None:
        """Read what has come whole."""
        data = self.talk.to_broker
        while len(data) - self.seen >= 4:
            end = self.seen + 4 + int.from_bytes(data[self.seen : self.seen + 4], "big")
            if end > len(data):
                return
            asked = decode_request(data[self.seen + 4 : end])
            assert not self.shaken or asked.api.key == AUTHENTICATE, "a request in the middle of a login"
            self.shaken = asked.api.key == HANDSHAKE
            self.logins += asked.api.key == AUTHENTICATE
            self.waiting.append((asked.api.key, asked.version, asked.header["correlation_id"]))
            self.seen = end

    def answer(self) -> None:
        self.look()
        if self.waiting:
            key, version, correlation = self.waiting.popleft()
            said = {HANDSHAKE: {"mechanisms": ["PLAIN"]}, AUTHENTICATE: {"session_lifetime_ms": 10_000}}
            self.talk.broker(response(key, version, correlation, **said.get(key, {})), 5)
            self.look()


STEPS = st.one_of(
    st.tuples(st.just("client"), st.integers(1, 70)),  # bytes that it sends
    st.tuples(st.just("broker"), st.integers(1, 3)),  # answers that it gives
    st.tuples(st.just("later"), st.integers(1, 40)),  # tenths of seconds
)


@settings(max_examples=100, deadline=None)
@given(st.lists(STEPS, max_size=60))
def test_any_order_of_requests_answers_and_renewals(steps: list[tuple[str, int]]) -> None:
    """Wherever a client's bytes are cut and however late a broker answers: no request comes into the middle of a login,
    and the client gets all its answers, in order, and nothing else."""
    talk = Dialogue(bound=ConnectionSettings(advertise=False, ends_sasl=True))
    broker = Broker(talk)
    talk.client(request(HEARTBEAT, 4, 0))
    talk.session.logins.logged_in(Plain(), LoggedIn(2, 10.0), talk.now)
    talk.obey()
    unsent, number = b"", 0
    for what, amount in steps:
        if what == "later":
            if not talk.session.flow.paused[0]:  # else thirty seconds may pass, which is another test's
                talk.later(amount / 10)
        elif what == "broker":
            for _ in range(amount):
                broker.answer()
        else:
            while len(unsent) < amount:
                number += 1
                unsent += request(HEARTBEAT, 4, number, member_id="m" * (number % 30))
            talk.client(unsent[:amount])
            unsent = unsent[amount:]
        broker.look()
    talk.client(unsent)
    broker.look()
    while broker.waiting:
        broker.answer()
    assert talk.closed is None and talk.session.idle
    assert talk.to_client == b"".join(response(HEARTBEAT, 4, one) for one in range(number + 1))
