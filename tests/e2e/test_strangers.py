"""Clients that are no Kafka clients, or come in the wrong way: told in one line, counted, and nobody else suffers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kproxy.testing.process import free_port
from tests.support.raw_client import RawClient
from tests.support.wait import until

TLS_HELLO = bytes.fromhex("1603010200010001fc0303") + bytes(500)
HTTP = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.mark.parametrize(
    ("said", "cause", "reason"),
    [
        (TLS_HELLO, "not_kafka", "client speaks TLS to a listener of plain Kafka"),
        (HTTP, "not_kafka", "client speaks HTTP to a listener of plain Kafka"),
        (b"\xff" * 100, "frame_size", "request frame of -1 bytes, expected 10 to 104857600"),
        (bytes(100), "frame_size", "request frame of 0 bytes, expected 10 to 104857600"),
        (b"\x00\x00\x00\x20" + b"\x7f" * 32, "api_blocked", "api key 32639 is not known"),
    ],
    ids=["TLS", "HTTP", "ones", "zeros", "unknown API"],
)
def test_a_stranger_at_a_plain_port_is_told_apart(
    fake: Callable[..., Any], kproxy_process: Callable[..., Any], said: bytes, cause: str, reason: str
) -> None:
    """TLS, HTTP and garbage end their own connection with the reason in the log; they never reach the broker."""
    broker = fake()
    proxy = kproxy_process(broker.address)
    with RawClient(proxy.bootstrap) as other, RawClient(proxy.bootstrap) as stranger:
        before = other.brokers()
        stranger.send(said)

        assert stranger.rest() == b""
        stranger.close()
        (line,) = until(lambda: proxy.said("connection closed", cause=cause))
        assert reason in line["reason"]
        assert line["level"] == "warning"
        assert proxy.metric("kproxy_connections_closed_total", cause=cause) == 1
        assert other.brokers() == before
        names = {request.header["client_id"].partition("-circle-")[0] for request in broker.requests}
        assert names == {"kproxy", "raw"}


def test_a_header_that_never_ends_is_cut_off(fake: Callable[..., Any], proxy_with: Callable[..., Any]) -> None:
    """Who sends half a frame header and then nothing is closed after header_timeout; silence from the start is not."""
    proxy = proxy_with(fake().address, limits={"header_timeout": 0.2})
    with RawClient(proxy.bootstrap) as quiet, RawClient(proxy.bootstrap) as slow:
        slow.send(b"\x00\x00\x00\x20\x00\x03")

        assert slow.rest() == b""
        slow.close()
        (line,) = until(lambda: proxy.said("connection closed"))
        assert (line["cause"], line["reason"]) == ("header_timeout", "a frame header was not whole after 0.2 s")
        assert proxy.metric("kproxy_connections_closed_total", cause="header_timeout") == 1
        assert len(quiet.brokers()) == 1


def test_an_idle_connection_is_closed(fake: Callable[..., Any], proxy_with: Callable[..., Any]) -> None:
    """After idle_timeout without traffic, and not while requests are in flight."""
    silent = fake(answers={0: lambda *_: None})
    proxy = proxy_with(silent.address, limits={"idle_timeout": 0.3})
    with RawClient(proxy.bootstrap) as idle, RawClient(proxy.bootstrap) as waiting:
        waiting.brokers()
        waiting.send(waiting.request(0, 3, produce_body(acks=1)))
        idle.brokers()

        assert idle.rest() == b""
        idle.close()
        (line,) = until(lambda: proxy.said("connection closed"))
        assert (line["cause"], line["reason"]) == ("idle_timeout", "nothing passed for 0.3 s")
        assert line["level"] == "info"
        assert proxy.metric("kproxy_connections_open") == 1


def test_connections_are_limited_in_all_and_by_address(
    fake: Callable[..., Any], proxy_with: Callable[..., Any]
) -> None:
    """One too many is closed at once with the limit's name as the cause; when another ends there is room again."""
    limits = {"max_connections": 3, "max_connections_per_address": 2}
    proxy = proxy_with(fake().address, limits=limits, listener={"bind": f"0.0.0.0:{free_port('0.0.0.0')}"})
    port = proxy.port
    first, second = RawClient(f"127.0.0.1:{port}"), RawClient(f"127.0.0.1:{port}")
    with first, second:
        assert first.brokers() == second.brokers()
        with RawClient(f"127.0.0.1:{port}") as third:
            assert third.rest() == b""
        with RawClient(f"127.0.0.1:{port}", source="127.0.0.2") as elsewhere:
            assert elsewhere.brokers()
            with RawClient(f"127.0.0.1:{port}", source="127.0.0.2") as last:
                assert last.rest() == b""
        second.close()
        until(lambda: proxy.metric("kproxy_connections_open") == 1)
        with RawClient(f"127.0.0.1:{port}") as again:
            assert again.brokers()

    refused = {line["cause"]: line["reason"] for line in proxy.said("connection refused")}
    assert refused == {
        "max_connections_per_address": "127.0.0.1 has 2 connections, no more are allowed",
        "max_connections": "there are 3 connections, no more are allowed",
    }
    for cause in limits:
        assert proxy.metric("kproxy_connections_refused_total", cause=cause) == 1


def test_five_hundred_idle_connections_harm_nobody(
    fake: Callable[..., Any], kproxy_process: Callable[..., Any]
) -> None:
    """They cost no broker connection and little memory; traffic beside them goes on; they all end with their ends."""
    broker = fake()
    proxy = kproxy_process(broker.address)
    with RawClient(proxy.bootstrap) as busy:
        busy.brokers()
        before = memory(proxy.pid)
        idle = [RawClient(proxy.bootstrap) for _ in range(500)]
        until(lambda: proxy.metric("kproxy_connections_open") == 501)

        assert len(busy.brokers()) == 1
        assert memory(proxy.pid) - before < 500 * 16384
        assert len(broker.connections) <= 2  # the one of `busy`, and kproxy's own question now and then
        for each in idle:
            each.close()
        until(lambda: proxy.metric("kproxy_connections_open") == 1)
        assert len(busy.brokers()) == 1


def memory(pid: int) -> int:
    """Bytes that a process has in memory."""
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS"))


def produce_body(acks: int) -> dict[str, Any]:
    """A Produce request without topics."""
    return {"transactional_id": None, "acks": acks, "timeout_ms": 1000, "topic_data": []}
