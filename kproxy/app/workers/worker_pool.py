"""Pool of all workers: starts, watches, asks and ends them together."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from time import monotonic
from typing import Generic, ParamSpec, TypeVar

import trio
from structlog.typing import FilteringBoundLogger

from kproxy.base.errors import KproxyError
from kproxy.runtime.io.channel import Channel, Method, Unanswered
from kproxy.runtime.io.pollers import Deadline
from kproxy.runtime.io.reactor import Reactor

from .messages import Start, WorkerCalls
from .pool_worker import PoolWorker

CHECK_EVERY = 0.5
"""Seconds between two liveness checks of all workers."""
LAST_WORDS = 15.0
"""Seconds for workers to write their recorded events, after the drain or after a request to end at once."""

P = ParamSpec("P")
R = TypeVar("R")
StartFor = Callable[[PoolWorker], Start]


class WorkerPool:
    """Pool of the supervisor's workers.

    `start_for` makes the first message to a worker's process; `descriptors` are what all of them inherit, by name.
    Functions in `on_worker` are called with each worker that has a new process: its channel is new. `on_admit` is
    awaited before it gets its first connection. `on_room` is called when a worker may be able to take connections,
    `on_returned` when it has connections to take back.
    """

    def __init__(
        self, workers: int, reactor: Reactor, start_for: StartFor, log: FilteringBoundLogger, *,
        descriptors: Mapping[str, int] | None = None, by_address: bool = False,
    ) -> None:  # fmt: skip
        self.reactor, self.log, self.make_start = reactor, log, start_for
        self.inherited = dict(descriptors or {})
        self.workers = [PoolWorker(self, index, by_address=by_address) for index in range(workers)]
        self.on_worker: list[Callable[[PoolWorker], object]] = []
        self.on_admit: Callable[[PoolWorker], Awaitable[object]] | None = None
        self.on_room: Callable[[PoolWorker], object] = lambda worker: None
        self.on_returned: Callable[[PoolWorker], object] = lambda worker: None
        self.ending = self.started = False
        self.told = trio.Event()
        self.failed: KproxyError | None = None
        self.finished = trio.Event()
        self.deadline: Deadline | None = None

    @property
    def ready(self) -> list[PoolWorker]:
        return [worker for worker in self.workers if worker.ready]

    @property
    def restarts(self) -> int:
        return sum(worker.restarts for worker in self.workers)

    async def start(self) -> None:
        """Return when all are ready. Raises the error of the first worker that cannot start, and OSError."""
        for worker in self.workers:
            worker.start()
        await self.told.wait()
        if self.failed is not None:
            raise self.failed
        self.started = True
        self.check_all()

    def check_all(self) -> None:
        """Check all workers periodically, until the end."""
        now = monotonic()
        for worker in self.workers:
            worker.check(now)
        if not self.ending:
            self.reactor.call_at(now + CHECK_EVERY, self.check_all)

    def send(self, method: Method[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
        """Call a method of all running workers, without a result. A worker that starts later has the arguments in its
        first message."""
        for worker in self.workers:
            if worker.channel is not None:
                worker.channel.send(method, *args, **kwargs)

    def restart(self, worker: PoolWorker, reason: str) -> None:
        """Kill a worker's process at once; another one replaces it."""
        self.log.error("worker is ended", of_worker=worker.index, reason=reason)
        worker.kill()

    # ---- another config

    def pause_clients(self, *, by_address: bool) -> None:
        """Send no clients to workers until each has the config in force. `by_address`: it limits connections by
        address."""
        for worker in self.workers:
            worker.behind = worker.ready
            if worker.by_address != by_address:
                worker.by_address = by_address
                worker.ledger.count_addresses(by_address)

    def has_committed(self, worker: PoolWorker) -> None:
        """Allow clients again for a worker that has the config in force."""
        worker.behind = False
        self.on_room(worker)

    # ---- the end

    def drain(self, timeout: float) -> None:
        """Close open connections when no request is in flight, all of them after `timeout` seconds."""
        self._end(WorkerCalls.drain, timeout + LAST_WORDS)

    def give_up(self) -> None:
        """End all connections at once, and the workers."""
        self._end(WorkerCalls.give_up, LAST_WORDS)

    def _end(self, method: Callable[[WorkerCalls], None], within: float) -> None:
        self.ending = True
        self.send(method)
        for worker in self.workers:
            if not worker.ready:  # it has no connections, and may not be listening yet
                worker.kill()
        if self.deadline is not None:
            self.reactor.cancel(self.deadline)
        self.deadline = self.reactor.call_at(monotonic() + within, self.out_of_time)
        self._check_finished()

    def out_of_time(self) -> None:
        for worker in self.workers:
            if worker.process is not None:
                self.log.error("worker has not ended in time, it is killed", of_worker=worker.index)
                worker.kill()

    def close(self) -> None:
        """Kill all processes at once, without a message; wait for them."""
        self.ending = True
        for worker in self.workers:
            if worker.process is not None:
                worker.process.kill()
                worker.process.popen.wait()
                worker.process.close()
            if worker.channel is not None:
                worker.channel.close()
            worker.close()

    def _check_finished(self) -> None:
        if self.ending and all(worker.process is None for worker in self.workers):
            self.reactor.notify(self.finished)

    # ---- messages from workers

    def start_for(self, worker: PoolWorker) -> Start:
        return self.make_start(worker)

    def descriptors(self) -> Mapping[str, int]:
        return self.inherited

    def begins(self, worker: PoolWorker) -> None:
        for hook in self.on_worker:
            hook(worker)

    async def admit(self, worker: PoolWorker) -> None:
        if self.on_admit is not None:
            await self.on_admit(worker)

    def is_ready(self, worker: PoolWorker) -> None:
        assert worker.process is not None
        if not self.started and len(self.ready) == len(self.workers):
            self.reactor.notify(self.told)
        if self.started:
            worker.log.info("worker is back", pid=worker.process.pid)
        self.on_room(worker)

    def has_room(self, worker: PoolWorker) -> None:
        self.on_room(worker)

    def returned(self, worker: PoolWorker) -> None:
        self.on_returned(worker)

    def is_down(self, worker: PoolWorker, failed: KproxyError) -> None:
        if not self.started and self.failed is None:
            self.failed = failed
            self.ending = True
            self.reactor.notify(self.told)
        self._check_finished()


