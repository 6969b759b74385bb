"""A server in the test's own trio loop, with brokers and clients whose every byte the test decides."""

from __future__ import annotations

import gc
import logging
import struct
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import structlog
import trio

from kproxy.app.config.document import Config
from kproxy.runtime.capacity import ConnectionCounts
from kproxy.runtime.io.pollers import epoll_poller, trio_poller
from kproxy.runtime.io.reactor import Reactor
from kproxy.runtime.server import Server
from tests.support.passing_session import PassingSession

opened: list[trio.SocketStream | trio.SocketListener] = []
"""What the running test has opened; closed behind it."""


def make_log() -> tuple[Any, list[Any]]:
    """A logger, and the list of what it is told."""
    capture = structlog.testing.LogCapture()
    wrapper = structlog.make_filtering_bound_logger(logging.DEBUG)
    return structlog.wrap_logger(None, processors=[capture], wrapper_class=wrapper), capture.entries


def request(correlation: int, size: int = 40) -> bytes:
    """A whole request frame of `size` bytes, its length field included."""
    head = struct.pack(">hhih", 3, 12, correlation, -1)
    return struct.pack(">i", size - 4) + head + bytes(size - 4 - len(head))


def response(correlation: int, size: int = 30) -> bytes:
    return struct.pack(">ii", size - 4, correlation) + bytes(size - 8)


async def exactly(stream: trio.SocketStream | trio.SSLStream[Any], n: int) -> bytes:
    data = b""
    while len(data) < n:
        more = await stream.receive_some(n - len(data))
        if not more:
            raise EOFError(f"stream ends after {len(data)} bytes, expected {n}")
        data += more
    return data


async def answer(stream: trio.SocketStream | trio.SSLStream[Any]) -> int:
    """Reads one response; its correlation id."""
    size = struct.unpack(">i", await exactly(stream, 4))[0]
    return int(struct.unpack(">i", (await exactly(stream, size))[:4])[0])


async def obedient(stream: trio.SocketStream | trio.SSLStream[Any]) -> None:
    """A broker that answers every request with its correlation id."""
    try:
        while True:
            size = struct.unpack(">i", await exactly(stream, 4))[0]
            frame = await exactly(stream, size)
            await stream.send_all(response(struct.unpack(">i", frame[4:8])[0]))
    except (EOFError, trio.BrokenResourceError):
        await stream.aclose()


class Broker:
    """A listening socket; `accept` gives the next connection of kproxy, or they are all `obedient`."""

    def __init__(self, listener: trio.SocketListener) -> None:
        self.listener = listener
        self.port: int = listener.socket.getsockname()[1]
        self.connections = 0

    async def accept(self) -> trio.SocketStream:
        stream = await self.listener.accept()
        opened.append(stream)
        self.connections += 1
        return stream

    async def obey(self) -> None:
        async with trio.open_nursery() as nursery:
            while True:
                nursery.start_soon(obedient, await self.accept())


async def open_broker(host: str = "127.0.0.1") -> Broker:
    listener = (await trio.open_tcp_listeners(0, host=host))[0]
    opened.append(listener)
    return Broker(listener)


class Running:
    """A server that runs; `log` is what it has logged so far."""

    def __init__(self, server: Server, log: list[dict[str, Any]]) -> None:
        self.server, self.log, self.counts = server, log, server.counts
        self.clients = 0

    @property
    def port(self) -> int:
        return self.server.listeners[0].port

    async def client(self, host: str = "127.0.0.1") -> trio.SocketStream:
        stream = await trio.open_tcp_stream(host, self.port)
        opened.append(stream)
        self.clients += 1
        return stream

    def causes(self) -> dict[str, int]:
        return dict(self.counts.closed)

    async def until(self, condition: Callable[[], Any]) -> None:
        """Lets everybody run until the condition holds; the test's own time-out is the limit."""
        while not condition():
            await trio.lowlevel.checkpoint()

    async def settled(self) -> None:
        """Until no connection is open, nor any client waits to be accepted: the kernel connects it long before that."""
        counts = self.counts
        await self.until(
            lambda: (
                sum([*counts.opened.values(), *counts.refused.values()]) >= self.clients and not self.server.connections
            )
        )


def config(broker_port: int | list[int], **changes: Any) -> Config:
    """One cluster, one listener on any free port of 127.0.0.1; `listener`, `cluster`, `limits`, `state` add to it."""
    ports = [broker_port] if isinstance(broker_port, int) else broker_port
    return Config.model_validate(
        {
            "clusters": {"main": {"bootstrap": [f"127.0.0.1:{port}" for port in ports]} | changes.get("cluster", {})},
            "listeners": [{"name": "main", "bind": "127.0.0.1:0", "cluster": "main"} | changes.get("listener", {})],
            "limits": changes.get("limits", {}),
            "state": changes.get("state"),
        }
    )


@asynccontextmanager
async def serving(
    config: Config, session: Callable[..., Any] = lambda *args: PassingSession(), driver: str = "task", **more: Any
) -> AsyncIterator[Running]:
    """Runs a server for this config until the block ends."""
    log, entries = make_log()
    reactor = reactor_for(driver, log)
    server = Server(reactor, config, session, ConnectionCounts(), log, **more)
    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(reactor.run, driver)
            await nursery.start(server.serve)
            yield Running(server, entries)
            nursery.cancel_scope.cancel()
    finally:
        reactor.close()


def reactor_for(driver: str, log: Any) -> Reactor:
    """A reactor that this driver can drive."""
    return Reactor(log, make_poller=trio_poller if driver == "portable" else epoll_poller)


class Tools:
    """What the test modules of this folder use; a fixture, because test modules do not import each other."""

    Broker, Running = Broker, Running
    answer, config, exactly, make_log, obedient, open_broker, reactor_for, request, response, serving = map(
        staticmethod,
        (answer, config, exactly, make_log, obedient, open_broker, reactor_for, request, response, serving),
    )


@pytest.fixture
async def net() -> AsyncIterator[type[Tools]]:
    yield Tools
    for thing in opened:
        thing.socket.close()
    opened.clear()


@pytest.fixture(params=["task", "nested", "portable"])
def driver(request: pytest.FixtureRequest) -> str:
    """All ways to drive the reactor."""
    return str(request.param)


@pytest.fixture
def uncollected() -> Iterator[None]:
    """No garbage collection meanwhile."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()
