"""Peers that are gone without a word are noticed by the kernel."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from kproxy.runtime.io import socket_io
from tests.support.dead_peer import vanish
from tests.support.passing_session import PassingSession

pytestmark = pytest.mark.trio


def asked(sock: Any) -> tuple[int, ...]:
    """What the kernel does for this socket."""
    options = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
    found = [sock.getsockopt(socket.IPPROTO_TCP, option) for option in options]
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE), *found


async def test_both_sockets_of_a_connection_are_looked_after(net: Any) -> None:
    """The client's by what its listening socket was told, the broker's when all connections are next looked after."""
    broker = await net.open_broker()
    async with net.serving(net.config(broker.port)) as running, await running.client() as client:
        await client.send_all(net.request(1))
        await broker.accept()
        (connection,) = running.server.connections
        await running.until(lambda: connection.looked_after)

        for side in (connection.client, connection.broker):
            assert asked(side.sock) == (1, socket_io.IDLE, socket_io.INTERVAL, socket_io.PROBES)


@pytest.mark.timeout(30)
@pytest.mark.parametrize("who", ["client", "broker"])
async def test_who_vanishes_is_noticed(net: Any, who: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the middle of an exchange, when neither side has anything to say: the connection ends, and both are free."""
    monkeypatch.setattr(socket_io, "IDLE", 1)  # the shortest that there is
    monkeypatch.setattr(socket_io, "INTERVAL", 1)
    monkeypatch.setattr(socket_io, "PROBES", 1)
    broker = await net.open_broker()
    config = net.config(broker.port)
    async with net.serving(config, lambda *args: PassingSession()) as running, await running.client() as client:
        await client.send_all(net.request(1))
        upstream = await broker.accept()
        assert await upstream.receive_some(100)
        vanish(client.socket._sock if who == "client" else upstream.socket._sock)
        await running.settled()

        assert running.causes() == {f"{who}_reset": 1}
