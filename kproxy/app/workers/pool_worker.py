"""Worker in the supervisor, over its restarts.

Strategy. A worker is down, starting, ready or ending. A process that ends is replaced: at once if it has lived for a
while, otherwise with growing delays, so that a worker that always fails costs little and is still retried.

A process is a new Python, not a fork: a fork of a program with threads and an event loop has half of each. It inherits
only descriptors, named in its command line; everything else comes over its channel. It has a process group of its own,
so that Ctrl-C reaches the supervisor only; the kernel kills it when the supervisor dies (worker.py).
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections import Counter, deque
from collections.abc import Callable, Mapping
from time import monotonic
from typing import TYPE_CHECKING

from kproxy.base.errors import DocumentError, InternalError, KproxyError
from kproxy.runtime.io.channel import Channel, Unanswered
from kproxy.runtime.io.pollers import Deadline
from kproxy.runtime.io.reactor import IN, Reactor

from .fd_passing import HandOver
from .messages import SupervisorCalls, WorkerCalls

if TYPE_CHECKING:
    from .worker_pool import WorkerPool

STABLE = 10.0
"""Seconds of life after which a process is replaced at once; faults of config or rules show earlier."""
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 10.0
"""Seconds before a process that died young is replaced: doubled each time, up to the maximum that an operator will
wait."""
SILENT = 5.0
"""Seconds without a message after which a worker gets no connections; it reports each second."""
LATE = 2.0
"""Seconds to take a connection that was handed over, enough even while the worker compiles a large set of rules."""
HUNG = 60.0
"""Seconds without a message after which a worker is killed: its clients time out their requests after 30."""
FAREWELL = 2.0
"""Seconds to exit after closing the channel."""
START_PATIENCE = 120.0
"""Seconds until it must be ready; one is usual, and an overloaded machine takes thirty."""
COMMAND = (sys.executable, "-P", "-m", "kproxy.app.worker")
"""-P: the current folder is searched for modules only if it is in the import path of this process."""


class WorkerProcess:
    """Running process. `ended(how)` is called once, from the reactor, with the exit status: "exit code 1",
    "SIGKILL"."""

    def __init__(
        self, index: int, descriptors: Mapping[str, int], reactor: Reactor, ended: Callable[[str], object]
    ) -> None:
        self.reactor, self.on_ended = reactor, ended
        words = {"index": index, "parent": os.getpid(), **descriptors}
        self.popen = subprocess.Popen(
            [*COMMAND, *(f"{name}={number}" for name, number in words.items())],
            stdin=subprocess.DEVNULL,
            pass_fds=tuple(descriptors.values()),
            process_group=0,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        self.pid = self.popen.pid
        self.descriptor = os.pidfd_open(self.pid)
        reactor.add(self.descriptor, self.ready, IN)

    def kill(self) -> None:
        """Kill it at once; `ended` is called as usual."""
        self.popen.kill()

    def ready(self, mask: int) -> None:
        """Take the exit code of the process, which has ended."""
        code = self.popen.wait()
        self.close()
        self.on_ended(f"exit code {code}" if code >= 0 else signal.Signals(-code).name)

    def close(self) -> None:
        if self.descriptor >= 0:
            self.reactor.remove(self.descriptor)
            os.close(self.descriptor)
            self.descriptor = -1


class PoolWorker:
    """Worker of the pool. `channel` and `process` are None while it is down. `restarts`: processes that have replaced
    another. `behind`: it has not yet put the supervisor's config in force, and gets no clients."""

    def __init__(self, pool: WorkerPool, index: int, *, by_address: bool = False) -> None:
        self.pool, self.index, self.by_address = pool, index, by_address
        self.log = pool.log.bind(of_worker=index)
        self.process: WorkerProcess | None = None
        self.channel: Channel | None = None
        self.queue = HandOver()
        self.ledger = Ledger(by_address=by_address)
        self.ready = self.silent = self.behind = False
        self.restarts = self.died_young = 0
        self.began = self.heard = 0.0
        self.failed: KproxyError | None = None
        self.again: Deadline | None = None

    # ---- its process

    def start(self) -> None:
        """Start a process. Raises OSError if the process cannot be started."""
        pool = self.pool
        near, far = socket.socketpair()
        with far:
            given = {"hand": self.queue.far.fileno(), "control": far.fileno(), **pool.descriptors()}
            try:
                self.process = WorkerProcess(self.index, given, pool.reactor, self.has_ended)
            except BaseException:
                near.close()
                raise
        self.began = self.heard = monotonic()
        self.failed, self.silent, self.behind = None, False, False
        self.ledger = Ledger(by_address=self.by_address)
        self.channel = channel = Channel(near, pool.reactor, self.log, self.lost)
        channel.on(SupervisorCalls.ready, self.is_ready)
        channel.on(SupervisorCalls.failed, self.has_failed)
        channel.on(SupervisorCalls.load, self.loaded)
        pool.begins(self)
        channel.send(WorkerCalls.start, pool.start_for(self))

    def lost(self, reason: str) -> None:
        """Kill a process that has closed its channel and does not exit."""
        self.ready = False
        process = self.process
        if process is not None:
            self.pool.reactor.call_at(monotonic() + FAREWELL, process.kill)

    def has_ended(self, how: str) -> None:
        """Take back the queue of the process, and have it replaced; `how` is its exit status."""
        self.process, self.ready = None, False
        if self.channel is not None:  # its last messages may be in the buffer
            self.channel.ready(0)
            self.channel.close()
            self.channel = None
        pool, now = self.pool, monotonic()
        pool.returned(self)
        lost = self.ledger.end()
        pool.is_down(self, self.failed or InternalError(f"worker {self.index} ended before it was ready: {how}"))
        if pool.ending:
            self.log.info("worker ended", how=how)
        else:
            self._replace(how, lost, now)

    def _replace(self, how: str, lost: int, now: float) -> None:
        lived = now - self.began
        self.died_young = 0 if lived >= STABLE else self.died_young + 1
        pause = 0.0 if not self.died_young else min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (self.died_young - 1))
        why = self.failed and "; ".join(str(self.failed).splitlines())
        self.log.error(
            "worker ended, another one is started", how=how, reason=why, lost=lost, seconds=round(lived, 3), pause=pause
        )
        self.again = self.pool.reactor.call_at(now + pause, self._start_again)

    def _start_again(self) -> None:
        self.again = None
        if self.pool.ending:
            return
        self.restarts += 1
        try:
            self.start()
        except OSError as error:
            self.began = monotonic()
            self._replace(f"not started: {(error.strerror or str(error)).lower()}", 0, self.began)

    def kill(self) -> None:
        """Kill the process now; it is replaced unless the pool is ending."""
        if self.process is not None:
            self.process.kill()

    def close(self) -> None:
        """Close the queue: no process runs, and none will be started."""
        if self.again is not None:
            self.pool.reactor.cancel(self.again)
        self.queue.close()

    # ---- messages from it

    def is_ready(self) -> None:
        self.pool.reactor.spawn(self.admit, self.process)

    async def admit(self, process: WorkerProcess | None) -> None:
        """Give it connections once `pool.admit` agrees."""
        try:
            await self.pool.admit(self)
        except Unanswered as error:
            self.log.error("worker is ready and cannot be admitted", reason=str(error))
            if process is self.process:
                self.kill()
            return
        if process is not None and process is self.process:
            self.ready, self.heard = True, monotonic()
            self.pool.is_ready(self)

    def has_failed(self, message: str, mistakes: list[str]) -> None:
        self.failed = DocumentError(mistakes) if mistakes else InternalError(message)

    def loaded(self, taken: int, still_open: int, addresses: Mapping[str, int]) -> None:
        self.heard = now = monotonic()
        self.ledger.report(taken, still_open, addresses, now)
        self.pool.has_room(self)

    # ---- liveness

    def check(self, now: float) -> None:
        """Detect that the worker hangs, or has recovered; called periodically."""
        if self.process is None:
            return
        if not self.ready:
            if now - self.began > START_PATIENCE:
                self.log.error("worker is not ready in time, it is killed", seconds=START_PATIENCE)
                self.kill()
            return
        late = self.ledger.late_since is not None and now - self.ledger.late_since > LATE
        silent = late or now - self.heard > SILENT
        if silent and not self.silent:
            self.log.warning("worker does not answer, new connections go to others", open=self.ledger.open)
        elif self.silent and not silent:
            self.log.info("worker answers again", open=self.ledger.open)
        self.silent = silent
        if silent:
            self.pool.returned(self)
        if now - self.heard > HUNG:
            self.log.error("worker hangs, it is killed", seconds=HUNG)
            self.kill()


