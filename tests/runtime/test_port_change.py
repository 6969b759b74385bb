"""Ports between two configs: what happens while another config is made ready, which may take half a minute, changes
nothing of it, and nothing is left of one that is refused."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import structlog
import trio

from kproxy.app.config.document import Config
from kproxy.base.errors import UnusableSetting
from kproxy.runtime.capacity import ConnectionCounts
from kproxy.runtime.io.reactor import Reactor
from kproxy.runtime.listeners.listener_ports import ListenerPorts
from kproxy.runtime.listeners.port_service import LocalPorts
from kproxy.testing.process import free_port

pytestmark = pytest.mark.trio
Arrived = list[tuple[str, int | None]]


class Service:
    """Ports of listeners, and who has come to which of them, for which node."""

    def __init__(self, reactor: Reactor, ports: list[int], arrived: Arrived) -> None:
        self.reactor, self.numbers, self.arrived = reactor, ports, arrived
        self.ports: LocalPorts

    def config(self, **advertise: Any) -> Config:
        """One listener by each name; how it advertises."""
        listeners = [
            {"name": name, "bind": f"127.0.0.1:{self.numbers['ab'.index(name)]}", "cluster": "c", "advertise": way}
            for name, way in advertise.items()
        ]
        return Config.model_validate({"clusters": {"c": {"bootstrap": ["127.0.0.1:1"]}}, "listeners": listeners})

    def handlers(self, config: Config) -> dict[str, Any]:
        def arrived(name: str) -> Any:
            def accept(node: int | None, sock: socket.SocketType, address: Any) -> None:
                sock.close()
                self.arrived.append((name, node))

            return accept

        return {one.name: arrived(one.name) for one in config.listeners}

    def prepare(self, config: Config) -> Any:
        return self.ports.prepare(config, self.handlers(config))

    def of(self, name: str) -> ListenerPorts:
        return self.ports.by_listener[name]

    def node(self, name: str, node: int) -> Any:
        """The address that clients of a listener are told for a node, by the listener's config."""
        ports = self.of(name)
        way = ports.config.advertise
        assert way
        found = ports.client_addresses([node], way, "127.0.0.1")
        try:
            while True:
                next(found)
        except StopIteration as done:
            return done.value[node] and done.value[node][1]

    async def at(self, port: int) -> tuple[str, int | None] | None:
        """Who takes a client that connects there; None: nobody listens, or serves those who come."""
        before = len(self.arrived)
        try:
            stream = await trio.open_tcp_stream("127.0.0.1", port)
        except OSError:
            return None
        async with stream:
            with trio.move_on_after(0.2):
                await stream.receive_some()
        return self.arrived[before] if len(self.arrived) > before else None


@asynccontextmanager
async def service(**advertise: Any) -> AsyncIterator[Service]:
    log = structlog.wrap_logger(None, processors=[drop])
    reactor, arrived = Reactor(log), Arrived()
    made = Service(reactor, [free_port(), free_port()], arrived)
    config = made.config(**advertise)
    made.ports = LocalPorts(config, reactor, made.handlers(config), {}, ConnectionCounts(), log)
    async with trio.open_nursery() as nursery:
        await nursery.start(reactor.run)
        await made.ports.open()
        yield made
        made.ports.close()
        nursery.cancel_scope.cancel()
    reactor.close()


def drop(logger: Any, level: str, fields: Any) -> Any:
    raise structlog.DropEvent


def span(first: int) -> dict[str, Any]:
    return {"host": "127.0.0.1", "ports": f"{first}-{first + 3}"}


async def test_a_port_of_a_config_that_is_made_ready_is_not_served_early() -> None:
    """A client asks for a node meanwhile, for which a port is opened; the other config's are served with that one, and
    none of them stays open where it is refused."""
    first, fixed = free_port(), free_port()
    async with service(a=span(first)) as made:
        change = made.prepare(made.config(a={"nodes": {7: f"127.0.0.1:{fixed}"}}))
        await change.open()
        assert made.node("a", 0) == first
        assert await made.at(first) == ("a", 0)
        assert await made.at(fixed) is None
        change.undo()
        assert await made.at(fixed) is None and not made.of("a").staged
        socket.create_server(("127.0.0.1", fixed)).close()

        change = made.prepare(made.config(a={"nodes": {7: f"127.0.0.1:{fixed}"}}))
        await change.open()
        change.commit()
        assert await made.at(fixed) == ("a", 7)


async def test_a_port_of_a_config_that_is_made_ready_is_no_other_nodes() -> None:
    """Its node is another one: clients of this one must not come to a broker that they did not ask for."""
    first = free_port()
    async with service(a=span(first)) as made:
        change = made.prepare(made.config(a={"nodes": {7: f"127.0.0.1:{first + 1}"}}))
        await change.open()
        found = made.node("a", 1)
        assert found not in (None, first + 1)
        assert await made.at(found) == ("a", 1)
        change.commit()
        assert await made.at(first + 1) == ("a", 7)


@pytest.mark.parametrize("end", ["commit", "undo"])
@pytest.mark.parametrize("taker", ["a", "b"])
async def test_a_port_that_is_needed_is_not_closed_meanwhile(taker: str, end: str) -> None:
    """The last client that knew of it goes, while a config is made ready in which it is for something else: the same
    listener's or another's. Where that config is refused it is closed then."""
    first, second = free_port(), free_port()
    async with service(a=span(first), b={"host": "127.0.0.1"}) as made:
        assert made.node("a", 0) == first
        other = made.prepare(made.config(a=span(second), b={"host": "127.0.0.1"}))
        await other.open()
        other.commit()
        assert await made.at(first) == ("a", 0)

        ways: dict[str, Any] = {"a": span(second), "b": {"host": "127.0.0.1"}}
        ways[taker] = {"nodes": {5: f"127.0.0.1:{first}"}}
        change = made.prepare(made.config(**ways))
        await change.open()
        made.ports.prune("a")
        getattr(change, end)()
        assert await made.at(first) == ((taker, 5) if end == "commit" else None)
        assert not made.of("a").promised and not made.of(taker).staged
        if end == "undo":
            socket.create_server(("127.0.0.1", first)).close()


async def test_a_config_that_is_refused_takes_back_what_it_was_promised() -> None:
    """Its other port is somebody else's; nothing is kept open for it any more."""
    first, second = free_port(), free_port()
    with socket.create_server(("127.0.0.1", 0)) as foreign:
        async with service(a=span(first), b={"host": "127.0.0.1"}) as made:
            assert made.node("a", 0) == first
            other = made.prepare(made.config(a=span(second), b={"host": "127.0.0.1"}))
            await other.open()
            other.commit()
            nodes = {5: f"127.0.0.1:{first}", 6: f"127.0.0.1:{foreign.getsockname()[1]}"}
            change = made.prepare(made.config(a=span(second), b={"nodes": nodes}))
            with pytest.raises(UnusableSetting):
                await change.open()
            assert not made.of("a").promised
            assert await made.at(first) == ("a", 0)
            made.ports.prune("a")
            assert await made.at(first) is None
