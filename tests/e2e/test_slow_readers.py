"""Peers that stop reading: the other end stops too, memory stays flat, and nothing is lost when they go on."""

from __future__ import annotations

import socket
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kproxy.protocol import Message
from tests.support.certificates import Authority, client_context
from tests.support.fake_broker import FakeBroker
from tests.support.raw_client import RawClient
from tests.support.wait import until

FETCH, PRODUCE = 1, 0
MEGABYTE = 1 << 20
MANY = 64
ALLOWED = 24 * MEGABYTE
"""Growth of memory that is no leak: buffers of the kernel do not count, ours are 256 KiB; 64 answers are 64 MiB."""


def memory(pid: int) -> int:
    """Bytes that a process has in memory."""
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS"))


def fetch_answer(version: int) -> dict[str, Any]:
    """An answer with a megabyte of records; from version 16 on it may name nodes behind them."""
    partition = {"partition_index": 0, "error_code": 0, "high_watermark": 1, "last_stable_offset": 1}
    partition |= {"aborted_transactions": None, "records": bytes(MEGABYTE)}
    body: dict[str, Any] = {"throttle_time_ms": 0}
    if version < 7:
        return body | {"responses": [{"topic": "t", "partitions": [partition]}]}

    partition |= {"log_start_offset": 0, "preferred_read_replica": -1}
    topic = {"topic_id": uuid.UUID(int=1), "partitions": [partition]}
    return body | {"error_code": 0, "session_id": 0, "responses": [topic]}


def fetch_request(version: int) -> dict[str, Any]:
    """A Fetch of nothing in particular."""
    body: dict[str, Any] = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1, "isolation_level": 0, "topics": []}
    if version < 7:
        return body | {"replica_id": -1}
    return body | {"session_id": 0, "session_epoch": 0, "forgotten_topics_data": [], "rack_id": ""}


class Serving:
    """Answers each Fetch with a megabyte; `sent` counts the answers that went out whole."""

    def __init__(self) -> None:
        self.sent = 0

    def __call__(self, broker: FakeBroker, stream: socket.socket, request: Message) -> None:
        broker.respond(stream, request, fetch_answer(request.version))
        self.sent += 1


@pytest.mark.parametrize(("version", "tls"), [(4, False), (16, False), (16, True)])
def test_a_client_that_stops_reading_stops_its_broker(
    fake: Callable[..., Any], proxy_with: Callable[..., Any], tmp_path: Path, version: int, tls: bool
) -> None:
    """Of 64 answers only what sockets hold is taken; another client is served; then all of it arrives, byte by byte."""
    serving = Serving()
    authority = Authority(tmp_path)
    listener = {"tls": {"cert": str(authority.issue("127.0.0.1"))}} if tls else {}
    context = client_context(authority.file) if tls else None
    proxy = proxy_with(fake(answers={FETCH: serving}).address, listener=listener)
    with RawClient(proxy.bootstrap, tls=context) as other, RawClient(proxy.bootstrap, tls=context) as client:
        other.brokers()
        before = memory(proxy.pid)
        for _ in range(MANY):
            client.send(client.request(FETCH, version, fetch_request(version)))
        stalled(lambda: proxy.metric("kproxy_read_bytes_total", side="broker"))

        assert serving.sent < MANY - 10
        assert memory(proxy.pid) - before < ALLOWED
        assert len(other.brokers()) == 1
        sizes = {len(client.frame()) for _ in range(MANY)}
        assert len(sizes) == 1
        assert sizes.pop() > MEGABYTE
        until(lambda: serving.sent == MANY)
        assert memory(proxy.pid) - before < ALLOWED
        assert len(client.brokers()) == 1


def test_a_broker_that_stops_reading_stops_its_client(
    fake: Callable[..., Any], kproxy_process: Callable[..., Any]
) -> None:
    """A producer cannot push more into kproxy than sockets hold; when the broker goes on, everything arrives."""
    go = threading.Event()
    arrived: list[int] = []

    def slowly(broker: FakeBroker, stream: socket.socket, request: Message) -> None:
        go.wait(60)
        arrived.append(len(request.body["topic_data"][0]["partition_data"][0]["records"]))

    broker = fake(answers={PRODUCE: slowly})
    proxy = kproxy_process(broker.address)
    partition = {"index": 0, "records": bytes(MEGABYTE)}
    body = {"transactional_id": None, "acks": 1, "timeout_ms": 1}
    body |= {"topic_data": [{"name": "t", "partition_data": [partition]}]}
    with RawClient(proxy.bootstrap) as other, RawClient(proxy.bootstrap) as client:
        other.brokers()
        before = memory(proxy.pid)
        data = b"".join(client.request(PRODUCE, 3, body) for _ in range(MANY))
        sending = threading.Thread(target=client.send, args=(data,))
        sending.start()
        stalled(lambda: proxy.metric("kproxy_read_bytes_total", side="client"))

        assert proxy.metric("kproxy_read_bytes_total", side="client") < (MANY - 10) * MEGABYTE
        assert memory(proxy.pid) - before < ALLOWED
        assert len(other.brokers()) == 1
        go.set()
        sending.join(60)
        until(lambda: arrived == [MEGABYTE] * MANY)


def test_who_never_reads_again_is_cut_off(fake: Callable[..., Any], proxy_with: Callable[..., Any]) -> None:
    """After write_timeout without a byte taken the connection is reset, and the line says what was waiting."""
    proxy = proxy_with(fake(answers={FETCH: Serving()}).address, limits={"write_timeout": 0.3})
    with RawClient(proxy.bootstrap) as client:
        for _ in range(MANY):
            client.send(client.request(FETCH, 4, fetch_request(4)))
        (line,) = until(lambda: proxy.said("connection closed"))

        assert line["cause"] == "write_timeout"
        assert line["reason"].startswith("client took nothing for 0.3 s, ")
        assert proxy.metric("kproxy_connections_closed_total", cause="write_timeout") == 1
        with pytest.raises(ConnectionResetError):
            client.rest()


def stalled(count: Callable[[], float]) -> None:
    """Return once the count is above a megabyte and has been the same for ten looks."""
    seen: list[float] = []

    def same() -> bool:
        seen.append(count())
        return seen[-1] > MEGABYTE and len(seen) > 10 and len(set(seen[-10:])) == 1

    until(same)
