"""Event loop of the fast path: one epoll set of plain callbacks, driven by one trio task.

`pollers.py` contains the replacement for systems without epoll.

A trio task per socket pays trio's scheduler at each wake, which is twice the cost of forwarding a small frame. So
callbacks `table[fd](mask)` serve the sockets. The task of `Reactor.run` calls them. Work that waits for other things
(name lookup, handshakes, files) is an ordinary trio task, started by `spawn`. All of it runs in one thread without
locks.

A callback must not block and must not raise. If it raises, the traceback is logged and `crashed(error)` of the bound
object is called, which ends only that connection. Trio sleeps inside the reactor (see `pollers.py`). So a callback that
makes a trio task runnable must use `spawn` or `notify`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from time import monotonic, thread_time
from typing import Any, NamedTuple, Protocol

import trio
from structlog.typing import FilteringBoundLogger

from kproxy.base import cooperative

from .fair_queue import RoundRobin
from .pollers import (
    DRIVERS,
    ERR,
    HUP,
    IN,
    OUT,
    Callback,
    Deadline,
    Deadlines,
    KernelTimer,
    Poller,
    SleepTimer,
    TrioPoller,
    make_poller,
    nested_is_possible,
)
from .scheduler import Fiber, Fibers, apart, guard, maybe_preempt, work_through

__all__ = ["ERR", "HUP", "IN", "OUT", "MakePoller", "Reactor"]

BATCH = 64  # events of one poll; the next one reports the rest, so timers and trio run between two polls

NOBODY = -1  # replaces the descriptor of an event that no callback serves

SAMPLE = 16  # one turn of this many is timed: two clock calls a turn would cost 1 % of a single request

OnReady = Callable[[int], object]
Observe = Callable[[float, int], object]
"""(seconds per event, number of events that this sample represents)"""
MakePoller = Callable[[], tuple[Poller, KernelTimer | SleepTimer]]


class Reactor:
    """Event loop that calls callbacks for ready sockets, for deadlines, and soon.

    `observe` receives the time that events take. `driver` is set once `run` has begun. It is "nested", "task" where
    trio's private attributes are missing, or "portable" without epoll. `step` is a lock for tasks that come in large
    numbers and compute a lot. Trio runs all runnable tasks before callbacks run, so each task holds the lock for one
    step.
    """

    def __init__(
        self, log: FilteringBoundLogger, observe: Observe = lambda seconds, times: None,
        make_poller: MakePoller = make_poller,
    ) -> None:  # fmt: skip
        self.log, self.observe = log, observe
        cooperative.install_hooks(maybe_preempt, apart, guard)
        self.turns = 0  # polls so far
        self.aside = Fibers(self)
        self.timeout: float | None = None
        self.loop: Fiber | None = None  # calls one callback after another
        self.current: Callable[..., object] | None = None  # the running callback
        self.polled: list[tuple[int, int]] = []  # events of this poll
        self.events: Iterator[tuple[int, int]] = iter(())  # events not served yet
        self.gone: set[int] = set()  # descriptors removed since this poll; their numbers may have been reused
        self.due: Iterator[Callback] = iter(())  # due calls not served yet
        self.batch, self.batch_begun = -1, 0.0  # poll that is being timed, and its start
        self.poller, self._timer = make_poller()
        self.poll = self.poller.poll
        self.table: dict[int, OnReady] = {}
        self.modify = self.poller.modify
        self.tells_closing = isinstance(self.poller, TrioPoller)
        self.leave = False
        self.trio_due: float | None = None
        self.driver = ""
        self.step = trio.Lock()
        self._deadlines = Deadlines()
        self._armed: float | None = None
        self._nursery: trio.Nursery | None = None
        self.table[self._timer.fd] = self._timer_ready

    # ---- for callbacks and tasks

    def add(self, fd: int, ready: OnReady, mask: int) -> None:
        """Call `ready(events)` when `fd` is ready for an event in `mask`, or has HUP or ERR, from the next poll on.
        Events of this poll may belong to a closed descriptor with the same number."""
        if fd in self.gone:
            self.polled[:] = [(NOBODY, 0) if event[0] == fd else event for event in self.polled]
        self.table[fd] = ready
        self.poller.register(fd, mask)

    def remove(self, fd: int) -> None:
        """Stop calling callbacks for `fd`, which stays open."""
        if self.table.pop(fd, None) is not None:
            self.gone.add(fd)
            self.poller.unregister(fd)

    def forget(self, fd: int) -> None:
        """Stop calling callbacks for `fd`, which is closed next. Epoll forgets it by itself; other pollers unregister
        it."""
        if self.table.pop(fd, None) is not None:
            self.gone.add(fd)
            if self.tells_closing:
                self.poller.unregister(fd)

    def call_at(self, when: float, call: Callback) -> Deadline:
        """Call `call()` at `when` (of `time.monotonic()`) or a little later."""
        deadline = self._deadlines.add(when, call)
        self._arm()
        return deadline

    def cancel(self, deadline: Deadline) -> None:
        """Cancel a call. The timer stays armed: at worst it fires without effect."""
        self._deadlines.cancel(deadline)

    def soon(self, call: Callback) -> None:
        """Call `call()` after the callbacks of this batch, or the running trio tasks, are done."""
        self.call_at(0.0, call)

    def work_through(self, steps: Iterator[object]) -> None:
        """Run short steps of long work in slices. Callbacks and tasks run between the slices."""
        work_through(self, steps)

    def spawn(self, fn: Callable[..., Awaitable[object]], *args: Any) -> None:
        """Start a trio task. Its exceptions are logged and affect no other task."""
        assert self._nursery is not None, "spawn before run"
        self._nursery.start_soon(self._guard, fn, *args)
        self.leave = True

    def notify(self, event: trio.Event) -> None:
        event.set()
        self.leave = True

    def wake(self, mask: int = 0) -> None:
        """Let trio run: its epoll set is readable, or a callback made a task runnable."""
        self.leave = True

    # ---- for drivers

    async def run(
        self, driver: str | None = None, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve until cancelled. `driver` defaults to the fastest possible one."""
        if driver is None:
            driver = "portable" if self.tells_closing else "nested" if nested_is_possible() else "task"
            if driver == "task":
                self.log.warning("reactor falls back to its slower driver", driver=driver, trio=trio.__version__)
        self.driver = driver
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            task_status.started()
            try:
                await DRIVERS[driver](self)
            finally:
                self._nursery = None
                self.aside.close()
                if self.loop is not None:
                    self.loop.give_up()

    def serve(self, timeout: float | None) -> int:
        """Poll and run callbacks until trio has to run; once with a `timeout`. Returns the number of events of the last
        poll."""
        self.timeout = timeout
        while True:
            loop = self.loop
            if loop is None:
                loop = self.loop = Fiber(self, self._serve)
            served = loop.switch()
            if loop is self.loop:
                return int(served)

    def _serve(self) -> None:
        """Loop until this turn is suspended. Then another turn continues the loop."""
        me, served = self.loop, 0
        assert me is not None
        trio_side = me.parent
        assert trio_side is not None
        self._serve_rest()
        while me is self.loop:
            if not self.leave or self.timeout is not None:
                served = self.turn(self.timeout)
            if me is self.loop and (self.leave or self.timeout is not None):
                trio_side.switch(served)

    def hand_over(self) -> None:
        """Leave the rest of this poll to another turn: the current one is being suspended."""
        self.loop = None
        self.polled, due = list(self.events), list(self.due)
        self.events, self.due = iter(self.polled), iter(due)

    def turn(self, timeout: float | None) -> int:
        """Poll once and run callbacks. Return the number of events."""
        self.gone.clear()
        events = self.polled = self.poll(timeout, BATCH)
        self.turns += 1
        begun, loop = None if self.turns % SAMPLE else monotonic(), self.loop
        self.events = iter(events)
        self._call_back()
        self.current = None
        if begun is not None and events and loop is self.loop:
            self.observe((monotonic() - begun) / len(events), len(events) * SAMPLE)
        return len(events)

    def _call_back(self) -> None:
        table = self.table
        ready = None
        try:
            for fd, mask in self.events:
                ready = table.get(fd)
                if ready is not None:  # None if an earlier callback of this batch closed it
                    self.current = ready
                    ready(mask)
        except Exception as error:  # noqa: BLE001  # the next poll reports the rest of the batch
            self._crashed(ready, error)

    def _serve_rest(self) -> None:
        """Serve due calls and ready events that a suspended turn has left. If this turn is suspended in a due call, it
        is not the loop any more. Then the turn that continues the loop serves ready events, because the suspended one
        keeps the bytes of only one connection."""
        me = self.loop
        self._call_due()
        if me is self.loop:
            self._call_back()
            self.current = None

    def _call_due(self) -> None:
        for call in self.due:
            self.current = call
            try:
                call()
            except Exception as error:  # noqa: BLE001
                self._crashed(call, error)

    def close(self) -> None:
        """Close both descriptors. Must not be called during `run`."""
        self._timer.close()
        self.poller.close()

    # ---- inside

    def _timer_ready(self, mask: int) -> None:
        now = monotonic()
        self.due = iter(self._deadlines.take(now))
        self._call_due()
        if self.trio_due is not None and now >= self.trio_due:
            self.trio_due = None
            self.leave = True
        self._armed = None
        self._timer.set(None)
        self._arm()

    def _arm(self) -> None:
        times = [time for time in (self._deadlines.next(), self.trio_due) if time is not None]
        if times and (self._armed is None or min(times) < self._armed):
            self._armed = min(times)
            self._timer.set(self._armed)

    def wake_at(self, when: float | None) -> None:
        """Set trio's next deadline. The driver calls this before each sleep."""
        self.trio_due = when
        self._arm()

    async def _guard(self, fn: Callable[..., Awaitable[object]], *args: Any) -> None:
        cooperative.DEFERRED.set(None)  # a task has its caller's context, which can be inside `free_after`
        try:
            await fn(*args)
        except Exception as error:  # noqa: BLE001
            self._crashed(fn, error)

    def _crashed(self, callback: Callable[..., object] | None, error: Exception) -> None:
        self.log.error("a callback raised", callback=getattr(callback, "__qualname__", repr(callback)), exc_info=error)
        crashed = getattr(getattr(callback, "__self__", None), "crashed", None)
        if crashed is None:
            return
        try:
            crashed(error)
        except Exception as again:
            self.log.error("cleaning up after it raised too", exc_info=again)


