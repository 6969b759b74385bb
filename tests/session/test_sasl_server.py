"""A client that authenticates to kproxy, as it and the broker see it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kproxy.protocol.sasl.mechanisms import BAD_PLAIN, Checker, LoginWork, ScramClient
from kproxy.protocol.sasl.scram import Users, make_line, read_users
from kproxy.session.commands import BROKER, CLIENT, Dial
from kproxy.session.plan import ConnectionSettings
from kproxy.session.sasl_server import SaslServer, SaslSettings
from kproxy.tools.rehearse.dialogue import Dialogue, frames, request, response

HANDSHAKE, VERSIONS, AUTHENTICATE, HEARTBEAT, METADATA = 17, 18, 36, 12, 3
SALT = b"0123456789abcdef"
USERS = read_users("\n".join(make_line(name, "SCRAM-SHA-256", "secret", SALT, 4096) for name in ("alice", "bob")))
RIGHT, WRONG = b"\0alice\0secret", b"\0alice\0guess"


def begin(dialogue: Any, **settings: Any) -> Dialogue:
    """A connection that has just opened."""
    talk: Dialogue = dialogue(ConnectionSettings(advertise=False, ends_sasl=True))
    checker = Checker(lambda: USERS, b"key", lambda: "server")
    terms = SaslSettings(("PLAIN", "SCRAM-SHA-256"), checker, **settings)
    talk.session.logins.serve(SaslServer(talk.session, terms))
    return talk


def shake(correlation: int = 1, version: int = 1, mechanism: str = "PLAIN") -> bytes:
    return bytes(request(HANDSHAKE, version, correlation, mechanism=mechanism))


def show(token: bytes = RIGHT, correlation: int = 2, version: int = 2) -> bytes:
    return bytes(request(AUTHENTICATE, version, correlation, auth_bytes=token))


def logged_in(dialogue: Any, **settings: Any) -> Dialogue:
    """One that has authenticated as alice."""
    talk = begin(dialogue, **settings).client(shake()).client(show())
    first, second = talk.responses((HANDSHAKE, 1), (AUTHENTICATE, 2))
    assert (first.body["error_code"], second.body["error_code"]) == (0, 0)
    talk.out[CLIENT].clear()
    return talk


def answers(talk: Dialogue, *asked: tuple[int, int]) -> list[dict[str, Any]]:
    """The bodies of what has come for the client since the last look."""
    bodies = [message.body for message in talk.responses(*asked)]
    talk.out[CLIENT].clear()
    return bodies


@pytest.mark.parametrize("chunk", [0, 1, 7])
def test_plain(dialogue: Any, chunk: int) -> None:
    """All is answered in order before the broker is dialled; then frames pass; the client is known."""
    talk = begin(dialogue)
    versions, asked = request(VERSIONS, 0, 0), request(HEARTBEAT, 4, 3)
    talk.client(versions + shake() + show() + asked, chunk)
    assert len(frames(talk.to_client)) == 3
    assert talk.to_broker == asked
    talk.broker(response(HEARTBEAT, 4, 3), chunk)
    said = answers(talk, (VERSIONS, 0), (HANDSHAKE, 1), (AUTHENTICATE, 2), (HEARTBEAT, 4))
    assert said[1] == {"error_code": 0, "mechanisms": ["PLAIN", "SCRAM-SHA-256"]}
    assert said[2] == {"error_code": 0, "error_message": None, "auth_bytes": b"", "session_lifetime_ms": 0}
    assert talk.session.identity.principal == "alice"
    assert talk.session.idle and talk.closed is None
    assert talk.shared.counters.events["client_logins"] == 1


@pytest.mark.parametrize("version", [0, 3])
def test_clients_are_told_that_there_is_sasl(dialogue: Any, version: int) -> None:
    """Whatever the broker has of it: librdkafka does not begin otherwise, and it is kproxy that takes part."""
    for listed, expected in (
        ([(3, 0, 12)], [(3, 0, 12), (17, 0, 1), (36, 0, 2)]),
        ([(3, 0, 12), (17, 0, 9), (18, 0, 4), (36, 1, 9)], [(3, 0, 12), (17, 0, 1), (18, 0, 4), (36, 0, 2)]),
    ):
        keys = [{"api_key": key, "min_version": low, "max_version": high} for key, low, high in listed]
        talk = begin(dialogue)
        talk.versions = lambda asked, keys=keys: response(VERSIONS, asked.version, 9, api_keys=keys)[8:]
        talk.client(request(VERSIONS, version, 1))
        (said,) = answers(talk, (VERSIONS, version))
        assert [(one["api_key"], one["min_version"], one["max_version"]) for one in said["api_keys"]] == expected
    refused, talk = response(VERSIONS, version, 1, error_code=35, api_keys=[]), begin(dialogue)
    talk.versions = lambda asked: refused[8:]
    talk.client(request(VERSIONS, version, 1))
    assert talk.to_client == refused
    assert (talk.to_broker, talk.session.requests.is_new) == (b"", True)


def test_the_broker_hears_nothing_before(dialogue: Any) -> None:
    """It is not even connected to before there is something for it."""
    talk = begin(dialogue).client(shake()).client(show())
    assert talk.session.requests.is_new
    talk.client(request(HEARTBEAT, 4, 3))
    assert sum(isinstance(one, Dial) for one in talk.log) == 1
    assert talk.to_broker == request(HEARTBEAT, 4, 3)


def test_scram(dialogue: Any) -> None:
    """Two tokens, and the client finds the server's signature right."""
    talk = begin(dialogue).client(shake(mechanism="SCRAM-SHA-256"))
    tokens = ScramClient("SCRAM-SHA-256", "alice", "secret", lambda: "client").tokens()
    talk.client(show(next(tokens), 2))
    _, said = answers(talk, (HANDSHAKE, 1), (AUTHENTICATE, 2))
    talk.client(show(tokens.send(bytes(said["auth_bytes"])), correlation=3))
    (said,) = answers(talk, (AUTHENTICATE, 2))
    with pytest.raises(StopIteration):
        tokens.send(bytes(said["auth_bytes"]))
    assert talk.session.identity.principal == "alice"


