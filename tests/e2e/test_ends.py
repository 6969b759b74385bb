"""Connections that end badly on either side: what came is passed on, the reason is logged, the other clients go on."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest

from kproxy.protocol import Message
from tests.support.fake_broker import FakeBroker, reset, silence
from tests.support.raw_client import EndOfStream, RawClient
from tests.support.wait import until

LIST_OFFSETS = 2
LIST_OFFSETS_BODY = {"replica_id": -1, "topics": []}


def correlation(request: Message) -> bytes:
    """The id as it stands in the answer."""
    return int(request.header["correlation_id"]).to_bytes(4, "big")


def dies_in_a_frame(broker: FakeBroker, stream: socket.socket, request: Message) -> None:
    """Half of an answer, then the end."""
    stream.sendall((100).to_bytes(4, "big") + correlation(request) + b"half")
    stream.shutdown(socket.SHUT_RDWR)


def hangs_up(broker: FakeBroker, stream: socket.socket, request: Message) -> None:
    """FIN instead of an answer."""
    stream.shutdown(socket.SHUT_RDWR)


def mixes_up(broker: FakeBroker, stream: socket.socket, request: Message) -> None:
    """An answer to another question."""
    stream.sendall((8).to_bytes(4, "big") + b"\x00\x00\x12\x34" + bytes(4))


def talks_nonsense(broker: FakeBroker, stream: socket.socket, request: Message) -> None:
    """HTTP, as if the port were another server's."""
    stream.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


@pytest.mark.parametrize(
    ("answer", "passed", "cause", "reason"),
    [
        (dies_in_a_frame, 12, "broker_closed_mid_frame", "broker closed in the middle of a frame"),
        (hangs_up, 0, "broker_closed", "broker closed with 1 requests unanswered"),
        (
            mixes_up,
            0,
            "correlation",
            "response with correlation id 4660, expected 2 (ListOffsets)",
        ),
        (talks_nonsense, 0, "correlation", "response with correlation id 791752241, expected 2 (ListOffsets)"),
    ],
    ids=["dies in a frame", "hangs up", "mixes up", "talks nonsense"],
)
def test_a_broker_ends_badly(
    fake: Callable[..., Any], kproxy_process: Callable[..., Any], answer: Any, passed: int, cause: str, reason: str
) -> None:
    """The client gets what came and then the end; the line says what happened; another connection is not touched."""
    broker = fake(answers={LIST_OFFSETS: answer})
    proxy = kproxy_process(broker.address)
    with RawClient(proxy.bootstrap) as other, RawClient(proxy.bootstrap) as client:
        other.brokers()
        client.brokers()
        client.send(client.request(LIST_OFFSETS, 1, LIST_OFFSETS_BODY))

        assert len(client.rest()) == passed
        client.close()
        (line,) = until(lambda: proxy.said("connection closed", cause=cause))
        assert reason in line["reason"]
        assert line["broker"] == broker.address
        assert proxy.metric("kproxy_connections_closed_total", cause=cause) == 1
        assert len(other.brokers()) == 1


def test_a_broker_is_reset(fake: Callable[..., Any], kproxy_process: Callable[..., Any]) -> None:
    """RST from the broker ends the client's connection, with requests in flight named as such."""
    proxy = kproxy_process(fake(answers={LIST_OFFSETS: reset}).address)
    with RawClient(proxy.bootstrap) as client:
        client.send(client.request(LIST_OFFSETS, 1, LIST_OFFSETS_BODY))

        assert client.rest() == b""
    (line,) = until(lambda: proxy.said("connection closed"))
    assert (line["cause"], line["level"]) == ("broker_reset", "warning")
    assert line["reason"] == "broker: Connection reset by peer, with requests in flight"


def test_a_half_closed_client_gets_its_answers(fake: Callable[..., Any], kproxy_process: Callable[..., Any]) -> None:
    """FIN after a request means that nothing more is asked: the answer still comes, then the end, without complaint."""
    go = threading.Event()

    def later(broker: FakeBroker, stream: socket.socket, request: Message) -> None:
        go.wait(60)
        broker.respond(stream, request, {"topics": []})

    proxy = kproxy_process(fake(answers={LIST_OFFSETS: later}).address)
    with RawClient(proxy.bootstrap) as client:
        client.brokers()
        for _ in range(3):
            client.send(client.request(LIST_OFFSETS, 1, LIST_OFFSETS_BODY))
        client.shut()
        go.set()

        assert len(client.rest()) == 3 * (4 + 4 + 4)
    until(lambda: proxy.metric("kproxy_connections_closed_total", cause="client_closed"))
    assert proxy.said("connection closed") == []


def test_clients_that_break_off(fake: Callable[..., Any], kproxy_process: Callable[..., Any]) -> None:
    """FIN in the middle of a frame and RST while an answer is due: each has its cause; the broker sees the end, too."""
    broker = fake(answers={LIST_OFFSETS: silence})
    proxy = kproxy_process(broker.address)
    with RawClient(proxy.bootstrap) as other:
        other.brokers()
        until(lambda: len(broker.connections) == 2)  # one is the health check's
        with RawClient(proxy.bootstrap) as client:
            client.send(client.request(3, 4, {"topics": [], "allow_auto_topic_creation": False})[:-3])
            client.shut()
            assert client.rest() == b""
        client = RawClient(proxy.bootstrap)
        client.brokers()
        client.send(client.request(LIST_OFFSETS, 1, LIST_OFFSETS_BODY))
        until(lambda: any(request.api.key == LIST_OFFSETS for request in broker.requests))
        client.reset()

        lines = until(lambda: (found := proxy.said("connection closed")) and len(found) == 2 and found)
        assert [(line["cause"], line["level"]) for line in lines] == [
            ("client_closed_mid_frame", "warning"),
            ("client_reset", "info"),
        ]
        assert lines[0]["reason"] == "client closed in the middle of a frame"
        assert lines[1]["reason"] == "client: Connection reset by peer"
        until(lambda: len(broker.connections) == 2)
        assert len(other.brokers()) == 1


def test_a_broker_that_closes_when_nothing_is_due(fake: Callable[..., Any], kproxy_process: Callable[..., Any]) -> None:
    """The client sees the end at once; it is nobody's fault."""
    broker = fake()
    proxy = kproxy_process(broker.address)
    with RawClient(proxy.bootstrap) as client:
        client.brokers()
        broker.close()

        assert client.rest() == b""
    (line,) = until(lambda: proxy.said("connection closed"))
    assert (line["cause"], line["reason"], line["level"]) == ("broker_closed", "broker closed", "info")


def test_a_frame_that_is_rewritten_and_cut(fake: Callable[..., Any], kproxy_process: Callable[..., Any]) -> None:
    """Of an answer whose addresses have to be rewritten nothing passes before it is whole."""

    def cut(broker: FakeBroker, stream: socket.socket, request: Message) -> None:
        stream.sendall((60).to_bytes(4, "big") + correlation(request) + bytes(4) + b"\x00\x00\x00\x01" + bytes(20))
        stream.shutdown(socket.SHUT_RDWR)

    proxy = kproxy_process(fake(answers={3: cut}).address)
    with RawClient(proxy.bootstrap) as client, pytest.raises(EndOfStream) as ended:
        client.brokers()
    assert ended.value.args == (b"",)
    until(lambda: proxy.said("connection closed", cause="broker_closed_mid_frame"))
