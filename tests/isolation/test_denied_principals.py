"""Rules that go by who the client is, and clients that do not wait until that is known."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from kproxy.protocol.framing import framed
from kproxy.protocol.records import Record, encode_batch
from kproxy.rules.exchange import Facts
from kproxy.rules.kinds import KINDS
from kproxy.rules.kinds.base.rule import LiveRule
from kproxy.rules.select.frame_match import FrameMatch
from kproxy.tools.rehearse.dialogue import Dialogue, request, response

METADATA, HANDSHAKE, AUTHENTICATE, FETCH = 3, 17, 36, 1
DENY = 'rules: [{name: r, kind: deny, match: {topic: "secret*", principal: bob}}]'
ALLOW = 'rules: [{name: r, kind: deny, match: {topic: "secret*"}, not: {principal: alice}}]'
SECRET = b"secret.x"


def wants(correlation: int) -> bytes:
    return request(METADATA, 9, correlation, topics=[{"name": SECRET.decode()}])


def login(correlation: int, name: str = "bob") -> tuple[bytes, bytes]:
    """Handshake and token, as a client sends them."""
    token = b"\0" + name.encode() + b"\0password"
    return (
        request(HANDSHAKE, 1, correlation, mechanism="PLAIN"),
        request(AUTHENTICATE, 2, correlation + 1, auth_bytes=token),
    )


def accept(talk: Dialogue, correlation: int) -> None:
    """The broker's answers to a login."""
    talk.broker(response(HANDSHAKE, 1, correlation, mechanisms=["PLAIN"]))
    talk.broker(response(AUTHENTICATE, 2, correlation + 1, auth_bytes=b""))


@pytest.mark.parametrize("chunk", [0, 1])
@pytest.mark.parametrize("rules", [DENY, ALLOW], ids=["deny", "allow-list"])
def test_a_request_behind_a_login_waits_for_its_answer(rules: str, chunk: int) -> None:
    """All in one write: what comes behind the token is judged when the broker has said who that is."""
    talk = Dialogue(rules)
    talk.client(b"".join((*login(1), wants(3))), chunk)
    accept(talk, 1)
    talk.broker(response(METADATA, 9, 3))

    assert SECRET not in talk.to_broker
    assert talk.closed is None and len(talk.responses((17, 1), (36, 2), (3, 9))) == 3


def test_added_principal_is_that_of_a_pipelined_login() -> None:
    """A Produce that follows the token waits until the broker has accepted it."""
    talk = Dialogue('rules: [{name: r, kind: add_header, headers: {x-principal: "<{principal}>"}}]')
    data = [{"name": "t", "partition_data": [{"index": 0, "records": encode_batch([Record(0, 0, None, b"v")])}]}]
    talk.client(b"".join((*login(1), request(0, 9, 3, acks=1, topic_data=data))))
    assert b"x-principal" not in talk.to_broker
    accept(talk, 1)

    assert b"x-principal\x0a<bob>" in talk.to_broker


def test_who_is_allowed_waits_no_longer_than_that() -> None:
    """The same for a principal that the rule is not about."""
    talk = Dialogue(DENY)
    talk.client(b"".join((*login(1, "alice"), wants(3))))
    assert SECRET not in talk.to_broker
    accept(talk, 1)

    assert SECRET in talk.to_broker


def test_a_second_login_is_waited_for_too() -> None:
    """Alice may; the connection then becomes Bob's, and what is sent with that login is Bob's."""
    talk = Dialogue(DENY)
    talk.client(b"".join(login(1, "alice")))
    accept(talk, 1)
    talk.client(wants(3))
    assert talk.to_broker.count(SECRET) == 1
    talk.broker(response(METADATA, 9, 3))
    talk.client(b"".join((*login(4), wants(6))))
    accept(talk, 4)

    assert talk.to_broker.count(SECRET) == 1