@pytest.mark.parametrize("chunk", [0, 1])
def test_bare_tokens(dialogue: Any, chunk: int) -> None:
    """After a handshake of version 0 tokens have no headers, either way (KIP-43); a wrong one just ends it."""
    token = len(RIGHT).to_bytes(4, "big") + RIGHT
    talk = begin(dialogue).client(shake(version=0) + token + request(HEARTBEAT, 4, 2), chunk)
    handshake = response(HANDSHAKE, 0, 1, mechanisms=["PLAIN", "SCRAM-SHA-256"])
    assert talk.to_client == handshake + b"\0\0\0\0"
    assert talk.to_broker == request(HEARTBEAT, 4, 2)
    assert talk.session.identity.principal == "alice"

    talk = begin(dialogue).client(shake(version=0) + len(WRONG).to_bytes(4, "big") + WRONG, chunk).later(1)
    assert talk.to_client == handshake
    assert talk.closed is not None and talk.closed.cause == "authentication"


def test_a_wrong_password(dialogue: Any) -> None:
    """After a while error 58 in Kafka's words, then the end; what comes behind it goes nowhere; no secret is told."""
    talk = begin(dialogue).client(shake() + show(WRONG) + request(METADATA, 4, 3))
    talk.later(0.05)
    assert len(answers(talk, (HANDSHAKE, 1))) == 1
    assert talk.closed is None
    talk.later(0.06)
    (said,) = answers(talk, (AUTHENTICATE, 2))
    assert (said["error_code"], said["error_message"]) == (58, BAD_PLAIN)
    assert talk.closed is not None
    assert (talk.closed.cause, talk.closed.blame) == ("authentication", "client")
    assert talk.closed.message == 'authentication failed: wrong password of user "alice" (PLAIN)'
    assert (talk.to_broker, talk.session.identity.principal) == (b"", None)
    assert talk.session.identity.outcome is not None and talk.session.identity.outcome.error == 58
    assert talk.shared.counters.events["client_logins_refused"] == 1