def pids(pool: WorkerPool) -> list[int]:
    return [worker.process.pid for worker in pool.workers if worker.process is not None]


async def call_all(
    pool: WorkerPool, method: Method[P, Awaitable[R]], *args: P.args, **kwargs: P.kwargs
) -> list[tuple[PoolWorker, R | Unanswered]]:
    """Call all workers that are ready. Return their results, or the reasons for missing ones, in the workers' order. A
    worker that ends during the call is left out."""
    found: list[tuple[PoolWorker, R | Unanswered]] = []
    await call_each(pool, lambda worker, result: found.append((worker, result)), method, *args, **kwargs)
    return sorted(found, key=lambda each: each[0].index)


async def call_each(
    pool: WorkerPool, returned: Callable[[PoolWorker, R | Unanswered], object], method: Method[P, Awaitable[R]],
    *args: P.args, **kwargs: P.kwargs,
) -> None:  # fmt: skip
    """Do the same, and call `returned` with each result as it arrives."""

    async def call_one(worker: PoolWorker, channel: Channel) -> None:
        result: R | Unanswered
        try:
            result = await channel.call(method, *args, **kwargs)
        except Unanswered as error:
            result = error
        if worker.channel is channel and not channel.closed:  # closed: its process has ended, or is about to
            returned(worker, result)

    async with trio.open_nursery() as nursery:
        for worker in pool.workers:
            if worker.ready and worker.channel is not None:
                nursery.start_soon(call_one, worker, worker.channel)


class LatestAnswers(Generic[R]):
    """Latest answer of each worker to one question that is asked again and again, possibly at the same time.

    Each answer counts when it arrives. An answer to an earlier question is dropped: after a wait for a slow worker it
    would replace a later answer, and sums of counters would fall.
    """

    def __init__(self) -> None:
        self.by_worker: dict[int, R] = {}
        self._questions = 0
        self._answered: dict[int, int] = {}  # the question, by worker

    async def ask(self, pool: WorkerPool, method: Method[P, Awaitable[R]], *args: P.args, **kwargs: P.kwargs) -> None:
        """Ask all workers that are ready, and wait for their answers."""
        self._questions += 1
        question = self._questions

        def returned(worker: PoolWorker, answer: R | Unanswered) -> None:
            if not isinstance(answer, Unanswered) and question > self._answered.get(worker.index, 0):
                self._answered[worker.index] = question
                self.by_worker[worker.index] = answer

        await call_each(pool, returned, method, *args, **kwargs)