def test_a_bare_token_is_waited_for() -> None:
    """After a handshake of version 0 the token comes without a header."""
    talk = Dialogue(DENY)
    talk.client(request(HANDSHAKE, 0, 1, mechanism="PLAIN"))
    talk.broker(response(HANDSHAKE, 0, 1, mechanisms=["PLAIN"]))
    talk.client(framed(b"\0bob\0password") + wants(2))
    assert SECRET not in talk.to_broker
    talk.broker(framed(b""))
    talk.broker(response(METADATA, 9, 2))

    assert SECRET not in talk.to_broker and talk.closed is None


def test_nobody_is_forgotten_by_too_many_tokens() -> None:
    """A broker refuses tokens without a handshake and keeps the connection: it stays Bob's, or ends."""
    talk = Dialogue(DENY)
    talk.client(b"".join(login(1)))
    accept(talk, 1)
    more = [request(AUTHENTICATE, 2, number, auth_bytes=b"x") for number in range(3, 40)]
    talk.client(b"".join(more) + wants(40))
    for number in range(3, 40):
        if talk.closed is None:
            talk.broker(response(AUTHENTICATE, 2, number, error_code=34))

    assert SECRET not in talk.to_broker


def test_who_cannot_be_known_is_not_served() -> None:
    """Messages of SASL that cannot be read: the connection ends at the next request that such a rule may be about."""
    talk = Dialogue(DENY)
    head = (AUTHENTICATE).to_bytes(2, "big") + (2).to_bytes(2, "big") + (1).to_bytes(4, "big") + b"\xff\xff\x00"
    talk.client(framed(head + b"\xff\xff\xff\xff\xff") + wants(2))

    assert SECRET not in talk.to_broker and talk.closed is not None
    assert talk.closed.cause == "authentication"


def jwt(name: str) -> bytes:
    claims = urlsafe_b64encode(json.dumps({"sub": name}).encode()).rstrip(b"=")
    return b"eyJhbGciOiJSUzI1NiJ9." + claims + b".c2ln"


@pytest.mark.parametrize(
    ("mechanism", "tokens"),
    [
        ("SCRAM-SHA-256", [(b"n,,n=bob,r=x,TOKENAUTH=true", b"r=xy,s=c2FsdA==,i=4096"), (b"c=biws", b"v=x")]),
        ("SCRAM-SHA-256", [(b"n,,n=bob,r=x,tokenauth=true,tokenauth=no", b"r=xy,s=c2E=,i=4096"), (b"c=biws", b"v=x")]),
        ("OAUTHBEARER", [(b"n,,\x01auth=Bearer " + jwt("bob") + b"\x01auth=Bearer " + jwt("bob") + b"\x01\x01", b"")]),
        ("OAUTHBEARER", [(b"n,,\x01auth=Bearer " + jwt("bob") + b"\x01AUTH=Bearer x\x01\x01", b"")]),
        ("PLAIN", [(b"\0" + b"b" * 2000 + b"\0password", b"")]),
    ],
    ids=["an unknown extension", "an extension twice", "a token twice", "a second key", "a long name"],
)
def test_an_odd_token_that_the_broker_accepts_does_not_hide_who_it_is(
    mechanism: str, tokens: list[tuple[bytes, bytes]]
) -> None:
    """Brokers take the last of several extensions or keys and ignore those they do not know. Who it is that kproxy
    cannot read is not served where a rule goes by it."""
    talk = Dialogue(DENY)
    talk.client(request(HANDSHAKE, 1, 1, mechanism=mechanism))
    talk.broker(response(HANDSHAKE, 1, 1, mechanisms=[mechanism]))
    for number, (token, answer) in enumerate(tokens, 2):
        talk.client(request(AUTHENTICATE, 2, number, auth_bytes=token))
        talk.broker(response(AUTHENTICATE, 2, number, auth_bytes=answer))
    talk.client(wants(9))

    assert SECRET not in talk.to_broker