@pytest.mark.parametrize("chunk", [0, 1])
@pytest.mark.parametrize("version", [0, 1])
def test_what_comes_while_a_password_is_hashed(dialogue: Any, version: int, chunk: int) -> None:
    """It waits, and is not even dialled for; a timer that comes due changes nothing."""
    token, asked = len(RIGHT).to_bytes(4, "big") + RIGHT, request(HEARTBEAT, 4, 3)
    talk = begin(dialogue)
    talk.works = []
    talk.client(shake(version=version) + (show() if version else token) + asked, chunk).later(1)
    assert len(talk.works) == 1
    assert len(frames(talk.to_client)) == 1
    assert (talk.session.requests.is_new, talk.read[CLIENT], talk.session.identity.principal) == (True, False, None)
    talk.compute()
    assert (talk.to_broker, talk.read[CLIENT], talk.session.identity.principal) == (asked, True, "alice")
    assert len(frames(talk.to_client)) == 2


def test_a_password_that_is_hashed_again_later(dialogue: Any) -> None:
    """The session is renewed with another password, which is right, too: what is in flight is answered meanwhile."""
    talk = logged_in(dialogue, session=10.0).later(8).client(request(HEARTBEAT, 4, 3))
    talk.session.logins.server.terms.checker.proved.clear()
    talk.works = []
    talk.client(shake(4) + show(RIGHT, 5) + request(HEARTBEAT, 4, 6))
    talk.broker(response(HEARTBEAT, 4, 3))
    assert len(answers(talk, (HEARTBEAT, 4), (HANDSHAKE, 1))) == 2
    assert talk.to_broker == request(HEARTBEAT, 4, 3)
    talk.compute()
    assert answers(talk, (AUTHENTICATE, 2))[0]["session_lifetime_ms"] == 10_000
    assert talk.to_broker.endswith(request(HEARTBEAT, 4, 6))


@pytest.mark.parametrize("behind", [False, True])
@pytest.mark.parametrize("token", [RIGHT, WRONG])
def test_a_client_that_says_no_more_while_its_password_is_hashed(dialogue: Any, token: bytes, behind: bool) -> None:
    """It is in flight: the right password is answered, and what was asked behind it goes on; a wrong one is counted."""
    talk, asked = begin(dialogue), request(HEARTBEAT, 4, 3) if behind else b""
    talk.works = []
    talk.client(shake() + show(token) + asked)
    talk.session.eof(CLIENT, talk.now)
    talk.obey()
    assert (talk.closed, talk.session.idle) == (None, False)
    talk.compute().later(1)
    if token == RIGHT:
        assert [one["error_code"] for one in answers(talk, (HANDSHAKE, 1), (AUTHENTICATE, 2))] == [0, 0]
        assert talk.to_broker == asked
        assert (talk.closed is None) == behind
        assert talk.closed is None or talk.closed.cause == "client_closed"
    else:
        assert talk.to_broker == b""
        assert talk.closed is not None and talk.closed.cause == "authentication"
        assert talk.shared.counters.events["client_logins_refused"] == 1


def test_a_password_that_is_hashed_is_answered_before_a_drain_ends(dialogue: Any) -> None:
    """As any request in flight."""
    talk = begin(dialogue)
    talk.works = []
    talk.client(shake() + show())
    talk.session.drain(talk.now)
    talk.obey()
    assert talk.closed is None
    talk.compute()
    assert [one["error_code"] for one in answers(talk, (HANDSHAKE, 1), (AUTHENTICATE, 2))] == [0, 0]
    assert talk.closed is not None and talk.closed.cause == "drained"


def test_a_refusal_waits_for_its_turn(dialogue: Any) -> None:
    """The answer to what was asked before comes first."""
    talk = begin(dialogue)
    talk.versions = None
    talk.client(request(VERSIONS, 0, 0) + shake() + show(WRONG)).later(1)
    assert (talk.to_client, talk.closed, talk.read[CLIENT]) == (b"", None, False)
    talk.session.logins.versions_known(response(VERSIONS, 0, 0)[8:], talk.now)
    talk.obey()
    talk.later(1)
    assert [one["error_code"] for one in answers(talk, (VERSIONS, 0), (HANDSHAKE, 1), (AUTHENTICATE, 2))] == [0, 0, 58]
    assert talk.closed is not None


