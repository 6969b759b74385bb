"""Responses to kproxy's own requests: each kind of request has a limit, and nothing beyond it is read or decoded."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import structlog
import trio
import trio.testing

from kproxy.runtime.upstreams import upstream as metadata_poller
from kproxy.runtime.upstreams.own_connection import MAX_METADATA
from kproxy.runtime.upstreams.upstream import BROKERS_ONLY, MetadataPoller, NodeLocator

HOUR = 3600.0


def upstream(max_nodes: int) -> Any:
    return SimpleNamespace(name="main", topology=SimpleNamespace(most=max_nodes))


def poller(max_nodes: int) -> MetadataPoller:
    picture: Any = None
    return MetadataPoller(upstream(max_nodes), picture, 60.0, structlog.get_logger())


def locator(max_nodes: int) -> MetadataPoller:
    return NodeLocator(upstream(max_nodes), structlog.get_logger())


@pytest.mark.parametrize(
    ("make", "max_nodes", "limit", "asks"),
    [(poller, 1000, MAX_METADATA, 60), (locator, 1000, BROKERS_ONLY, 12), (locator, 50_000, 51_200_000, 12)],
)
def test_poller_with_long_response_waits_and_logs_once(
    monkeypatch: pytest.MonkeyPatch, make: Callable[[int], MetadataPoller], max_nodes: int, limit: int, asks: int
) -> None:
    """A size beyond the limit ends the connection unread; the next request follows at the usual interval."""
    unread: list[bytes] = []

    @asynccontextmanager
    async def connection(upstream: Any) -> AsyncIterator[socket.socket]:
        own, peer = socket.socketpair()
        with own, peer:
            own.setblocking(False)
            peer.sendall((limit + 1).to_bytes(4, "big") + b"rest")
            try:
                yield own
            finally:
                unread.append(own.recv(100))

    monkeypatch.setattr(metadata_poller, "own_connection", connection)

    async def main() -> None:
        with structlog.testing.capture_logs() as log, trio.move_on_after(HOUR):
            await make(max_nodes).run()
        reasons = [entry["reason"] for entry in log]
        assert reasons == [f"expected a response of 4 to {limit} bytes, got one of {limit + 1}"]

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))

    assert unread == [b"rest"] * asks