class JobOwner(Protocol):
    """Owner of a piece of work, such as a connection."""

    @property
    def closed(self) -> bool:
        """Return True if the work is not needed any more."""

    def computed(self, result: Any) -> None:
        """Receive the result of the work."""

    def crashed(self, error: Exception) -> None:
        """Receive an exception of the work or of `computed`."""


ThreadJob = Callable[[], object]
BURST = 0.25  # seconds of unused share that may accumulate


# CPU work of milliseconds that clients cause runs in a thread, one job at a time, in turns by address.
#
# A password check takes as long as hundreds of frames, and any client can cause one. In the event loop it would delay
# all connections. hashlib releases the GIL, so a thread does not block the loop. Only one thread is used, so password
# guessing takes at most one core. Jobs wait in a queue by address, and addresses take turns. So an attacker with a
# thousand connections delays another login by one hash.
#
# Work that holds the GIL delays the loop by some milliseconds per turn. It has a separate queue with a share of a core,
# and pauses when the share is used up. So logins do not wait for it, and the loop gets most of the time.
class WorkDone(NamedTuple):
    """Result or exception of a job, and the CPU seconds that it took."""

    result: Any
    error: Exception | None
    seconds: float


def do(work: ThreadJob) -> WorkDone:
    began = thread_time()
    try:
        result, error = work(), None
    except Exception as raised:  # noqa: BLE001  # the owner receives it
        result, error = None, raised
    return WorkDone(result, error, thread_time() - began)