def test_a_client_that_does_not_wait_for_its_refusal(dialogue: Any) -> None:
    """It is told in the log all the same."""
    talk = begin(dialogue).client(shake() + show(WRONG))
    assert not talk.session.settled
    talk.session.eof(CLIENT, talk.now)
    talk.obey()
    assert talk.closed is not None and "wrong password" in talk.closed.message


def test_a_mechanism_that_is_not_offered(dialogue: Any) -> None:
    """Error 33 with those that are, then the end, as a broker does it."""
    for version in (0, 1):
        talk = begin(dialogue).client(shake(version=version, mechanism="GSSAPI"))
        (said,) = answers(talk, (HANDSHAKE, version))
        assert said == {"error_code": 33, "mechanisms": ["PLAIN", "SCRAM-SHA-256"]}
        assert talk.closed is not None and talk.closed.cause == "authentication"
        assert "GSSAPI" not in talk.closed.message


@pytest.mark.parametrize(
    ("sent", "cause", "reason"),
    [
        ("metadata", "unauthenticated", "Metadata came before authentication, expected ApiVersions or SaslHandshake"),
        ("token", "unauthenticated", "SaslAuthenticate came before authentication, expected ApiVersions or SaslHandsh"),
        ("unknown", "unauthenticated", "API key 9999 came before authentication"),
        ("twice", "unauthenticated", "SaslHandshake came before authentication, expected SaslAuthenticate"),
        ("versions", "unauthenticated", "ApiVersions came before authentication, expected SaslAuthenticate"),
        ("gssapi", "unauthenticated", "API key 24704 came before authentication"),
        ("long", "frame_size", "request frame of 16385 bytes"),
        ("negative", "frame_size", "request frame of -1 bytes"),
        ("tls", "not_kafka", "client speaks TLS"),
        ("cut", "decode", "SaslHandshake v1 "),
    ],
)
def test_what_may_not_come_before(dialogue: Any, sent: str, cause: str, reason: str) -> None:
    """The connection closes with a line that says what came; nothing of it reaches the broker."""
    data = {
        "metadata": request(METADATA, 4, 1),
        "token": show(),
        "unknown": b"\0\0\0\x0c\x27\x0f\0\0\0\0\0\1\0\0\0\0",
        "twice": shake() + shake(2),
        "versions": shake() + request(VERSIONS, 0, 2),
        "gssapi": b"\0\0\0\x0c\x60\x80" + b"\0" * 10,
        "long": (16385).to_bytes(4, "big") + bytes(20),
        "negative": b"\xff" * 20,
        "tls": b"\x16\x03\x01\x02\x00" + bytes(20),
        "cut": b"\0\0\0\x0c" + shake()[4:14] + b"\0\x07",
    }[sent]
    talk = begin(dialogue).client(data + request(METADATA, 4, 9))
    assert talk.closed is not None
    assert (talk.closed.cause, talk.closed.blame) == (cause, "client")
    assert talk.closed.message.startswith(reason)
    assert talk.to_broker == b""


def test_who_is_not_known_takes_no_memory_of_others(dialogue: Any) -> None:
    """A frame that is not whole takes none of the memory for held frames, and is waited for as long as for a header."""
    talk = begin(dialogue).client((16000).to_bytes(4, "big") + request(VERSIONS, 3, 1)[4:])
    assert talk.shared.requests.used == 0
    assert talk.session.waiting_since == talk.now
    before = talk.now
    talk.later(1).client(b"x" * 100)
    assert talk.session.waiting_since == before


def test_sasl_afterwards(dialogue: Any) -> None:
    """Where sessions have no end there is no second login, and a token needs a handshake: ILLEGAL_SASL_STATE."""
    talk = logged_in(dialogue).client(shake(3) + show(RIGHT, 4))
    assert [one["error_code"] for one in answers(talk, (HANDSHAKE, 1), (AUTHENTICATE, 2))] == [34, 34]
    assert talk.closed is None


