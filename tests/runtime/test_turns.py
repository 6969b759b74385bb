"""Long work of one connection is put aside in the middle: all others go on, and nothing of it is lost."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import structlog
import trio
from greenlet import getcurrent

from kproxy.base import cooperative
from kproxy.runtime.io import scheduler
from kproxy.runtime.io.fair_queue import RoundRobin
from kproxy.runtime.io.reactor import Reactor
from kproxy.runtime.io.scheduler import in_a_turn
from kproxy.session.commands import Send
from tests.support.passing_session import PassingSession

pytestmark = [pytest.mark.trio, pytest.mark.filterwarnings("error")]
LONG = 60_000
"""Bytes of a frame that takes long: more than the others' here."""


class Clock:
    """Clock of the turns, which only work moves: a machine of any speed puts work aside at the same yield points."""

    now = 1000.0

    @classmethod
    def work(cls, seconds: float) -> None:
        """Work for this time, and yield."""
        cls.now += seconds
        cooperative.yield_now()


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "monotonic", lambda: Clock.now)


class Slow(PassingSession):
    """Session that works long on long frames: `steps` times some seconds, with a yield point after each."""

    steps = 120
    seconds = 0.002

    def __init__(self) -> None:
        super().__init__()
        self.busy = self.through = 0
        self.told: list[str] = []

    def from_client(self, view: memoryview, n: int, now: float) -> int:
        if n >= LONG:
            self.busy += 1
            came = bytes(view[:n])
            for _ in range(self.steps):
                Clock.work(self.seconds)
            assert view[:n] == came, "others have read into the buffer meanwhile"
            self.busy -= 1
            self.through += 1
        return super().from_client(view, n, now)

    def tick(self, now: float) -> None:
        self.told.append("tick" if not self.busy else "tick in the middle")

    def released(self, now: float) -> None:
        self.told.append("released" if not self.busy else "released in the middle")


def frame(correlation: int, size: int = LONG + 5000) -> bytes:
    return struct.pack(">iii", size, 0, correlation) + b"\0" * (size - 8)


class Sessions:
    """Makes the sessions of a server, and keeps them."""

    def __init__(self, kind: type[Slow] = Slow) -> None:
        self.kind = kind
        self.made: list[Any] = []

    def __call__(self, *args: Any) -> Slow:
        self.made.append(self.kind())
        return self.made[-1]


async def test_others_are_served_while_one_takes_long(net: Any, driver: str) -> None:
    """A frame that takes 0.24 s: meanwhile another connection has many exchanges, and timers and trio go on."""
    broker = await net.open_broker()
    sessions = Sessions()
    async with net.serving(net.config(broker.port), sessions, driver) as running, trio.open_nursery() as nursery:
        nursery.start_soon(broker.obey)
        slow, quick = await running.client(), await running.client()
        await slow.send_all(net.request(1))
        await net.answer(slow)
        await quick.send_all(net.request(1))
        await net.answer(quick)
        ticks = []
        aside = running.server.reactor.aside
        nursery.start_soon(slow.send_all, frame(7))
        await running.until(lambda: any(one.busy for one in sessions.made))
        (busy,) = [one for one in sessions.made if one.busy]
        running.server.reactor.call_at(0.0, lambda: ticks.append(busy.busy))
        served = 0
        while busy.busy:
            await quick.send_all(net.request(served))
            assert await net.answer(quick) == served
            served += 1
        assert await net.answer(slow) == 7
        assert served >= 5, served
        assert ticks == [1]
        assert aside.stops >= 10
        assert busy.through == 1
        nursery.cancel_scope.cancel()


async def test_nothing_of_the_connection_runs_meanwhile(net: Any, driver: str) -> None:
    """What comes for it from elsewhere is told afterwards, in order; what its broker and its client send waits."""
    broker = await net.open_broker()
    sessions = Sessions()
    async with net.serving(net.config(broker.port), sessions, driver) as running, trio.open_nursery() as nursery:
        nursery.start_soon(broker.obey)
        slow = await running.client()
        await slow.send_all(net.request(1) + net.request(2))
        await net.answer(slow)
        await net.answer(slow)
        nursery.start_soon(slow.send_all, frame(7) + net.request(8))
        await running.until(lambda: sessions.made[0].busy)
        (connection,) = running.server.connections
        assert connection.frozen
        connection.released()
        connection.tick()
        assert sessions.made[0].told == []
        assert await net.answer(slow) == 7
        assert await net.answer(slow) == 8
        assert sessions.made[0].told == ["released", "tick"]
        assert not connection.frozen
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("how", ["end", "drain", "stop"])
async def test_an_end_in_the_middle(net: Any, driver: str, how: str) -> None:
    """Who is ended while its work is put aside is closed at once; a drain lets it finish; the server's end waits for
    nobody."""
    broker = await net.open_broker()
    sessions = Sessions()
    async with net.serving(net.config(broker.port), sessions, driver) as running, trio.open_nursery() as nursery:
        nursery.start_soon(broker.obey)
        slow = await running.client()
        await slow.send_all(net.request(1))
        await net.answer(slow)
        nursery.start_soon(slow.send_all, frame(7))
        await running.until(lambda: sessions.made[0].busy)
        (connection,) = running.server.connections
        turn = connection.turn
        if how == "drain":
            running.server.drain()
            assert not connection.closed
            assert await net.answer(slow) == 7
            assert sessions.made[0].through == 1
        elif how == "end":
            connection.end("test", "ended")
            assert turn.dead
            assert not sessions.made[0].through
        else:
            running.server.close()
            assert turn.dead
        await running.until(lambda: not running.server.connections)
        assert turn.dead
        nursery.cancel_scope.cancel()


