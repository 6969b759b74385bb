"""Clients that connect and do not go on, and clients that connect again and again: the others are served."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import trio
import trustme

from kproxy.app.config.document import Config
from kproxy.runtime.capacity import FEWEST_HALF_OPEN, HALF_OPEN_SHARE, Capacity, HalfOpen
from kproxy.runtime.io.reactor import Reactor
from kproxy.runtime.listeners.port_pool import Acceptor

pytestmark = pytest.mark.trio
ROOM = 80
MANY = 300


async def test_one_address_has_a_share_of_the_handshakes() -> None:
    """A quarter of all connections, and some in any case; when they have ended it may have more."""
    pending = HalfOpen(Capacity(0, 100, 100))
    for _ in range(25):
        assert pending.refusal("a") is None
        pending.begin("a")

    assert pending.refusal("a") == ("handshakes", "a has 25 handshakes under way, no more are allowed")
    assert pending.refusal("b") is None
    pending.end("a")
    assert pending.refusal("a") is None
    for _ in range(24):
        pending.end("a")
    assert (pending.total, pending.by_address) == (0, {})
    assert HalfOpen(Capacity(0, 4, 4)).refusal("a") is None
    assert FEWEST_HALF_OPEN == 16


@pytest.mark.parametrize("hosts", [False, True])
async def test_handshakes_that_never_end_keep_nobody_out(net: Any, driver: str, tmp_path: Path, hosts: bool) -> None:
    """One address opens as many as there may be connections, and says nothing, on a port with names too: it is refused
    beyond its share, and another address is let in."""
    certificate = tmp_path / "server.pem"
    trustme.CA().issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(certificate)
    listener: dict[str, Any] = {"tls": {"cert": str(certificate)}, "bind": "0.0.0.0:0"}
    if hosts:
        listener["hosts"] = ["localhost"]
    config = net.config(9, listener=listener, limits={"max_connections": ROOM})
    async with net.serving(config, driver=driver) as running:
        with ExitStack() as stack:
            for _ in range(ROOM):
                stack.enter_context(socket.create_connection(("127.0.0.1", running.port)))
            await running.until(lambda: running.counts.refused["handshakes"] == ROOM - ROOM // HALF_OPEN_SHARE)
            other = stack.enter_context(
                socket.create_connection(("127.0.0.2", running.port), source_address=("127.0.0.2", 0))
            )
            other.setblocking(False)
            await running.until(
                lambda: (
                    running.server.half_open.total + running.server.port_service.waiting == ROOM // HALF_OPEN_SHARE + 1
                )
            )
            with pytest.raises(BlockingIOError):  # it is listened to, not sent away
                other.recv(1)
        await running.until(lambda: not running.server.half_open.total and not running.server.port_service.waiting)
        assert not running.server.half_open.by_address


@pytest.mark.parametrize("kind", ["tls", "hosts", "both"])
async def test_handshakes_of_four_networks_make_room(net: Any, driver: str, tmp_path: Path, kind: str) -> None:
    """Four networks have all places by handshakes that do not go on. A fifth one takes places of theirs."""
    certificate = tmp_path / "server.pem"
    trustme.CA().issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(certificate)
    tls = {"cluster": "main", "tls": {"cert": str(certificate)}, "bind": "0.0.0.0:0"}
    hosts, plain = tls | {"hosts": ["localhost"]}, {"cluster": "main", "bind": "0.0.0.0:0"}
    names = {"tls": ["tls"], "hosts": ["hosts"], "both": ["tls", "hosts"]}[kind]
    listeners = [{"tls": tls, "hosts": hosts}[name] | {"name": name} for name in names]
    config = Config.model_validate({
        "clusters": {"main": {"bootstrap": ["127.0.0.1:9"]}},
        "listeners": [*listeners, plain | {"name": "plain"}],
        "limits": {"max_connections": ROOM},
    })  # fmt: skip
    async with net.serving(config, driver=driver) as running:
        server = running.server
        ports = {listener.name: listener.port for listener in server.listeners}

        def taken() -> int:
            return len(server.connections) + server.half_open.total + server.port_service.waiting

        with ExitStack() as stack:

            def connect(name: str, host: str) -> None:
                address = ("127.0.0.1", ports[name])
                stack.enter_context(socket.create_connection(address, source_address=(host, 0)))

            for number in range(ROOM):
                connect(names[number % len(names)], f"127.0.0.{10 + number % 4}")
            await running.until(lambda: taken() == ROOM)
            for count, name in enumerate([names[0], "plain", "plain"], 1):
                connect(name, "127.0.0.2")
                await running.until(lambda count=count: running.counts.refused["displaced"] == count)
                await running.until(lambda: taken() == ROOM)
            assert len(server.connections) == 2
            assert set(running.counts.refused) == {"displaced"}
            assert set(map(len, server.places.by_network.values())) <= {3, 18, 19, 20}
        await running.until(lambda: not taken())
        assert not server.places.by_network


async def test_connections_are_accepted_one_at_a_time(net: Any, driver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds that wait to be accepted at one port, and another client's exchange: between two polls one of them is
    accepted, so that it does not wait for all of them."""
    broker = await net.open_broker()
    turns: list[int] = []
    ready, turn = Acceptor.ready, Reactor.turn

    def counted(self: Acceptor, mask: int) -> None:
        turns[-1] += 1
        ready(self, mask)

    def one_turn(self: Reactor, timeout: float | None) -> int:
        turns.append(0)
        return turn(self, timeout)

    monkeypatch.setattr(Acceptor, "ready", counted)
    monkeypatch.setattr(Reactor, "turn", one_turn)
    async with trio.open_nursery() as nursery, net.serving(net.config(broker.port), driver=driver) as running:
        nursery.start_soon(broker.obey)
        with ExitStack() as stack:
            async with await running.client() as client:
                for _ in range(MANY):
                    stack.enter_context(socket.create_connection(("127.0.0.1", running.port)))
                await client.send_all(net.request(1))
                assert await net.answer(client) == 1
            await running.until(lambda: sum(turns) > MANY)
        assert max(turns) == 1
        nursery.cancel_scope.cancel()
