"""Processes of workers are started, replaced and ended. Here they are ten lines of Python that know the channel."""

from __future__ import annotations

import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import count
from time import monotonic
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
import trio.testing

from kproxy.app.workers import pool_worker as pool_worker_module
from kproxy.app.workers.messages import Start, SupervisorCalls, WorkerCalls
from kproxy.app.workers.pool_worker import PoolWorker
from kproxy.app.workers.worker_pool import LatestAnswers, WorkerPool, pids
from kproxy.base.errors import DocumentError, InternalError
from kproxy.runtime.io.channel import Unanswered, framed
from kproxy.runtime.io.reactor import Reactor

pytestmark = pytest.mark.trio
BEGIN = """
import socket, sys
given = dict(word.split("=") for word in sys.argv[1:])
control = socket.socket(fileno=int(given["control"]))
size = int.from_bytes(control.recv(4, socket.MSG_WAITALL), "big")
control.recv(size, socket.MSG_WAITALL)
"""
OBEY = "control.recv(1)\n"
"""Until it is told anything."""


def say(method: Callable[..., object], *arguments: object) -> str:
    return f"control.sendall({framed(0, method.__qualname__, arguments)!r})\n"


MakePool = Callable[..., AbstractAsyncContextManager[WorkerPool]]


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch, quiet_log: Any) -> MakePool:
    """`pool(count, *lines)`: workers whose program is these lines after the first word."""

    @asynccontextmanager
    async def make(count: int, *lines: str) -> AsyncIterator[WorkerPool]:
        monkeypatch.setattr(pool_worker_module, "COMMAND", (sys.executable, "-I", "-S", "-c", BEGIN + "".join(lines)))
        reactor = Reactor(quiet_log)
        async with trio.open_nursery() as nursery:
            await nursery.start(reactor.run)
            made = WorkerPool(count, reactor, lambda one: Start(b"", one.index, count, {}, {}), quiet_log)
            try:
                yield made
            finally:
                made.close()
            nursery.cancel_scope.cancel()
        reactor.close()

    return make


async def until(condition: Callable[[], Any]) -> None:
    """The test's own time-out is the limit."""
    while not condition():  # noqa: ASYNC110  # processes end, and nobody tells
        await trio.sleep(0.005)


async def test_all_are_ready_and_end_together(pool: MakePool) -> None:
    """Each is admitted before it counts as ready; after a drain no process is left."""
    admitted: list[int] = []

    async def admit(worker: PoolWorker) -> None:
        assert not worker.ready
        admitted.append(worker.index)

    async with pool(3, say(SupervisorCalls.ready), OBEY) as three:
        three.on_admit = admit
        await three.start()
        assert sorted(admitted) == [0, 1, 2]
        assert len(three.ready) == len(set(pids(three))) == 3
        three.drain(1.0)
        await three.finished.wait()
        assert (pids(three), three.restarts) == ([], 0)


@pytest.mark.parametrize(
    ("line", "error", "message"),
    [
        ("sys.exit(3)", InternalError, "worker 0 ended before it was ready: exit code 3"),
        (say(SupervisorCalls.failed, "a port is taken", []), InternalError, "a port is taken"),
        (say(SupervisorCalls.failed, "", ["a.yaml:1:1: no rule"]), DocumentError, "a.yaml:1:1: no rule"),
    ],
    ids=["ends", "says why", "mistakes"],
)
async def test_a_start_that_fails_says_why(pool: MakePool, line: str, error: type[Exception], message: str) -> None:
    """The first one that cannot start is the end of the start, and no other is tried."""
    async with pool(1, line) as one:
        with pytest.raises(error, match=message):
            await one.start()
        await until(lambda: not pids(one))
        assert one.restarts == 0


