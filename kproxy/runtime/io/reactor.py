"""Event loop of the fast path: one epoll set of plain callbacks, driven by one trio task; pollers.py has what takes the
place of epoll where there is none.

Strategy. A trio task per socket pays trio's scheduler at each wake, which is twice what forwarding a small frame
costs. So sockets are served by callbacks, `table[fd](mask)`, called from the one task that runs `Reactor.run`; what has
to wait for something else (name look-up, handshakes, files) is an ordinary trio task, started by `spawn`. All of it is
one thread, nothing needs a lock.

A callback must not block and must not raise. One that raises all the same is logged with its traceback, and its owner
(the object whose bound method it is) is told by `crashed(error)`, so that it ends that connection and no other.
Trio sleeps inside the reactor (see pollers.py), so a callback that makes a trio task runnable must say so, which it
does by using `spawn` and `notify`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from time import monotonic, thread_time
from typing import Any, NamedTuple, Protocol

import trio
from structlog.typing import FilteringBoundLogger

from kproxy.protocol import breath

from .fair_queue import Queue
from .pollers import (
    DRIVERS,
    ERR,
    HUP,
    IN,
    OUT,
    Callback,
    Deadline,
    Deadlines,
    Poller,
    Timer,
    TrioPoller,
    make_poller,
    nested_is_possible,
)
from .scheduler import Turn, Turns, apart, guard, look, work_through

__all__ = ["ERR", "HUP", "IN", "OUT", "MakePoller", "Reactor"]

BATCH = 64
"""Events taken by one poll: the rest is reported by the next one, so that timers and trio get their turn in between."""

NOBODY = -1
"""Descriptor that is none, in place of one whose event is nobody's any more."""

SAMPLE = 16
"""One turn in so many is timed: the clock twice a turn would be a percent of what a lone request costs."""

OnReady = Callable[[int], object]
Observe = Callable[[float, int], object]
"""(seconds that an event took, how many events it stands for)"""
MakePoller = Callable[[], tuple[Poller, Timer]]


