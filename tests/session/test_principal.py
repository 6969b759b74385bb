"""Who the client is: by what real clients and a real broker said to each other, and by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy.protocol import decode_request, decode_response
from kproxy.session.commands import BROKER, CLIENT
from kproxy.session.counters import Counters
from kproxy.session.sasl.principal import (
    DELEGATION,
    LOST,
    MALFORMED,
    NOBODY,
    NOT_YET,
    REFUSED,
    Principal,
    PrincipalWatch,
    SaslDialogue,
)

CAPTURED = json.loads((Path(__file__).parent / "golden" / "sasl.json").read_text())
"""Client, mechanism and outcome → frames of SASL, 0 the client's and 1 the broker's (Kafka 4.3)."""
HANDSHAKE, AUTHENTICATE = 17, 36
SOURCES = {"PLAIN": "PLAIN", "SCRAM-SHA-256": "SCRAM", "SCRAM-SHA-512": "SCRAM", "OAUTHBEARER": "OAUTHBEARER"}


def watch(certificate: str | None = None) -> PrincipalWatch:
    return PrincipalWatch(certificate, Counters())


def handshake(seen: PrincipalWatch, mechanism: str, error: int = 0, version: int = 1) -> None:
    seen.request(HANDSHAKE, version, {"mechanism": mechanism})
    seen.response(HANDSHAKE, version, {"error_code": error, "mechanisms": []})


def token(seen: PrincipalWatch, sent: bytes, said: bytes = b"", error: int = 0) -> None:
    seen.request(AUTHENTICATE, 2, {"auth_bytes": sent})
    seen.response(AUTHENTICATE, 2, {"error_code": error, "auth_bytes": said})


@pytest.mark.parametrize("label", CAPTURED)
def test_real_clients(label: str) -> None:
    """The name is there after the last answer and not before it; never, when the broker refuses."""
    mechanism, outcome = label.split()[1:]
    seen = watch()
    asked = []
    for side, frame_hex in CAPTURED[label]:
        frame = bytes.fromhex(frame_hex)
        assert seen.principal is None
        if side == 0:
            message = decode_request(frame)
            asked.append(message)
            seen.request(message.api.key, message.version, message.body)
        else:
            key, version = asked[-1].api.key, asked[-1].version
            seen.response(key, version, decode_response(frame, key, version).body)

    expected = Principal("alice", SOURCES[mechanism]) if outcome == "ok" else None
    assert seen.principal == expected
    assert seen.absent == ("" if outcome == "ok" else REFUSED)
    assert not seen.counters.events


RAW = {
    "PLAIN": ([b"\0alice\0secret"], [b""]),
    "SCRAM-SHA-256": ([b"n,,n=alice,r=x", b"c=biws,r=xy,p=zz"], [b"r=xy,s=c2FsdA==,i=4096", b"v=done"]),
}


@pytest.mark.parametrize("mechanism", RAW)
def test_raw_tokens_after_a_handshake_of_version_0(mechanism: str) -> None:
    """The reply that ends the mechanism says yes; there is no error code."""
    seen = watch()
    handshake(seen, mechanism, version=0)
    for sent, said in zip(*RAW[mechanism], strict=True):
        assert (seen.principal, seen.absent) == (None, NOT_YET)
        seen.raw_token(CLIENT, sent)
        assert seen.principal is None
        seen.raw_token(BROKER, said)

    assert seen.principal == Principal("alice", SOURCES[mechanism])


def test_a_scram_server_that_says_no() -> None:
    """`e=` in the last message is a refusal (RFC 5802), and so is a first reply alone."""
    seen = watch()
    handshake(seen, "SCRAM-SHA-512")
    token(seen, b"n,,n=alice,r=x", b"r=xy,s=c2FsdA==,i=4096")
    assert seen.principal is None
    token(seen, b"c=biws,r=xy,p=zz", b"e=invalid-proof")
    assert seen.principal is None


def test_an_oauth_server_that_says_what_is_wrong() -> None:
    """A refusal is a token with error code 0, which the client answers with one byte (RFC 7628)."""
    sent = [bytes.fromhex(frame) for side, frame in CAPTURED["java OAUTHBEARER ok"] if side == 0][1]
    seen = watch()
    handshake(seen, "OAUTHBEARER")
    token(seen, decode_request(sent).body["auth_bytes"], b'{"status":"invalid_token"}')
    assert seen.principal is None
    token(seen, b"\x01", error=58)

    assert (seen.principal, seen.absent) == (None, REFUSED)


def test_a_later_authentication_replaces_the_name() -> None:
    """KIP-368; until the broker accepts it the earlier one stays, and also when it refuses."""
    seen = watch()
    handshake(seen, "PLAIN")
    token(seen, b"\0alice\0x")
    handshake(seen, "PLAIN")
    assert seen.principal == Principal("alice", "PLAIN")
    token(seen, b"\0bob\0x", error=58)
    assert seen.principal == Principal("alice", "PLAIN")
    handshake(seen, "PLAIN")
    token(seen, b"\0bob\0x")

    assert seen.principal == Principal("bob", "PLAIN")


def test_the_certificate_is_the_name_where_there_is_no_sasl() -> None:
    seen = watch("CN=etl,O=Example")
    assert (seen.principal, seen.absent) == (Principal("CN=etl,O=Example", "certificate"), "")

    handshake(seen, "PLAIN")
    assert (seen.principal, seen.absent) == (None, NOT_YET)
    assert watch().absent == NOBODY


@pytest.mark.parametrize(
    ("mechanism", "sent", "reason", "counted"),
    [
        ("GSSAPI", b"\x60\x82x", "GSSAPI", 0),
        ("EXTERNAL", b"x", "EXTERNAL", 0),
        ("x\n" * 40, b"x", "mechanism", 0),
        ("", b"x", "mechanism", 0),
        ("PLAIN", b"alice", MALFORMED, 1),
    ],
)
def test_accepted_without_a_name(mechanism: str, sent: bytes, reason: str, counted: int) -> None:
    """A word says why there is none; what should be readable and is not is counted."""
    seen = watch()
    handshake(seen, mechanism)
    token(seen, sent)

    assert (seen.principal, seen.absent) == (None, reason)
    assert seen.counters.events["principal_unreadable"] == counted


def test_the_owner_of_a_delegation_token_is_not_known() -> None:
    """The client gives the token's id, and only the broker knows whose it is (KIP-48)."""
    seen = watch()
    handshake(seen, "SCRAM-SHA-256")
    token(seen, b"n,,n=id,r=x,tokenauth=true", b"r=xy,s=c2FsdA==,i=4096")
    token(seen, b"c=biws,r=xy,p=zz", b"v=done")

    assert (seen.principal, seen.absent) == (None, DELEGATION)


