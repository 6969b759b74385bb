"""Raw SASL tokens, which have no header, are no requests and are kept nowhere."""

from __future__ import annotations

import pytest

from kproxy.protocol.framing import framed
from kproxy.record.exchange import Depth
from kproxy.tools.rehearse.dialogue import request, response
from tests.record.observer.watching import Watching

HEARTBEAT, HANDSHAKE = 12, 17


@pytest.mark.parametrize("chunk", [0, 1])
@pytest.mark.parametrize("depth", [Depth.COUNT, Depth.FULL])
def test_raw_tokens(depth: Depth, chunk: int) -> None:
    """What follows a SaslHandshake v0 is no request, is kept nowhere, and the frames behind it are read again."""
    watching = Watching(depth).client(request(HANDSHAKE, 0, 1, mechanism="SCRAM-SHA-256"), chunk)
    watching.broker(response(HANDSHAKE, 0, 1, mechanisms=["SCRAM-SHA-256"]), chunk)
    for word in (b"first", b"final"):
        watching.client(framed(b"client-" + word + b"hunter2"), chunk).broker(framed(b"server-" + word), chunk)
    watching.client(request(HEARTBEAT, 0, 2), chunk).broker(response(HEARTBEAT, 0, 2), chunk).end()

    assert (2, 2, 0, 0) == watching.counts()[:4]
    if depth is Depth.FULL:
        assert ["SaslHandshake", "Heartbeat"] == [one.api for one in watching.seen]
        assert not any(
            b"hunter2" in frame.data for one in watching.seen for frame in (one.request, one.response) if frame
        )


@pytest.mark.parametrize("chunk", [0, 1])
def test_gssapi_tokens_to_begin_with(chunk: int) -> None:
    """A client of Kafka 0.9 opens with a token; tokens go on until its first Kafka frame."""
    watching = Watching(Depth.FULL).client(framed(b"\x60token"), chunk).broker(framed(b"\x60answer"), chunk)
    watching.client(framed(b"\x05more"), chunk).broker(framed(b""), chunk)
    watching.client(framed(b""), chunk).client(request(HEARTBEAT, 0, 2), chunk).broker(response(HEARTBEAT, 0, 2), chunk)

    assert (1, 1, 0, 0) == watching.counts()[:4]
    assert ["Heartbeat"] == [one.api for one in watching.seen]


def test_a_refused_handshake_brings_no_tokens() -> None:
    """After an error the client may try again with a frame."""
    watching = Watching(Depth.FULL).client(request(HANDSHAKE, 0, 1, mechanism="NO"))
    watching.broker(response(HANDSHAKE, 0, 1, error_code=33)).client(request(HANDSHAKE, 0, 2, mechanism="PLAIN"))
    watching.broker(response(HANDSHAKE, 0, 2)).client(framed(b"\0alice\0hunter2")).broker(framed(b""))
    watching.client(request(HEARTBEAT, 0, 3)).broker(response(HEARTBEAT, 0, 3))

    assert ["SaslHandshake", "SaslHandshake", "Heartbeat"] == [one.api for one in watching.seen]
    assert (3, 3, 0, 0) == watching.counts()[:4]