class Reactor:
    """Event loop that calls back for sockets that are ready, for times that have come, and soon.

    `observe` is told how long events take. `driver` is the one in use once `run` has begun: "nested" or, where trio's
    inside cannot be used so, "task"; "portable" where there is no epoll. `step` is for tasks that come in masses and
    have much to compute: trio runs all tasks that can run before callbacks have their turn, so they hold it for one
    step each.
    """

    def __init__(
        self, log: FilteringBoundLogger, observe: Observe = lambda seconds, times: None,
        make_poller: MakePoller = make_poller,
    ) -> None:  # fmt: skip
        self.log, self.observe = log, observe
        breath.use(look, apart, guard)
        self.turns = 0  # polls so far
        self.aside = Turns(self)
        self.timeout: float | None = None
        self.loop: Turn | None = None  # which goes from callback to callback
        self.current: Callable[..., object] | None = None  # the callback at hand
        self.polled: list[tuple[int, int]] = []  # events of this poll
        self.events: Iterator[tuple[int, int]] = iter(())  # those not served yet
        self.gone: set[int] = set()  # descriptors that were left since this poll; their numbers may be others' by now
        self.due: Iterator[Callback] = iter(())  # the same of deadlines
        self.batch, self.batch_begun = -1, 0.0  # which poll's time is measured, and since when
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
        """Call `ready(events)` when `fd` is ready for something in `mask`, or has HUP or ERR, from the next poll on.
        An event of this one may be about a descriptor that was closed since, and had the same number."""
        if fd in self.gone:
            self.polled[:] = [(NOBODY, 0) if event[0] == fd else event for event in self.polled]
        self.table[fd] = ready
        self.poller.register(fd, mask)

    def remove(self, fd: int) -> None:
        """Call no more for `fd`, which stays open."""
        if self.table.pop(fd, None) is not None:
            self.gone.add(fd)
            self.poller.unregister(fd)

    def forget(self, fd: int) -> None:
        """Call no more for `fd`, which is closed next: epoll forgets it by itself, another poller has to be told."""
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
        """Withdraw a call. The timer stays armed: at worst it fires for nothing."""
        self._deadlines.cancel(deadline)

    def soon(self, call: Callback) -> None:
        """Call `call()` as soon as the callbacks of this batch, or the trio tasks that run now, are through."""
        self.call_at(0.0, call)

    def work_through(self, steps: Iterator[object]) -> None:
        """Run short steps of long work in slices, between which callbacks and tasks run."""
        work_through(self, steps)

    def spawn(self, fn: Callable[..., Awaitable[object]], *args: Any) -> None:
        """Start a trio task. An exception that it lets go is logged and stops nothing else."""
        assert self._nursery is not None, "spawn before run"
        self._nursery.start_soon(self._guard, fn, *args)
        self.leave = True

    def notify(self, event: trio.Event) -> None:
        event.set()
        self.leave = True

    def wake(self, mask: int = 0) -> None:
        """Let trio run: its epoll set is readable, or a callback made a task runnable by other means."""
        self.leave = True

    # ---- for drivers

    async def run(
        self, driver: str | None = None, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve until cancelled. `driver` is chosen by what is possible when not given."""
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
        """Poll and call back until trio has to run; once with a `timeout`. Returns the events of the last poll."""
        self.timeout = timeout
        while True:
            loop = self.loop
            if loop is None:
                loop = self.loop = Turn(self, self._serve)
            served = loop.switch()
            if loop is self.loop:
                return int(served)

    def _serve(self) -> None:
        """Loop until this turn is put aside: then another turn goes on."""
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
        """Leave what is left of this poll to another turn: the one at hand is put aside."""
        self.loop = None
        self.polled, due = list(self.events), list(self.due)
        self.events, self.due = iter(self.polled), iter(due)

    def turn(self, timeout: float | None) -> int:
        """Poll once and call back; return how many events there were."""
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
                if ready is not None:  # else closed by an earlier callback of this batch
                    self.current = ready
                    ready(mask)
        except Exception as error:  # noqa: BLE001  # the rest of the batch is reported again
            self._crashed(ready, error)

    def _serve_rest(self) -> None:
        """Serve what was due, and ready, when the turn before this one was put aside. A turn that is itself put aside
        by what was due has lost its place: what is ready by then is for the turn that goes on with the loop, for this
        one keeps the bytes of one connection only."""
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
        """Free the two descriptors; not while `run` is running."""
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
        """Set trio's next deadline, which the driver says each time before it sleeps."""
        self.trio_due = when
        self._arm()

    async def _guard(self, fn: Callable[..., Awaitable[object]], *args: Any) -> None:
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
        """Return True if the work need not be done any more."""

    def computed(self, result: Any) -> None:
        """Take the result of the work that is done."""

    def crashed(self, error: Exception) -> None:
        """Take the exception that the work, or what came of it, has raised."""


ThreadJob = Callable[[], object]
BURST = 0.25
"""Seconds of a share that may have been saved up."""


# Work of milliseconds that clients cause, done in a thread: one piece at a time, and each address has its turn.
#
# Strategy. To check a password takes as long as hundreds of frames do, and whoever can connect can have one checked. In
# the event loop it would keep everybody waiting; hashlib lets go of the interpreter, so a thread beside the loop keeps
# nobody. There is one, so that guessing takes no more than one core. Work waits in a queue by address, and the
# addresses take turns: one that guesses on a thousand connections delays the login of another one by one hash.
#
# Work that does not let go of the interpreter keeps the loop waiting while it is done, some milliseconds for each turn
# of the loop. It has a queue of its own, with a share of a core: after it has used that up, it pauses. So nobody's
# login waits for it, and however much of it there is, most of the time is the loop's.
class WorkDone(NamedTuple):
    """Result of a piece of work, or what it has raised, and the seconds of a core that it took."""

    result: Any
    error: Exception | None
    seconds: float


def do(work: ThreadJob) -> WorkDone:
    """Do a piece of work in the thread that is called."""
    began = thread_time()
    try:
        result, error = work(), None
    except Exception as raised:  # noqa: BLE001  # its owner is told
        result, error = None, raised
    return WorkDone(result, error, thread_time() - began)


class SlowWork:
    """Queue of work for one thread of a process. `share`: part of a core that it takes at most, 1 for all of it."""

    def __init__(self, reactor: Reactor, share: float = 1.0) -> None:
        self.reactor, self.share = reactor, share
        self.queue: Queue[tuple[JobOwner, ThreadJob]] = Queue(lambda thing: thing[0].closed)
        self.busy = False
        self.saved, self.saved_at = BURST, monotonic()

    def add(self, address: str, owner: JobOwner, work: ThreadJob) -> None:
        """Call `owner.computed(work())` when its turn has come, unless it is closed by then."""
        self.queue.add(address, (owner, work))
        if not self.busy:
            self.busy = True
            self.reactor.spawn(self.run)

    async def run(self) -> None:
        """Work until the queue is empty, one piece at a time."""
        while (turn := self.queue.next()) is not None:
            owner, work = turn
            done = WorkDone(None, None, 0.0)
            try:
                done = await trio.to_thread.run_sync(partial(do, work), abandon_on_cancel=True)
                if done.error is not None:
                    raise done.error
                if not owner.closed:
                    owner.computed(done.result)
            except Exception as error:  # the others' is done all the same
                self.reactor.log.error("work in a thread raised", exc_info=error)
                owner.crashed(error)
            if self.share < 1:
                await trio.sleep(self.pause(done.seconds, monotonic()))
        self.busy = False

    def pause(self, used: float, now: float) -> float:
        """Return the seconds without work after so many of a core have been used, for the share to be kept."""
        self.saved = min(BURST, self.saved + self.share * (now - self.saved_at)) - used
        self.saved_at = now
        return max(0.0, -self.saved / self.share)