def test_a_first_frame_that_is_a_gssapi_token() -> None:
    """As clients of Kafka 0.9 send it."""
    seen = watch()
    seen.raw_token(CLIENT, b"\x60\x82x")
    seen.raw_token(BROKER, b"\x60\x82y")

    assert (seen.principal, seen.absent) == (None, "GSSAPI")


def test_a_refused_handshake_and_another_try() -> None:
    """The client goes on with a mechanism that the broker has."""
    seen = watch()
    handshake(seen, "OAUTHBEARER", error=33)
    assert seen.absent == REFUSED
    handshake(seen, "PLAIN")
    token(seen, b"\0alice\0x")

    assert seen.principal == Principal("alice", "PLAIN")


def test_requests_ahead_of_their_answers() -> None:
    """A client may send handshake and token together; other requests between them do not matter."""
    seen = watch()
    seen.request(HANDSHAKE, 1, {"mechanism": "PLAIN"})
    seen.request(3, 9, {"topics": []})
    seen.request(AUTHENTICATE, 2, {"auth_bytes": b"\0alice\0x"})
    seen.response(HANDSHAKE, 1, {"error_code": 0})
    seen.response(3, 9, {})
    seen.response(AUTHENTICATE, 2, {"error_code": 0, "auth_bytes": b""})

    assert seen.principal == Principal("alice", "PLAIN")


def test_too_many_at_once_name_nobody() -> None:
    """What is waited for is bounded; a connection that goes beyond it has no name, rather than a wrong one."""
    seen = watch()
    handshake(seen, "PLAIN")
    token(seen, b"\0alice\0x")
    for _ in range(40):
        seen.request(AUTHENTICATE, 2, {"auth_bytes": b"\0bob\0x"})

    assert (seen.principal, seen.absent) == (None, LOST)
    assert len(seen.pending) <= 16
    assert seen.counters.events["principal_unreadable"] >= 1


def everything(value: Any) -> str:
    """All text that an object leads to."""
    found = [repr(value)]
    for name in getattr(value, "__slots__", ()):
        inner = getattr(value, name)
        found.append(everything(inner) if isinstance(inner, SaslDialogue | PrincipalWatch | Principal) else repr(inner))
        found += [everything(one[1]) for one in inner] if name == "pending" else []
    return " ".join(found)


@pytest.mark.parametrize("mechanism", [*RAW, "OAUTHBEARER"])
def test_secrets_are_not_kept(mechanism: str) -> None:
    """No password, nonce, proof or token is in what it remembers, before and after the answer."""
    tokens = RAW.get(mechanism, ([b"n,,\x01auth=Bearer a.eyJzdWIiOiJhbGljZSJ9.c\x01\x01"], [b""]))
    seen = watch()
    handshake(seen, mechanism)
    for sent, said in zip(*tokens, strict=True):
        seen.request(AUTHENTICATE, 2, {"auth_bytes": sent})
        kept = everything(seen)
        seen.response(AUTHENTICATE, 2, {"error_code": 0, "auth_bytes": said})
        kept += everything(seen)
        assert "alice" in kept
        for secret in ("secret", "r=x", "p=zz", "c2FsdA", "done", "eyJ"):
            assert secret not in kept


BODIES = st.one_of(
    st.tuples(
        st.just("ask"), st.just(HANDSHAKE), st.builds(lambda m: {"mechanism": m}, st.sampled_from([*SOURCES, "X"]))
    ),
    st.tuples(st.just("ask"), st.just(AUTHENTICATE), st.builds(lambda b: {"auth_bytes": b}, st.binary(max_size=20))),
    st.tuples(
        st.just("answer"),
        st.sampled_from([HANDSHAKE, AUTHENTICATE]),
        st.builds(lambda e, b: {"error_code": e, "auth_bytes": b}, st.sampled_from([0, 58]), st.none() | st.binary()),
    ),
    st.tuples(st.just("raw"), st.sampled_from([CLIENT, BROKER]), st.binary(max_size=20)),
)


@given(st.lists(BODIES, max_size=40))
def test_it_never_raises(events: list[tuple[str, int, Any]]) -> None:
    """In whatever order frames and tokens come, and whatever is in them; and there is a name or a reason."""
    seen = watch()
    for what, key, given_ in events:
        if what == "ask":
            seen.request(key, 1, given_)
        elif what == "answer":
            seen.response(key, 1, given_)
        else:
            seen.raw_token(key, given_)
        assert bool(seen.absent) == (seen.principal is None)
