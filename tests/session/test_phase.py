"""Phases of a session: real sessions take every transition of the table, and no other."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise, product
from typing import Any

import pytest

from kproxy.base.errors import InternalError
from kproxy.protocol.sasl.mechanisms import Checker
from kproxy.protocol.sasl.scram import make_line, read_users
from kproxy.session.commands import BROKER, CLIENT
from kproxy.session.plan import ConnectionSettings
from kproxy.session.sasl_server import SaslServer, SaslSettings
from kproxy.session.session_state import (
    CLOSING,
    DRAINING,
    LOGIN,
    NEW,
    OPEN,
    OVER,
    REFUSED,
    STALLED,
    TRANSITIONS,
    SessionPhase,
)
from kproxy.tools.rehearse.dialogue import Dialogue, request, response

HEARTBEAT, HANDSHAKE, VERSIONS, AUTHENTICATE = 12, 17, 18, 36
USERS = read_users(make_line("alice", "SCRAM-SHA-256", "secret", b"0123456789abcdef", 4096))
BEAT = request(HEARTBEAT, 4, 7)
LOST = "rules:\n  - {name: lost, kind: drop, match: {api: [Heartbeat, ApiVersions]}, what: response}\n"
HOLE = "rules:\n  - {name: hole, kind: blackhole}\n"


def passing(rules: str = "") -> Dialogue:
    """Return a dialogue whose client does not authenticate."""
    return Dialogue(rules)


def guarded(rules: str = "") -> Dialogue:
    """Return a dialogue whose client has to authenticate to kproxy, every ten seconds."""
    talk = Dialogue(rules, bound=ConnectionSettings(advertise=False, ends_sasl=True))
    terms = SaslSettings(("PLAIN",), Checker(lambda: USERS, b"key", lambda: "server"), session=10.0)
    talk.session.logins.serve(SaslServer(talk.session, terms))
    return talk


def shake(talk: Dialogue, mechanism: str = "PLAIN") -> Dialogue:
    return talk.client(request(HANDSHAKE, 1, 1, mechanism=mechanism))


def log_in(talk: Dialogue, password: str = "secret") -> Dialogue:
    """Let the client send a handshake and its one token."""
    return shake(talk).client(request(AUTHENTICATE, 2, 2, auth_bytes=f"\0alice\0{password}".encode()))


def drain(talk: Dialogue) -> Dialogue:
    talk.session.drain(talk.now)
    talk.obey()
    return talk


def leave(talk: Dialogue, side: int = CLIENT) -> Dialogue:
    talk.session.eof(side, talk.now)
    talk.obey()
    return talk


def refused_while_draining() -> None:
    """Let the drain begin while the password is being hashed."""
    talk = guarded()
    talk.works = []
    drain(log_in(talk, "guess")).compute().later(1)


def guarded_and_open() -> Dialogue:
    return log_in(guarded()).client(BEAT).broker(response(HEARTBEAT, 4, 7))


def refused_then_stalled() -> None:
    """Let a rule take the answer to a request from before the refusal."""
    shake(log_in(guarded(LOST)).client(BEAT).later(2), "GSSAPI").broker(response(HEARTBEAT, 4, 7))


STORIES: dict[str, tuple[Callable[[], Any], tuple[SessionPhase, ...]]] = {
    "silent": (passing, (NEW,)),
    "not Kafka": (lambda: passing().client(b"GET / HTTP/1.1\r\n"), (NEW, CLOSING)),
    "in use": (lambda: passing().client(BEAT), (NEW, OPEN)),
    "usual": (lambda: leave(passing().client(BEAT).broker(response(HEARTBEAT, 4, 7))), (NEW, OPEN, CLOSING)),
    "broker gone": (lambda: leave(passing().client(BEAT), BROKER), (NEW, OPEN, CLOSING)),
    "idle and drained": (lambda: drain(passing()), (NEW, DRAINING, CLOSING)),
    "drained in the first frame": (
        lambda: drain(passing().client(BEAT[:9])).client(BEAT[9:]).broker(response(HEARTBEAT, 4, 7)),
        (NEW, DRAINING, CLOSING),
    ),
    "draining": (lambda: drain(passing().client(BEAT)), (NEW, OPEN, DRAINING)),
    "stalled when it connects": (lambda: passing(HOLE), (NEW, STALLED)),
    "stalled": (lambda: passing(LOST).client(BEAT).broker(response(HEARTBEAT, 4, 7)), (NEW, OPEN, STALLED)),
    "stalled, then drained": (
        lambda: drain(passing(LOST).client(BEAT).broker(response(HEARTBEAT, 4, 7))),
        (NEW, OPEN, STALLED, CLOSING),
    ),
    "stalled while it drains": (
        lambda: drain(passing(LOST).client(BEAT)).broker(response(HEARTBEAT, 4, 7)),
        (NEW, OPEN, DRAINING, CLOSING),
    ),
    "guarded": (guarded, (NEW, LOGIN)),
    "not authenticated": (lambda: guarded().client(BEAT), (NEW, LOGIN, CLOSING)),
    "drained in the handshake": (lambda: drain(shake(guarded())), (NEW, LOGIN, DRAINING, CLOSING)),
    "stalled before it has authenticated": (
        lambda: guarded(LOST).client(request(VERSIONS, 0, 7)),
        (NEW, LOGIN, STALLED),
    ),
    "authenticated": (guarded_and_open, (NEW, LOGIN, NEW, OPEN)),
    "authenticated twice": (lambda: log_in(guarded_and_open().later(2)), (NEW, LOGIN, NEW, OPEN, LOGIN, OPEN)),
    "its session has ended": (
        lambda: guarded_and_open().later(10).client(BEAT),
        (NEW, LOGIN, NEW, OPEN, LOGIN, CLOSING),
    ),
    "its session has ended unused": (lambda: log_in(guarded()).later(10), (NEW, LOGIN, NEW, LOGIN)),
    "wrong password": (lambda: log_in(guarded(), "guess"), (NEW, LOGIN, REFUSED)),
    "wrong password, answered": (lambda: log_in(guarded(), "guess").later(1), (NEW, LOGIN, REFUSED, CLOSING)),
    "wrong mechanism": (lambda: shake(guarded(), "GSSAPI"), (NEW, LOGIN, REFUSED, CLOSING)),
    "wrong mechanism later": (
        lambda: shake(guarded_and_open().later(2), "GSSAPI"),
        (NEW, LOGIN, NEW, OPEN, REFUSED, CLOSING),
    ),
    "wrong mechanism later, unused": (
        lambda: shake(log_in(guarded()).later(2), "GSSAPI"),
        (NEW, LOGIN, NEW, OPEN, REFUSED, CLOSING),
    ),
    "refused while it drains": (refused_while_draining, (NEW, LOGIN, DRAINING, REFUSED, CLOSING)),
    "refused, then stalled": (refused_then_stalled, (NEW, LOGIN, NEW, OPEN, REFUSED, STALLED)),
}


@pytest.mark.parametrize("name", STORIES)
def test_a_session_goes_from_phase_to_phase(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Phases are as told, and from each of them the session ends when its connection has gone."""
    story, expected = STORIES[name]
    path = [NEW]
    sessions = []
    to = SessionPhase.to

    def noted(self: SessionPhase, phase: SessionPhase) -> SessionPhase:
        assert self is path[-1]
        path.append(phase)
        return to(self, phase)

    begin = Dialogue.__init__

    def kept(self: Dialogue, *args: Any, **settings: Any) -> None:
        sessions.append(self)
        begin(self, *args, **settings)

    monkeypatch.setattr(SessionPhase, "to", noted)
    monkeypatch.setattr(Dialogue, "__init__", kept)
    story()
    (talk,) = sessions
    assert (tuple(path), talk.session.phase) == (expected, expected[-1])
    assert (talk.closed is not None) == (CLOSING in path)
    talk.session.end(talk.now)
    talk.session.end(talk.now)
    assert tuple(path) == (*expected, OVER)


def test_every_transition_is_taken() -> None:
    """Stories together take what the table has, neither more nor less."""
    assert {pair for _, path in STORIES.values() for pair in pairwise((*path, OVER))} == set(TRANSITIONS)


def test_another_transition_is_an_internal_error() -> None:
    """Nothing else can be done to a session, whatever is called."""
    others = set(product(SessionPhase, repeat=2)) - set(TRANSITIONS)
    assert (OVER, NEW) in others
    for before, after in others:
        with pytest.raises(InternalError, match=f"a session that is {before.name} cannot become {after.name}"):
            before.to(after)