class Broken(Slow):
    """Raises in the middle."""

    def from_client(self, view: memoryview, n: int, now: float) -> int:
        go = super().from_client(view, n, now)
        if n >= LONG:
            raise RuntimeError("oh")
        return go


async def test_work_that_raises_after_a_wait(net: Any, driver: str) -> None:
    """It ends its own connection, with a line in the log."""
    broker = await net.open_broker()
    sessions = Sessions(Broken)
    async with net.serving(net.config(broker.port), sessions, driver) as running, trio.open_nursery() as nursery:
        nursery.start_soon(broker.obey)
        slow, quick = await running.client(), await running.client()
        nursery.start_soon(slow.send_all, frame(7))
        await running.until(lambda: running.causes().get("crashed"))
        await quick.send_all(net.request(5))
        assert await net.answer(quick) == 5
        assert [line["event"] for line in running.log if line.get("log_level") == "error"] == ["a callback raised"]
        nursery.cancel_scope.cancel()


class Commanding(Slow):
    """Sends by command what it has taken, piece by piece, with places to stop in between."""

    def from_client(self, view: memoryview, n: int, now: float) -> int:
        go = super().from_client(view, n, now)
        if n < LONG:
            return go
        self.commands.append(Send(1, bytes(view[:n])))
        return 0


async def test_bytes_stay_what_they_were(net: Any, driver: str) -> None:
    """Several at once, whose reads all land in one buffer: each broker gets what its own client sent."""
    got: dict[int, bytes] = {}
    listener = await net.open_broker()

    async def keep(stream: trio.SocketStream) -> None:
        size = struct.unpack(">i", await net.exactly(stream, 4))[0]
        body = await net.exactly(stream, size)
        got[struct.unpack(">i", body[:4])[0]] = body[4:]

    async with net.serving(net.config(listener.port), Sessions(Commanding), driver) as running:
        async with trio.open_nursery() as nursery:
            for number in range(5):
                client = await running.client()
                body = bytes([number]) * (LONG + 10)
                nursery.start_soon(client.send_all, struct.pack(">ii", len(body) + 4, number) + body)
                nursery.start_soon(keep, await listener.accept())
        assert got == {number: bytes([number]) * (LONG + 10) for number in range(5)}


async def test_addresses_take_turns(net: Any) -> None:
    """One that waits once goes before the second one of an address that waits often."""
    queue: RoundRobin[str] = RoundRobin(lambda name: name.startswith("gone"))
    for name in ("a1", "gone", "a2", "a3", "b1", "c1"):
        queue.add("a" if name == "gone" else name[0], name)
    taken = []
    while (one := queue.next()) is not None:
        taken.append(one)
    assert taken == ["a1", "b1", "c1", "a2", "a3"]
    assert not queue