# Ledger of a worker's connections: reported ones, and those in flight to it.
#
# Strategy. A worker reports absolute numbers, so errors do not accumulate: connections taken since it began, and open
# connections. Connections handed over but not yet taken are in flight, and count as open.
class Ledger:
    """Ledger of one worker process. `by_address`: also count connections by address."""

    def __init__(self, *, by_address: bool = False) -> None:
        self.by_address = by_address
        self.handed = self.taken = self.open = 0
        self.late_since: float | None = None
        """Time of the oldest handover that is still in flight."""
        self.told: dict[str, int] = {}
        self.coming: deque[str] = deque()
        self.coming_from: Counter[str] = Counter()

    def count_addresses(self, by_address: bool) -> None:
        """Start or stop counting connections by address; the worker reports all that it has."""
        self.by_address = by_address
        self.told.clear()

    @property
    def connections(self) -> int:
        return self.open + self.handed - self.taken

    def hand(self, host: str, now: float) -> None:
        self.handed += 1
        if self.late_since is None:
            self.late_since = now
        if self.by_address:
            self.coming.append(host)
            self.coming_from[host] += 1

    def report(self, taken: int, still_open: int, addresses: Mapping[str, int], now: float) -> None:
        for _ in range(min(taken - self.taken, len(self.coming))):
            self._come(self.coming.popleft())
        if taken != self.taken:
            self.late_since = now
        self.taken, self.open = taken, still_open
        if taken >= self.handed:
            self.late_since = None
        for host, count in addresses.items():
            if count:
                self.told[host] = count
            else:
                self.told.pop(host, None)

    def take_back(self) -> None:
        """Subtract the newest connection, which will not reach the worker. (The worker itself reports whether it is
        late.)"""
        self.handed -= 1
        if self.coming:
            self._come(self.coming.pop())

    def end(self) -> int:
        """Clear the numbers of a process that has ended; return its number of connections."""
        lost = self.connections
        self.open, self.handed, self.late_since, self.told = 0, self.taken, None, {}
        self.coming.clear()
        self.coming_from.clear()
        return lost

    def of(self, host: str) -> int:
        """Return the number of connections from `host`."""
        return self.told.get(host, 0) + self.coming_from[host]

    def _come(self, host: str) -> None:
        self.coming_from[host] -= 1
        if not self.coming_from[host]:
            del self.coming_from[host]
