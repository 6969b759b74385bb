"""The reactor and its two drivers."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from time import monotonic
from typing import Any

import pytest
import trio

from kproxy.net.loop import drivers
from kproxy.net.loop.reactor import IN, Reactor


class Echo:
    """Reads what comes; `broken` makes it raise instead."""

    def __init__(self, reactor: Reactor, broken: bool = False) -> None:
        self.near, self.far = socket.socketpair()
        self.near.setblocking(False)
        self.broken, self.read, self.error = broken, b"", None
        self.done = trio.Event()
        self.reactor = reactor
        reactor.add(self.near.fileno(), self.ready, IN)

    def ready(self, mask: int) -> None:
        if self.broken:
            raise RuntimeError("on purpose")
        self.read += self.near.recv(100)
        self.reactor.notify(self.done)

    def crashed(self, error: Any) -> None:
        self.error = error
        self.reactor.remove(self.near.fileno())
        self.reactor.notify(self.done)


@pytest.fixture
def open_echo() -> Iterator[Callable[..., Echo]]:
    """Makes echoes, and closes their sockets in the end."""
    made: list[Echo] = []

    def make(reactor: Reactor, broken: bool = False) -> Echo:
        made.append(Echo(reactor, broken))
        return made[-1]

    yield make
    for echo in made:
        echo.near.close()
        echo.far.close()


@pytest.mark.trio
async def test_nested_is_what_runs_by_default(net: Any) -> None:
    """If trio's inside has changed, the reactor falls back to twice the CPU per request: that must be noticed."""
    log, entries = net.make_log()
    reactor = Reactor(log)
    async with trio.open_nursery() as nursery:
        await nursery.start(reactor.run)

        assert reactor.driver == "nested"
        assert not entries
        nursery.cancel_scope.cancel()
    reactor.close()


@pytest.mark.trio
async def test_the_fall_back_says_so_and_works(net: Any, open_echo: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the private attribute the public API is used, with a warning in the log."""

    def gone() -> int:
        raise AttributeError("_epoll")

    monkeypatch.setattr(drivers, "trio_inside", gone)
    log, entries = net.make_log()
    reactor = Reactor(log)
    async with trio.open_nursery() as nursery:
        await nursery.start(reactor.run)
        echo = open_echo(reactor)
        echo.far.send(b"x")
        await echo.done.wait()

        assert reactor.driver == "task"
        assert [entry["event"] for entry in entries] == ["reactor falls back to its slower driver"]
        nursery.cancel_scope.cancel()
    reactor.close()


@pytest.mark.trio
async def test_a_callback_that_raises_ends_only_its_owner(net: Any, open_echo: Any, driver: str) -> None:
    """The error is logged with its traceback, its owner is told, and the others are served."""
    log, entries = net.make_log()
    reactor = net.reactor_for(driver, log)
    async with trio.open_nursery() as nursery:
        await nursery.start(reactor.run, driver)
        bad, good = open_echo(reactor, broken=True), open_echo(reactor)
        bad.far.send(b"x")
        good.far.send(b"y")
        await bad.done.wait()
        await good.done.wait()

        assert good.read == b"y"
        assert isinstance(bad.error, RuntimeError)
        assert [(entry["log_level"], str(entry["exc_info"])) for entry in entries] == [("error", "on purpose")]
        nursery.cancel_scope.cancel()
    reactor.close()


@pytest.mark.trio
async def test_deadlines_are_kept_while_nothing_else_happens(net: Any, driver: str) -> None:
    """Calls come at their times, in order, with no event on any socket; a cancelled one does not come."""
    log, _ = net.make_log()
    reactor = net.reactor_for(driver, log)
    called: list[str] = []
    done = trio.Event()
    async with trio.open_nursery() as nursery:
        await nursery.start(reactor.run, driver)
        start = monotonic()
        reactor.call_at(start + 0.02, lambda: (called.append("second"), reactor.notify(done)))
        reactor.call_at(start + 0.01, lambda: called.append("first"))
        reactor.cancel(reactor.call_at(start + 0.015, lambda: called.append("never")))
        reactor.soon(lambda: called.append("soon"))
        await done.wait()

        assert called == ["soon", "first", "second"]
        assert monotonic() - start >= 0.02
        nursery.cancel_scope.cancel()
    reactor.close()


@pytest.mark.trio
async def test_trio_tasks_go_on_beside_the_reactor(net: Any, driver: str) -> None:
    """Their deadlines, threads and spawned tasks are served though the program sleeps in the reactor."""
    log, entries = net.make_log()
    reactor = net.reactor_for(driver, log)
    said: list[object] = []

    async def task(word: str) -> None:
        await trio.sleep(0.001)
        said.append(word)
        raise ValueError("a task that fails stops nothing else")

    async with trio.open_nursery() as nursery:
        await nursery.start(reactor.run, driver)
        reactor.call_at(0.0, lambda: reactor.spawn(task, "spawned"))
        while not said:
            await trio.lowlevel.checkpoint()
        said.append(await trio.to_thread.run_sync(lambda: "thread"))

        assert said == ["spawned", "thread"]
        assert [entry["event"] for entry in entries] == ["a callback raised"]
        nursery.cancel_scope.cancel()
    reactor.close()


@pytest.mark.trio
async def test_busy_tasks_do_not_starve_the_reactor(net: Any, open_echo: Any, driver: str) -> None:
    """A trio task that never rests gets its turns, and so do the sockets."""
    log, _ = net.make_log()
    reactor = net.reactor_for(driver, log)
    turns = 0

    async def restless() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        await nursery.start(reactor.run, driver)
        nursery.start_soon(restless)
        for _ in range(20):
            echo = open_echo(reactor)
            echo.far.send(b"x")
            await echo.done.wait()

        assert turns > 20
        nursery.cancel_scope.cancel()
    reactor.close()