@pytest.mark.parametrize("fails", [False, True])
async def test_work_through_calls_done_also_after_an_error(monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    """A watch plans its next run there. The steps run in two slices here."""
    clock, later, done = iter([0.0, 1.0, 1.0, 1.0, 1.0]), [], []
    monkeypatch.setattr(scheduler, "thread_time", lambda: next(clock))

    def steps() -> Iterator[None]:
        yield
        yield
        if fails:
            raise RuntimeError

    scheduler.work_through(SimpleNamespace(soon=later.append), steps(), lambda: done.append(True))
    assert not done
    with pytest.raises(RuntimeError) if fails else nullcontext():
        later.pop()()
    assert done == [True] and not later


async def test_turn_share_of_responses_is_by_cluster(net: Any, driver: str) -> None:
    """Responses that need much CPU use the share of their cluster in the client's network."""
    broker = await net.open_broker()
    shares = []

    class SlowBothWays(Slow):
        def work(self) -> None:
            turn = getcurrent()
            assert isinstance(turn, scheduler.Fiber)
            while not turn.waited:
                Clock.work(0.001)
            shares.append(turn.address)

        def from_client(self, view: memoryview, n: int, now: float) -> int:
            self.work()
            return PassingSession.from_client(self, view, n, now)

        def from_broker(self, view: memoryview, n: int, now: float) -> int:
            self.work()
            return PassingSession.from_broker(self, view, n, now)

    sessions = Sessions(SlowBothWays)
    async with net.serving(net.config(broker.port), sessions, driver) as running, trio.open_nursery() as nursery:
        nursery.start_soon(broker.obey)
        client = await running.client()
        await client.send_all(net.request(1))
        assert await net.answer(client) == 1
        nursery.cancel_scope.cancel()
    assert shares == ["127.0.0.1", "127.0.0.1 main"]


@pytest.mark.parametrize("slices", [1, 4])
async def test_what_is_short_is_never_put_aside(net: Any, slices: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A callback that ends within its slice costs a look at the clock."""
    monkeypatch.setattr(scheduler, "SLICE", 10.0)
    monkeypatch.setattr(scheduler, "BATCH_TIME", 20.0)
    broker = await net.open_broker()
    async with net.serving(net.config(broker.port), Sessions(), "nested") as running, trio.open_nursery() as nursery:
        nursery.start_soon(broker.obey)
        client = await running.client()
        for number in range(slices):
            nursery.start_soon(client.send_all, frame(number))
            assert await net.answer(client) == number
        assert running.server.reactor.aside.stops == 0
        nursery.cancel_scope.cancel()


async def test_what_is_to_be_finished(net: Any, driver: str) -> None:
    """An end in the middle of what must not be left half done: it is finished at once, and nothing behind it."""
    broker = await net.open_broker()

    class Told(Slow):
        def from_client(self, view: memoryview, n: int, now: float) -> int:
            with cooperative.run_to_end():
                super().from_client(view, n, now)
            self.told.append("behind it")
            return n

    sessions = Sessions(Told)
    async with net.serving(net.config(broker.port), sessions, driver) as running, trio.open_nursery() as nursery:
        nursery.start_soon(broker.obey)
        slow = await running.client()
        nursery.start_soon(slow.send_all, frame(7))
        await running.until(lambda: sessions.made and sessions.made[0].busy)
        (connection,) = running.server.connections
        connection.end("test", "ended")
        assert sessions.made[0].through == 1
        assert sessions.made[0].told == []
        await running.settled()
        nursery.cancel_scope.cancel()


class Unpacking(Slow):
    """Has something unpacked in a thread for each long frame."""

    raises = False

    def from_client(self, view: memoryview, n: int, now: float) -> int:
        if n >= LONG:
            self.busy += 1
            came = bytes(view[:n])
            try:
                self.through += cooperative.run_in_thread(self.work)
            except ZeroDivisionError:
                self.told.append("raised")
            assert view[:n] == came
            self.busy -= 1
        return super(Slow, self).from_client(view, n, now)

    def work(self) -> int:
        self.told.append(threading.current_thread().name)
        time.sleep(0.05)
        return 1 // (0 if self.raises else 1)


@pytest.mark.parametrize("raises", [False, True])
async def test_work_in_a_thread(net: Any, driver: str, raises: bool) -> None:
    """Others are served meanwhile, and what the work returns or raises comes where it was asked for."""
    broker = await net.open_broker()
    sessions = Sessions(Unpacking)
    async with net.serving(net.config(broker.port), sessions, driver) as running, trio.open_nursery() as nursery:
        nursery.start_soon(broker.obey)
        slow, quick = await running.client(), await running.client()
        await slow.send_all(net.request(1))
        await net.answer(slow)
        sessions.made[0].raises = raises
        nursery.start_soon(slow.send_all, frame(7))
        await running.until(lambda: sessions.made[0].busy)
        await quick.send_all(net.request(3))
        assert await net.answer(quick) == 3
        assert sessions.made[0].busy
        assert await net.answer(slow) == 7
        assert sessions.made[0].through == (not raises)
        assert sessions.made[0].told[0] != threading.main_thread().name
        assert sessions.made[0].told[1:] == ["raised"] * raises
        nursery.cancel_scope.cancel()


def busy_for(steps: int) -> int:
    """Work for `steps` milliseconds, with a yield point after each."""
    for _ in range(steps):
        Clock.work(0.001)
    return steps


async def test_work_of_a_task(net: Any, driver: str) -> None:
    """Connections are served while it goes on. It returns or raises in its task, and ends with it."""
    broker = await net.open_broker()
    async with net.serving(net.config(broker.port), Sessions(), driver) as running, trio.open_nursery() as nursery:
        nursery.start_soon(broker.obey)
        quick, reactor = await running.client(), running.server.reactor
        results: list[int] = []

        async def read() -> None:
            results.append(await in_a_turn(reactor, "view", partial(busy_for, 200)))

        nursery.start_soon(read)
        served = 0
        while not results:
            await quick.send_all(net.request(served))
            assert await net.answer(quick) == served
            served += 1
        assert results == [200]
        assert served >= 5, served
        with pytest.raises(KeyError):
            await in_a_turn(reactor, "view", partial(dict[str, int]().__getitem__, "nothing"))
        with trio.move_on_after(0.02) as scope:
            await in_a_turn(reactor, "view", partial(busy_for, 100_000))
        assert scope.cancelled_caught
        stops = reactor.aside.stops
        await quick.send_all(net.request(served))
        assert await net.answer(quick) == served
        assert reactor.aside.stops == stops
        nursery.cancel_scope.cancel()


async def test_work_of_a_task_where_nobody_is_served() -> None:
    """Before the reactor runs, or where it never does, it is done at once."""
    reactor = Reactor(structlog.get_logger())
    try:
        assert await in_a_turn(reactor, "view", partial(busy_for, 10)) == 10
    finally:
        reactor.close()
