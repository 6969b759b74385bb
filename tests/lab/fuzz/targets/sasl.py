"""Logins: tokens of every mechanism, in SaslAuthenticate bodies and bare.

- reading a name from a token gives a short text, or NoName with a reason that holds nothing of the token
- a watch of principals never raises, and names nobody before the broker has said yes
- a session passes tokens on as they came, or closes
- what kproxy says of itself when it logs in for a replay raises nothing but what is declared
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from collections.abc import Iterator

from kproxy.base.errors import InputError
from kproxy.session.commands import BROKER, CLIENT
from kproxy.session.counters import Counters
from kproxy.session.plan import ConnectionSettings
from kproxy.session.sasl.principal import DELEGATION, LONGEST, MALFORMED, NAMES, OPAQUE, NoName, PrincipalWatch
from kproxy.tools.rehearse.dialogue import Dialogue, request, response
from kproxy.tools.replay import discovery as sasl
from tests.lab.fuzz.feed import Feed

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI", "", "\x1b[2J", "x" * 60)
HANDSHAKE, AUTHENTICATE = 17, 36


def check(data: bytes) -> None:
    """One input."""
    feed = Feed(data)
    (tokens, watch, frames, bare, login)[feed.below(5)](feed)


def tokens(feed: Feed) -> None:
    """A first token alone."""
    read = NAMES[feed.pick(sorted(NAMES))]
    token = feed.rest()
    try:
        name = read(token)
    except NoName as error:
        assert str(error) in (DELEGATION, MALFORMED, OPAQUE)
        return
    assert 0 < len(name) <= LONGEST
    name.encode()


def watch(feed: Feed) -> None:
    """Decoded messages in any order."""
    seen, agreed = PrincipalWatch(None, Counters()), False
    while feed:
        match feed.below(5):
            case 0:
                seen.request(HANDSHAKE, 1, {"mechanism": feed.pick(MECHANISMS)})
            case 1:
                seen.request(AUTHENTICATE, 1, {"auth_bytes": feed.piece() or None})
            case 2:
                seen.response(HANDSHAKE, 1, {"error_code": feed.below(2)})
            case 3:
                code = feed.below(2)
                agreed |= not code
                seen.response(AUTHENTICATE, 1, {"error_code": code, "auth_bytes": feed.piece() or None})
            case _:
                side = feed.pick((CLIENT, BROKER))
                agreed |= side == BROKER
                seen.raw_token(side, feed.piece())
        assert (seen.principal is None) == bool(seen.absent)
        assert agreed or seen.principal is None
        assert len(seen.pending) <= 17


def frames(feed: Feed) -> None:
    """A session between a client and a broker that log in by frames: every byte arrives."""
    talk, number = Dialogue(bound=ConnectionSettings()), 0
    sent, said = b"", b""
    while feed and talk.closed is None:
        number += 1
        if feed.below(2):
            mechanism = feed.pick(MECHANISMS)
            asked = request(HANDSHAKE, 1, number, mechanism=mechanism)
            answer = response(HANDSHAKE, 1, number, error_code=feed.below(2))
        else:
            asked = request(AUTHENTICATE, 2, number, auth_bytes=feed.piece())
            answer = response(AUTHENTICATE, 2, number, error_code=feed.below(2), auth_bytes=feed.piece())
        cut = 1 + feed.below(40)
        talk.client(asked, cut).broker(answer, cut)
        sent, said = sent + asked, said + answer
    assert talk.closed is None
    assert (talk.to_broker, talk.to_client) == (sent, said)


def bare(feed: Feed) -> None:
    """Behind a handshake of version 0: what passes is the beginning of what was said."""
    asked = request(HANDSHAKE, 0, 1, mechanism=feed.pick(MECHANISMS))
    answer = response(HANDSHAKE, 0, 1)
    talk = Dialogue(bound=ConnectionSettings()).client(asked).broker(answer)
    said = {CLIENT: asked, BROKER: answer}
    while feed and talk.closed is None:
        side, token = feed.pick((CLIENT, BROKER)), feed.piece()
        token = token if feed.below(4) == 3 else len(token).to_bytes(4, "big") + token
        said[side] += token
        (talk.client if side == CLIENT else talk.broker)(token, 1 + feed.below(40))
    assert said[CLIENT].startswith(talk.to_broker)
    if not feed.data.count(b"\0\x12"):  # an ApiVersions request may be answered by kproxy
        assert said[BROKER].startswith(talk.to_client)
    talk.session.end(talk.now)
    assert talk.shared.requests.used == talk.shared.responses.used == 0


def login(feed: Feed) -> None:
    """kproxy's own, against a broker that says anything."""
    steps = sasl.plain("user", "password")
    next(steps)
    try:
        while True:
            steps.send(feed.piece())
    except (StopIteration, InputError):
        return


def seeds() -> Iterator[bytes]:
    """Inputs to begin with."""
    names = sorted(NAMES)
    claims = urlsafe_b64encode(json.dumps({"sub": "alice"}).encode()).strip(b"=")
    bearer = b"n,a=x,\x01auth=Bearer a." + claims + b".c\x01\x01"
    for name, token in (("PLAIN", b"\0alice\0pw"), ("SCRAM-SHA-256", b"n,,n=al=2Cice,r=abc,tokenauth=true"),
                        ("SCRAM-SHA-512", b"n,a=z,n=alice,r=abc"), ("OAUTHBEARER", bearer)):  # fmt: skip
        yield bytes((0, names.index(name))) + token
        at = MECHANISMS.index(name)
        size = bytes((len(token),))
        yield bytes((1, 0, at, 2, 0, 1)) + size + token + bytes((3, 0, 3)) + b"v=1" + bytes((1, 3)) + b"c=x\3\0\0"
        yield bytes((2, 1, at, 0, 9, 0)) + size + token + bytes((0, 0, 9))
        yield bytes((3, at, 0)) + size + token + bytes((0, 9, 1, 0, 0, 9))
    yield b"\4" + bytes((12,)) + response(HANDSHAKE, 1, 0)[4:] + bytes((30,)) + response(AUTHENTICATE, 1, 0)[4:]


WORDS = [b"n,,n=", b",r=", b"tokenauth=true", b"auth=Bearer ", b"\x01", b"\0", b"=2C", b"=3D", b"eyJzdWIiOiJhIn0"]
