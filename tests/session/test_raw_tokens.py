"""SASL through a session: frames like any other from handshake v1 on, raw tokens after v0 (KIP-43, KIP-152)."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.session.plan import ConnectionSettings
from kproxy.tools.rehearse.dialogue import request, response

PASSIVE = ConnectionSettings(advertise=False)
HANDSHAKE, AUTHENTICATE, HEARTBEAT = 17, 36, 12


def begin(dialogue: Any, mechanism: str, error: int = 0) -> Any:
    talk = dialogue(PASSIVE).client(request(HANDSHAKE, 0, 1, mechanism=mechanism))
    talk.broker(response(HANDSHAKE, 0, 1, error_code=error, mechanisms=[mechanism]))
    talk.out[0].clear()
    talk.out[1].clear()
    return talk


def token(text: bytes) -> bytes:
    return len(text).to_bytes(4, "big") + text


ROUNDS = {
    "PLAIN": ([b"\x00user\x00secret"], [b""]),
    "SCRAM-SHA-256": ([b"n,,n=user,r=x", b"c=biws,r=xy,p=zz"], [b"r=xy,s=c2FsdA==,i=4096", b"v=done"]),
    "OAUTHBEARER": ([b"n,,\x01auth=Bearer x\x01\x01"], [b""]),
    "GSSAPI": ([b"\x60\x82token", b"", b"\x05\x04\x00wrap"], [b"\x60\x82reply", b"\x05\x04\x04wrap"]),
}


@pytest.mark.parametrize("mechanism", ROUNDS)
@pytest.mark.parametrize("chunk", [0, 1, 5])
def test_raw_tokens_pass_and_requests_follow(dialogue: Any, mechanism: str, chunk: int) -> None:
    """After a v0 handshake the tokens of every mechanism pass as they are, and then frames are told apart again."""
    client_tokens, broker_tokens = ROUNDS[mechanism]
    talk = begin(dialogue, mechanism)
    for index, text in enumerate(client_tokens):
        talk.client(token(text), chunk)
        if index < len(broker_tokens):
            talk.broker(token(broker_tokens[index]), chunk)
    sent, got = talk.to_broker, talk.to_client

    asked, said = request(HEARTBEAT, 4, 2), response(HEARTBEAT, 4, 2)
    talk.client(asked, chunk).broker(said, chunk)

    assert sent == b"".join(map(token, client_tokens))
    assert got == b"".join(map(token, broker_tokens))
    assert talk.to_broker == sent + asked
    assert talk.to_client == got + said
    assert talk.closed is None
    assert talk.session.idle


def test_a_request_behind_the_last_token_need_not_wait(dialogue: Any) -> None:
    """A client that sends its first request with the token: the raw reply and the response are told apart."""
    talk = begin(dialogue, "PLAIN")
    asked, said = request(HEARTBEAT, 4, 2), response(HEARTBEAT, 4, 2)

    talk.client(token(b"\x00user\x00secret") + asked)
    talk.broker(token(b"") + said)

    assert talk.to_broker.endswith(asked)
    assert talk.to_client == token(b"") + said
    assert talk.closed is None


def test_a_refused_handshake_is_followed_by_frames(dialogue: Any) -> None:
    """Error 33: no token comes, the client may ask again for another mechanism."""
    talk = begin(dialogue, "PLAIN", error=33)
    again = request(HANDSHAKE, 1, 2, mechanism="SCRAM-SHA-256")

    talk.client(again).broker(response(HANDSHAKE, 1, 2))

    assert talk.to_broker == again
    assert talk.session.idle


def test_an_old_client_may_open_with_a_gssapi_token(dialogue: Any) -> None:
    """Kafka 0.9 clients send the first token without any handshake; it is told by its first byte."""
    talk = dialogue(ConnectionSettings())
    talk.client(token(b"\x60\x82\x01token")).broker(token(b"\x60reply")).client(request(HEARTBEAT, 0, 1))
    talk.broker(response(HEARTBEAT, 0, 1))

    assert talk.closed is None
    assert talk.to_broker.startswith(token(b"\x60\x82\x01token"))
    assert talk.session.idle


@pytest.mark.parametrize("size", [-1, 524289, 2**31 - 1])
@pytest.mark.parametrize("side", ["client", "broker"])
def test_a_token_out_of_range_closes(dialogue: Any, size: int, side: str) -> None:
    """Brokers allow 512 KiB during authentication; nothing larger is a token."""
    talk = begin(dialogue, "SCRAM-SHA-256")
    bad = size.to_bytes(4, "big", signed=True) + b"x"

    if side == "client":
        talk.client(bad)
    else:
        talk.client(token(b"n,,")).broker(bad)

    assert talk.closed is not None and talk.closed.cause == "frame_size"
    assert str(size) in talk.closed.message


def test_reauthentication_on_a_live_connection_keeps_the_order(dialogue: Any) -> None:
    """KIP-368: handshake v1 and authenticate among other requests are frames in the same FIFO."""
    asked = [
        request(HEARTBEAT, 4, 1),
        request(HANDSHAKE, 1, 0x7FFFFFF8, mechanism="PLAIN"),
        request(AUTHENTICATE, 2, 0x7FFFFFF9, auth_bytes=b"\0u\0p"),
        request(HEARTBEAT, 4, 2),
    ]
    said = [
        response(HEARTBEAT, 4, 1),
        response(HANDSHAKE, 1, 0x7FFFFFF8),
        response(AUTHENTICATE, 2, 0x7FFFFFF9, session_lifetime_ms=3600000),
        response(HEARTBEAT, 4, 2),
    ]
    talk = dialogue(PASSIVE).client(b"".join(asked)).broker(b"".join(said), 17)

    assert talk.to_client == b"".join(said)
    assert talk.session.idle