def test_a_client_authenticates_again(dialogue: Any) -> None:
    """In time, among other requests (KIP-368): the session lasts longer. Too soon after the last time: error 34."""
    talk = logged_in(dialogue, session=10.0).later(0.5).client(shake(3))
    assert answers(talk, (HANDSHAKE, 1))[0]["error_code"] == 34
    for number in (1, 2, 3):
        talk.later(8).client(request(HEARTBEAT, 4, number) + shake(3) + show(RIGHT, 4))
        assert talk.to_client == b""
        talk.client(request(HEARTBEAT, 4, 5))
        talk.broker(response(HEARTBEAT, 4, number) + response(HEARTBEAT, 4, 5))
        said = answers(talk, (HEARTBEAT, 4), (HANDSHAKE, 1), (AUTHENTICATE, 2), (HEARTBEAT, 4))
        assert said[2]["session_lifetime_ms"] == 10_000
    assert talk.closed is None


def test_a_session_ends(dialogue: Any) -> None:
    """Answers that are due still come; the next request closes, a SaslHandshake does not."""
    talk = logged_in(dialogue, session=10.0).client(request(HEARTBEAT, 4, 3)).later(11)
    talk.broker(response(HEARTBEAT, 4, 3))
    assert len(answers(talk, (HEARTBEAT, 4))) == 1
    talk.client(shake(4) + show(RIGHT, 5))
    assert [one["error_code"] for one in answers(talk, (HANDSHAKE, 1), (AUTHENTICATE, 2))] == [0, 0]
    talk.later(11).client(request(HEARTBEAT, 4, 6))
    assert talk.closed is not None
    ended = 'the session of user "alice" has ended after 10 s, and Heartbeat came, not SaslHandshake'
    assert (talk.closed.cause, talk.closed.message) == ("unauthenticated", ended)
    assert talk.shared.counters.events["client_sessions_ended"] == 1


def test_a_frame_that_is_under_way_when_a_session_ends(dialogue: Any) -> None:
    """Its beginning has left, so its rest follows."""
    talk = logged_in(dialogue, session=10.0)
    long = request(HEARTBEAT, 4, 3, member_id="x" * 3000)
    talk.client(long[:1000]).later(11).client(long[1000:])
    assert talk.to_broker == long
    talk.client(request(HEARTBEAT, 4, 4))
    assert talk.closed is not None and talk.to_broker == long


@pytest.mark.parametrize(
    ("again", "code", "why"),
    [
        ((b"\0bob\0secret", "PLAIN"), 58, 'user "alice" authenticates again as another one'),
        ((b"", "SCRAM-SHA-256"), 33, "a SASL mechanism that is not one of PLAIN"),
        ((WRONG, "PLAIN"), 58, "wrong password"),
    ],
)
def test_nobody_becomes_another_one(dialogue: Any, again: tuple[bytes, str], code: int, why: str) -> None:
    """User and mechanism stay what they were, as at a broker; else the connection ends."""
    token, mechanism = again
    talk = logged_in(dialogue, session=10.0).later(5).client(shake(3, mechanism=mechanism))
    if talk.closed is None:
        talk.client(show(token, 4)).later(1)
    asked = [(HANDSHAKE, 1), (AUTHENTICATE, 2)][: 2 if code == 58 else 1]
    assert answers(talk, *asked)[-1]["error_code"] == code
    assert talk.closed is not None and why in talk.closed.message


def test_rules_see_who_it_is() -> None:
    """A rule on principals holds for the client that has authenticated here, and for no other."""
    rules = "rules: [{name: n, kind: deny, match: {api: Heartbeat, principal: alice}}]"
    for name, code in (("alice", 30), ("bob", 0)):
        talk = Dialogue(rules)
        checker = Checker(lambda: USERS, b"key", lambda: "server")
        talk.session.logins.serve(SaslServer(talk.session, SaslSettings(("PLAIN",), checker)))
        talk.client(shake() + show(f"\0{name}\0secret".encode()))
        talk.client(request(HEARTBEAT, 4, 3, group_id="g"))
        if not code:
            talk.broker(response(HEARTBEAT, 4, 3))
        said = talk.responses((HANDSHAKE, 1), (AUTHENTICATE, 2), (HEARTBEAT, 4))
        assert [one.body["error_code"] for one in said] == [0, 0, code]