@pytest.mark.parametrize(
    ("asked", "refused"),
    [
        (request(HANDSHAKE, 1, 1, mechanism="PLAIN"), response(HANDSHAKE, 1, 1, error_code=34)),
        (request(HANDSHAKE, 0, 1, mechanism="PLAIN"), response(HANDSHAKE, 0, 1, error_code=34)),
        (request(AUTHENTICATE, 2, 1, auth_bytes=b"x"), response(AUTHENTICATE, 2, 1, error_code=34)),
    ],
    ids=["handshake", "bare handshake", "token"],
)
def test_a_login_where_there_is_none_does_not_hide_whose_certificate_it_is(asked: bytes, refused: bytes) -> None:
    """Brokers answer ILLEGAL_SASL_STATE on a listener without SASL, and go on with the connection."""
    talk = Dialogue(DENY.replace("bob", "CN=bob"), facts=Facts("l", "c", "n", certificate="CN=bob"))
    talk.client(asked)
    talk.broker(refused)
    talk.client(wants(9))

    assert SECRET not in talk.to_broker


TOKEN = ("SCRAM-SHA-256", [(b"n,,n=tokenid,r=x,tokenauth=true", b"r=xy,s=c2FsdA==,i=4096"), (b"c=biws", b"v=x")])
LIMITS = {
    "deny": '{name: r, kind: deny, match: {topic: "secret*", principal: bob}}',
    "allow-list": '{name: r, kind: deny, match: {topic: "secret*"}, not: {principal: alice}}',
    "read_only": '{name: r, kind: read_only, match: {topic: "secret*", principal: bob}}',
    "require": "{name: r, kind: require, client_id: nobodys, match: {principal: bob}}",
}


@pytest.mark.parametrize("rule", LIMITS)
def test_a_delegation_token_is_no_way_around_a_rule_about_its_owner(rule: str) -> None:
    """Bob may make himself a token at the broker, and log in with it: its name is not his."""
    talk = Dialogue(f"rules: [{LIMITS[rule]}]")
    mechanism, tokens = TOKEN
    talk.client(request(HANDSHAKE, 1, 1, mechanism=mechanism))
    talk.broker(response(HANDSHAKE, 1, 1, mechanisms=[mechanism]))
    for number, (token, answer) in enumerate(tokens, 2):
        talk.client(request(AUTHENTICATE, 2, number, auth_bytes=token))
        talk.broker(response(AUTHENTICATE, 2, number, auth_bytes=answer))
    before = len(talk.to_broker)
    talk.client(request(20, 6, 9, topics=[{"name": SECRET.decode(), "topic_id": UUID(int=0)}]))
    assert SECRET not in talk.to_broker
    assert talk.closed is None
    talk.client(request(20, 6, 10, topics=[{"name": "other", "topic_id": UUID(int=0)}]))

    assert (len(talk.to_broker) > before) is (rule != "require")


@pytest.mark.parametrize("kind", [kind for kind in KINDS if issubclass(KINDS[kind], LiveRule)])
def test_kinds_that_limit_suspect_whoever_may_be_anyone(kind: str) -> None:
    """No model that is set up in a way of its own forgets it; a fault is for whom it names."""
    made = KINDS[kind].model_construct(match=FrameMatch(principal=["bob"]), networks=[])
    somebody: Any = SimpleNamespace(principal=None, is_anyone=True)

    limiting = ("deny", "read_only", "require", "allow_from", "quota", "mask", "filter_records")
    assert made.match.holds_frame(somebody) is (kind in limiting)


def test_without_such_a_rule_nobody_waits() -> None:
    """Other rules, and none, let a client send behind its login as ever."""
    for rules in ("", 'rules: [{name: r, kind: deny, match: {topic: "other*"}}]'):
        talk = Dialogue(rules)
        frames = b"".join((*login(1), wants(3)))
        assert talk.client(frames).to_broker == frames