async def test_who_dies_young_again_and_again_is_replaced_later_and_later(
    pool: MakePool, monkeypatch: pytest.MonkeyPatch, logged: list[dict[str, Any]]
) -> None:
    """Up to a longest pause; who has lived for a while is replaced at once. Each end is in the log."""
    monkeypatch.setattr(pool_worker_module, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(pool_worker_module, "LONGEST_PAUSE", 0.03)
    async with pool(2, say(SupervisorCalls.ready), OBEY) as two:
        await two.start()
        first = two.workers[0]
        for restarts in range(1, 6):
            if restarts == 5:
                monkeypatch.setattr(pool_worker_module, "STABLE", 0.0)
            assert first.process is not None
            first.process.kill()
            await until(lambda restarts=restarts: first.restarts == restarts and first.ready)
        ends = [line for line in logged if line["event"] == "worker ended, another one is started"]

        assert [line["pause"] for line in ends] == [0.01, 0.02, 0.03, 0.03, 0.0]
        assert {(line["of_worker"], line["how"]) for line in ends} == {(0, "SIGKILL")}
        assert (two.restarts, two.workers[1].restarts, len(two.ready)) == (5, 0, 2)


async def test_who_cannot_be_admitted_is_replaced(pool: MakePool, logged: list[dict[str, Any]]) -> None:
    """It never counts as ready."""
    tried: list[int] = []

    async def admit(worker: PoolWorker) -> None:
        tried.append(worker.index)
        if len(tried) == 2:
            raise Unanswered("no")

    async with pool(1, say(SupervisorCalls.ready), OBEY) as one:
        one.on_admit = admit
        await one.start()
        one.restart(one.workers[0], "it is told to")
        await until(lambda: len(tried) == 3 and one.ready)
        assert one.restarts == 2
        assert [line["reason"] for line in logged if "admitted" in line["event"]] == ["no"]


async def test_who_says_nothing_is_passed_over_and_killed_in_the_end(
    pool: MakePool, logged: list[dict[str, Any]]
) -> None:
    """What it has not taken is taken back at each look, until it says something."""
    returned: list[int] = []
    async with pool(
        1,
        say(SupervisorCalls.ready),
        "control.recv(4)\n",
        say(SupervisorCalls.load, 0, 0, {}),
        "import time; time.sleep(60)",
    ) as one:
        await one.start()
        one.on_returned = lambda worker: returned.append(worker.index)
        (worker,) = one.workers
        now = monotonic()
        worker.check(now + pool_worker_module.SILENT - 1)
        assert (worker.silent, returned) == (False, [])
        worker.check(now + pool_worker_module.SILENT + 1)
        assert (worker.silent, returned) == (True, [0])
        one.send(WorkerCalls.drain)  # anything: it answers
        await until(lambda: any("answers again" in line["event"] for line in logged) or worker.check(monotonic()))
        assert not worker.silent
        worker.ledger.hand("a", now)
        worker.check(now + pool_worker_module.LATE + 1)
        assert worker.silent
        worker.check(now + pool_worker_module.HUNG + 10)
        await until(lambda: one.restarts)

        (line,) = [line for line in logged if line["event"] == "worker ended, another one is started"]
        assert line["how"] == signal.SIGKILL.name


async def test_who_does_not_end_is_killed(pool: MakePool, logged: list[dict[str, Any]]) -> None:
    """The end is limited, however they behave."""
    async with pool(2, say(SupervisorCalls.ready), "import time; time.sleep(60)") as two:
        await two.start()
        two.drain(1000.0)
        two.out_of_time()
        await two.finished.wait()
        assert [line["of_worker"] for line in logged if "not ended in time" in line["event"]] == [0, 1]


class LateChannel:
    """Channel whose first call returns last."""

    closed = False

    def __init__(self, numbers: Iterator[int], first: trio.Event) -> None:
        self.numbers, self.first, self.calls = numbers, first, 0

    async def call(self, method: object) -> int:
        self.calls += 1
        number = next(self.numbers)
        if self.calls == 1:
            await self.first.wait()
        return number


async def test_latest_answers_early_answer_arrives_late_is_dropped() -> None:
    """A worker that is stopped for seconds delays a poll, and another poll is made meanwhile."""
    first, numbers = trio.Event(), count(1)
    workers = [SimpleNamespace(index=index, ready=True, channel=LateChannel(numbers, first)) for index in range(2)]
    pool: Any = SimpleNamespace(workers=workers)
    latest, method = LatestAnswers[int](), cast("Any", None)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(latest.ask, pool, method)
        await trio.testing.wait_all_tasks_blocked()
        await latest.ask(pool, method)
        second = latest.by_worker.copy()
        first.set()

    assert sorted(second.values()) == [3, 4]
    assert latest.by_worker == second