def test_a_rule_that_delays_everything() -> None:
    """Authentication waits like all else, and comes through."""
    talk = Dialogue("rules: [{name: slow, kind: delay, delay: 1s}]")
    checker = Checker(lambda: USERS, b"key", lambda: "server")
    talk.session.logins.serve(SaslServer(talk.session, SaslSettings(("PLAIN",), checker)))
    talk.client(shake() + show()).later(5)
    assert [one.body["error_code"] for one in talk.responses((HANDSHAKE, 1), (AUTHENTICATE, 2))] == [0, 0]
    talk.client(request(HEARTBEAT, 4, 3)).later(1.1)
    assert bytes(talk.out[BROKER]) == request(HEARTBEAT, 4, 3)


# ---- whatever comes

PIECES = st.one_of(
    st.sampled_from(
        [
            request(VERSIONS, 0, 1), request(VERSIONS, 3, 2), request(HANDSHAKE, 1, 3, mechanism="PLAIN"),
            request(HANDSHAKE, 0, 4, mechanism="PLAIN"), request(HANDSHAKE, 1, 5, mechanism="SCRAM-SHA-256"),
            request(AUTHENTICATE, 2, 6, auth_bytes=WRONG), request(AUTHENTICATE, 0, 7, auth_bytes=b"n,,n=alice,r=x"),
            request(AUTHENTICATE, 2, 8, auth_bytes=b"c=biws,r=xserver,p=AAAA"), request(METADATA, 4, 9),
            request(0, 9, 10), b"\0\0\0\0", b"\0\0\0\x02hi", b"\0\0\0\x01",
        ]
    ),
    st.binary(max_size=40),
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.lists(PIECES, max_size=8), st.integers(0, 9))
def test_nothing_reaches_the_broker_without_the_password(pieces: list[bytes], chunk: int) -> None:
    """Whatever a client without it sends, in pieces of any size: the broker is not even dialled, nobody is taken for
    somebody, and it comes to the same however it is cut, and however long passwords take to hash."""
    ends = []
    for size, prompt in ((0, True), (chunk, True), (chunk, False)):
        talk = Dialogue(bound=ConnectionSettings(advertise=False, ends_sasl=True))
        checker = Checker(lambda: USERS, b"key", lambda: "server")
        talk.session.logins.serve(SaslServer(talk.session, SaslSettings(("PLAIN", "SCRAM-SHA-256"), checker)))
        talk.works = None if prompt else []
        for piece in pieces:
            if talk.closed is None:
                talk.client(piece, size)
        talk.compute().later(1)
        assert (talk.to_broker, talk.session.requests.is_new) == (b"", True)
        assert talk.session.identity.principal is None
        ends.append((talk.to_broker, talk.to_client, talk.closed and talk.closed.cause))
    assert ends[0] == ends[1] == ends[2]


@pytest.mark.parametrize("name", ["alice", "nobody"])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_users_that_have_to_be_read_are_read_beside_the_traffic(dialogue: Any, mechanism: str, name: str) -> None:
    """Nothing is answered until then; it goes on as it would have, for a user who is there or not."""
    talk: Dialogue = dialogue(ConnectionSettings(advertise=False, ends_sasl=True))
    reads: list[Users] = []

    def read() -> Users:
        reads.append(USERS)
        return USERS

    checker = Checker(lambda: LoginWork(read), b"key", lambda: "server")
    talk.session.logins.serve(SaslServer(talk.session, SaslSettings(("PLAIN", "SCRAM-SHA-256"), checker)))
    talk.works = []
    tokens = ScramClient("SCRAM-SHA-256", name, "secret", lambda: "client").tokens()
    token = f"\0{name}\0secret".encode() if mechanism == "PLAIN" else next(tokens)
    talk.client(shake(mechanism=mechanism)).client(show(token))
    assert (len(talk.works), len(frames(talk.to_client)), reads) == (1, 1, [])

    talk.compute().later(1)
    *_, said = answers(talk, (HANDSHAKE, 1), (AUTHENTICATE, 2))
    if mechanism != "PLAIN":
        talk.client(show(tokens.send(bytes(said["auth_bytes"])), correlation=3)).later(1)
        (said,) = answers(talk, (AUTHENTICATE, 2))
    assert said["error_code"] == (0 if name == "alice" else 58)
    assert reads == [USERS]