class SlowWork:
    """Queue of jobs for one thread. `share`: maximum part of a core, 1 for all of it."""

    def __init__(self, reactor: Reactor, share: float = 1.0) -> None:
        self.reactor, self.share = reactor, share
        self.queue: RoundRobin[tuple[JobOwner, ThreadJob]] = RoundRobin(lambda thing: thing[0].closed)
        self.busy = False
        self.saved, self.saved_at = BURST, monotonic()

    def add(self, address: str, owner: JobOwner, work: ThreadJob) -> None:
        """Call `owner.computed(work())` in turn, unless the owner is closed by then."""
        self.queue.add(address, (owner, work))
        if not self.busy:
            self.busy = True
            self.reactor.spawn(self.run)

    async def run(self) -> None:
        """Run jobs one at a time until the queue is empty."""
        while (turn := self.queue.next()) is not None:
            owner, work = turn
            done = WorkDone(None, None, 0.0)
            try:
                done = await trio.to_thread.run_sync(partial(do, work), abandon_on_cancel=True)
                if done.error is not None:
                    raise done.error
                if not owner.closed:
                    owner.computed(done.result)
            except Exception as error:  # other jobs still run
                self.reactor.log.error("work in a thread raised", exc_info=error)
                owner.crashed(error)
            if self.share < 1:
                await trio.sleep(self.pause(done.seconds, monotonic()))
        self.busy = False

    def pause(self, used: float, now: float) -> float:
        """Return the pause in seconds after a job of `used` CPU seconds that keeps the share."""
        self.saved = min(BURST, self.saved + self.share * (now - self.saved_at)) - used
        self.saved_at = now
        return max(0.0, -self.saved / self.share)
