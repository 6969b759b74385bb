"""The reactor and its two drivers."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from time import monotonic
from typing import Any

import pytest
import trio
import trio.testing

from kproxy.base import cooperative
from kproxy.runtime.io import pollers
from kproxy.runtime.io.reactor import IN, Reactor


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

    monkeypatch.setattr(pollers, "trio_inside", gone)
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


@pytest.mark.parametrize("leave", ["forget", "remove"])
@pytest.mark.trio
async def test_an_event_of_a_closed_descriptor_is_not_told_to_the_next_of_its_number(
    net: Any, driver: str, leave: str
) -> None:
    """Both are ready at the same poll, and the first callback closes the other's descriptor, whose number a new one
    gets: a connect that is under way must not be taken for one that is through. Its own events it gets."""
    log, _ = net.make_log()
    reactor = net.reactor_for(driver, log)
    pairs = [socket.socketpair() for _ in range(3)]
    told, done = list[tuple[str, int]](), trio.Event()
    first, second, fresh = (near for near, _ in pairs)
    number = second.fileno()

    def callback(mine: socket.socket, other: socket.socket) -> Callable[[int], None]:
        def ready(mask: int) -> None:
            told.append(("old", mask))
            mine.recv(1)
            reactor.remove(mine.fileno())
            getattr(reactor, leave)(other.fileno())
            os.dup2(fresh.fileno(), other.fileno())
            reactor.add(other.fileno(), new(other), IN)

        return ready

    def new(sock: socket.socket) -> Callable[[int], None]:
        def ready(mask: int) -> None:
            told.append(("new", mask))
            assert sock.recv(1, socket.MSG_DONTWAIT | socket.MSG_PEEK) == b"y"
            reactor.remove(sock.fileno())
            reactor.notify(done)

        return ready

    async with trio.open_nursery() as nursery:
        for _, far in pairs[:2]:
            far.send(b"x")
        reactor.add(first.fileno(), callback(first, second), IN)
        reactor.add(number, callback(second, first), IN)
        await nursery.start(reactor.run, driver)
        with trio.fail_after(60):
            while not told:
                await trio.lowlevel.checkpoint()
            for _ in range(20):
                await trio.lowlevel.checkpoint()
            pairs[2][1].send(b"y")
            await done.wait()
        assert [word for word, _ in told] == ["old", "new"]
        nursery.cancel_scope.cancel()
    reactor.close()
    for near, far in pairs:
        near.close()
        far.close()


@pytest.mark.trio
async def test_a_number_that_was_closed_without_a_word_is_waited_for_anew(net: Any) -> None:
    """Where trio waits for each descriptor it knows nothing of a close that nobody tells of."""
    log, _ = net.make_log()
    reactor = net.reactor_for("portable", log)
    (first, far), (second, other) = socket.socketpair(), socket.socketpair()
    told, done = list[bytes](), trio.Event()

    def ready(mask: int) -> None:
        told.append(first.recv(1))
        reactor.notify(done)

    async with trio.open_nursery() as nursery:
        await nursery.start(reactor.run, "portable")
        reactor.add(first.fileno(), ready, IN)
        await trio.testing.wait_all_tasks_blocked()
        os.dup2(second.fileno(), first.fileno())
        reactor.add(first.fileno(), ready, IN)
        await trio.testing.wait_all_tasks_blocked()
        other.send(b"z")
        with trio.fail_after(60):
            await done.wait()
        reactor.remove(first.fileno())
        nursery.cancel_scope.cancel()
    assert told == [b"z"]
    reactor.close()
    for sock in (first, far, second, other):
        sock.close()


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
    """The program sleeps in the reactor, and trio's deadlines and threads are served. Tasks do not inherit DEFERRED."""
    log, entries = net.make_log()
    reactor = net.reactor_for(driver, log)
    said: list[object] = []

    async def task(word: str) -> None:
        await trio.sleep(0.001)
        said.extend((word, cooperative.DEFERRED.get()))
        raise ValueError("a task that fails stops nothing else")

    async with trio.open_nursery() as nursery:
        await nursery.start(reactor.run, driver)
        reactor.call_at(0.0, lambda: cooperative.free_after(cooperative.LONG, lambda: reactor.spawn(task, "spawned")))
        while not said:
            await trio.lowlevel.checkpoint()
        said.append(await trio.to_thread.run_sync(lambda: "thread"))

        assert said == ["spawned", None, "thread"]
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
