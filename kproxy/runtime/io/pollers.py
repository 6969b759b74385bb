"""Heap of calls by the times at which they are due, and the kernel timer by which the reactor knows when to make them.

The timer is a file descriptor, which an epoll set can hold. A timeout given to epoll would be armed and disarmed by the
kernel at each poll, which is dear on virtual machines; this one is armed when a deadline moves. Python's `os` has it
from 3.13 on only, hence ctypes.
"""

from __future__ import annotations

import ctypes
import math
import os
import select
from collections.abc import Awaitable, Callable, Mapping
from heapq import heapify, heappop, heappush
from itertools import count, islice
from time import monotonic
from typing import Protocol

import trio

from kproxy.base.sockets import HAS_EPOLL

Callback = Callable[[], None]
FEW = 64
"""Cancelled entries up to which the heap is not searched for them, be they its majority or not."""

CLOCK_MONOTONIC = 1  # linux/time.h: the clock of time.monotonic()
TFD_TIMER_ABSTIME = 1  # linux/timerfd.h


class Deadline:
    """Handle of one call that is due at `when`; `call` is None once it was made or cancelled."""

    __slots__ = ("call", "when")

    def __init__(self, when: float, call: Callback) -> None:
        self.when = when
        self.call: Callback | None = call


class Deadlines:
    """Heap of calls by times of `time.monotonic()`; equal times are called in the order in which they were set."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Deadline]] = []
        self._order = count()
        self._cancelled = 0

    def add(self, when: float, call: Callback) -> Deadline:
        deadline = Deadline(when, call)
        heappush(self._heap, (when, next(self._order), deadline))
        return deadline

    def cancel(self, deadline: Deadline) -> None:
        """Withdraw the call. Cancelling twice, or after the call, does nothing."""
        if deadline.call is None:
            return
        deadline.call = None
        self._cancelled += 1
        if self._cancelled > FEW and self._cancelled * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].call is not None]
            heapify(self._heap)
            self._cancelled = 0

    def next(self) -> float | None:
        heap = self._heap
        while heap and heap[0][2].call is None:
            heappop(heap)
            self._cancelled -= 1
        return heap[0][0] if heap else None

    def take(self, now: float) -> list[Callback]:
        """Take out all calls that are due. What they set in their turn waits for the next look, even if due at once."""
        calls = []
        while (when := self.next()) is not None and when <= now:
            deadline = heappop(self._heap)[2]
            if deadline.call is not None:
                calls.append(deadline.call)
            deadline.call = None
        return calls


class KernelTimer:
    """Timer whose descriptor is readable from the time given to `set` on. Times are those of `time.monotonic()`."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._spec = (ctypes.c_long * 4)()  # interval s, ns; value s, ns
        self.fd: int = self._libc.timerfd_create(CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self.fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create failed")

    def set(self, when: float | None) -> None:
        """Make it readable at `when` and after; None: never. A new setting makes it unreadable until its own time."""
        nanoseconds = 0 if when is None else max(1, int(when * 1e9))
        self._spec[2], self._spec[3] = divmod(nanoseconds, 1_000_000_000)
        self._libc.timerfd_settime(self.fd, TFD_TIMER_ABSTIME, self._spec, None)

    def close(self) -> None:
        os.close(self.fd)


IN, OUT, ERR, HUP = 1, 4, 8, 16
"""Masks of events, with the numbers that epoll(7) has."""


class Poller(Protocol):
    """Set of descriptors with the events that are wanted of each; `select.epoll` is one."""

    def register(self, fd: int, mask: int, /) -> None: ...
    def modify(self, fd: int, mask: int, /) -> None: ...
    def unregister(self, fd: int, /) -> None: ...
    def poll(self, timeout: float | None = None, most: int = -1, /) -> list[tuple[int, int]]:
        """Return at most so many (descriptor, events), after `timeout` seconds at most."""

    def close(self) -> None: ...


class Timer(Protocol):
    """Timer of a reactor, whose `fd` has the event IN from the time on that was set; times of `time.monotonic()`."""

    @property
    def fd(self) -> int: ...
    def set(self, when: float | None) -> None: ...
    def close(self) -> None: ...


# Pollers of a reactor: what tells it which descriptors are ready, and the timer that goes with each.
#
#     epoll         the kernel keeps the set, and the timer is a descriptor of it (Linux)
#     TrioPoller    a trio task waits for each descriptor and direction, and trio sleeps until the timer's time
#
# Strategy of the second one. trio knows how each system waits (kqueue, AFD of Windows), so this asks trio, by its
# public API, in place of the system. A task waits once and notes what is ready; `poll` takes the notes, and a
# descriptor that is still wanted afterwards is waited for anew before the next sleep. So a callback that leaves
# something is called again, as with epoll. Two things are weaker: an event costs two passes through trio's scheduler,
# and a descriptor for which neither IN nor OUT is wanted tells nothing, where epoll reports HUP and ERR in any case.
# Who closes a descriptor must say so first (`Reactor.forget`).
class AwaitedDescriptor:
    """Descriptor of a TrioPoller. `waiting`: the events that tasks wait for; `noted`: those that have come."""

    __slots__ = ("fd", "mask", "noted", "waiting")

    def __init__(self, fd: int, mask: int) -> None:
        self.fd, self.mask = fd, mask
        self.waiting = self.noted = 0


class TrioPoller:
    """Poller whose descriptors trio waits for. `poll` never waits; `wait` does, and is for the driver."""

    def __init__(self) -> None:
        self.known: dict[int, AwaitedDescriptor] = {}
        self.changed: set[AwaitedDescriptor] = set()  # tasks may be missing
        self.ready: dict[AwaitedDescriptor, None] = {}  # in the order in which they became so
        self.due: float | None = None
        self.woken = trio.Event()

    # ---- as epoll has it

    def register(self, fd: int, mask: int) -> None:
        """Wait for `fd`. One of this number that is known was closed, and nobody has said so."""
        self.unregister(fd)
        self.known[fd] = AwaitedDescriptor(fd, mask)
        self._look_at(self.known[fd])

    def modify(self, fd: int, mask: int) -> None:
        awaited = self.known[fd]
        awaited.mask = mask
        self._look_at(awaited)

    def unregister(self, fd: int) -> None:
        """Wait for `fd` no more; it may be closed then. One that is not there is none."""
        awaited = self.known.pop(fd, None)
        if awaited is None:
            return
        awaited.mask = 0
        self.changed.discard(awaited)
        self.ready.pop(awaited, None)
        if awaited.waiting:
            trio.lowlevel.notify_closing(fd)

    def poll(self, timeout: float | None = None, most: int = -1) -> list[tuple[int, int]]:
        """Return what is ready now, at most so many; `timeout` is for the driver's sleep."""
        events = [(SleepTimer.fd, IN)] if self.due is not None and monotonic() >= self.due else []
        for awaited in list(islice(self.ready, most if most >= 0 else None)):
            del self.ready[awaited]
            mask, awaited.noted = awaited.noted & awaited.mask, 0
            if mask:
                events.append((awaited.fd, mask))
            self._look_at(awaited)
        return events

    def close(self) -> None:
        """Do nothing: the driver's tasks have ended with it."""

    # ---- for the driver and the timer

    async def wait(self, nursery: trio.Nursery) -> None:
        """Return when there may be something to poll. `nursery`: for the tasks that wait, while the driver runs."""
        for awaited in self.changed:
            self._start_tasks(nursery, awaited)
        self.changed.clear()
        if self.ready:
            await trio.lowlevel.checkpoint()
            return
        self.woken = trio.Event()
        with trio.move_on_after(math.inf if self.due is None else max(0.0, self.due - monotonic())):
            await self.woken.wait()

    def sleep_until(self, when: float | None) -> None:
        """Have `wait` return at this time, and `poll` tell of the timer from then on; None: never."""
        self.due = when
        self.woken.set()

    # ---- inside

    def _look_at(self, awaited: AwaitedDescriptor) -> None:
        """Have tasks started for it, where there are too few, before the next sleep."""
        self.changed.add(awaited)
        self.woken.set()

    def _start_tasks(self, nursery: trio.Nursery, awaited: AwaitedDescriptor) -> None:
        missing = awaited.mask & ~awaited.waiting & ~awaited.noted
        for bit, wait in ((IN, trio.lowlevel.wait_readable), (OUT, trio.lowlevel.wait_writable)):
            if missing & bit:
                awaited.waiting |= bit
                nursery.start_soon(self._wait_once, awaited, bit, wait)

    async def _wait_once(self, awaited: AwaitedDescriptor, bit: int, wait: Callable[[int], Awaitable[None]]) -> None:
        """Note that the descriptor is ready, once it is. A descriptor that cannot be waited for counts as ready: who
        reads it gets the error."""
        try:
            if self.known.get(awaited.fd) is not awaited:  # closed since, and the number may be another one's
                return
            await wait(awaited.fd)
        except trio.ClosedResourceError:
            return
        except OSError:
            await trio.lowlevel.checkpoint()
        finally:
            awaited.waiting &= ~bit
        if self.known.get(awaited.fd) is awaited:
            awaited.noted |= bit
            self.ready[awaited] = None
            self.woken.set()


class SleepTimer:
    """Timer of a TrioPoller; its descriptor is none that anybody has open."""

    fd = -2

    def __init__(self, poller: TrioPoller) -> None:
        self.poller = poller

    def set(self, when: float | None) -> None:
        """Tell the poller from when on there is an event; None: never."""
        self.poller.sleep_until(when)

    def close(self) -> None:
        self.poller.sleep_until(None)


def epoll_poller() -> tuple[Poller, Timer]:
    """Return an epoll set, and a timer whose descriptor is in it."""
    poller, timer = select.epoll(), KernelTimer()
    poller.register(timer.fd, IN)
    return poller, timer


def trio_poller() -> tuple[Poller, Timer]:
    """Return a poller that needs nothing but trio, and its timer."""
    poller = TrioPoller()
    return poller, SleepTimer(poller)


make_poller = epoll_poller if HAS_EPOLL else trio_poller


SHORT_TURN = 50e-6
"""While other tasks keep running, they get this many seconds between two batches of ours."""
LONG_TURN = 10e-3
"""The same when there was nothing for us to do: it doubles up to this, so that a slow machine does not spin."""
FAR = 1e6
"""Trio says infinity when it has no deadline; anything above eleven days is none."""
BATCHES = 8
"""Batches that `task` and `portable` serve at once before other tasks get their turn."""


# Three ways for a trio task to drive a reactor. `nested` is the one to have; the others need trio's public API only.
#
#     nested   the reactor's epoll set holds trio's own: while no task can run, the program sleeps in the reactor's
# poll,
#              and trio is not passed at all by a frame that comes and goes
#     task     trio's epoll set holds the reactor's: each wake passes trio's scheduler
#     portable  there is no epoll: trio waits for each descriptor by itself (see pollers.py), several times as dear
#
# Under a test's MockClock use `task`: `nested` sleeps by the real clock.
class PlannedTurns(Protocol):
    """Turns of a reactor that were put aside."""

    @property
    def planned(self) -> bool:
        """Return True if one of them is to go on."""


class Drivable(Protocol):
    """Reactor, as far as a driver uses it."""

    leave: bool

    @property
    def poller(self) -> Poller: ...
    @property
    def aside(self) -> PlannedTurns: ...
    def add(self, fd: int, ready: Callable[[int], object], mask: int) -> None: ...
    def remove(self, fd: int) -> None: ...
    def wake(self, mask: int = 0) -> None: ...
    def wake_at(self, when: float | None) -> None: ...
    def serve(self, timeout: float | None) -> int: ...


def trio_inside() -> tuple[int, Callable[[], Awaitable[None]]]:
    """Return the descriptor of the running trio's own epoll set, and its `wait_all_tasks_blocked`.

    Both are private: AttributeError when they are gone. The second is public in `trio.testing`, whose import takes 9 MB
    and 80 ms where pytest is installed.
    """
    from trio._core import _run

    runner = _run.GLOBAL_RUN_CONTEXT.runner
    return runner.io_manager._epoll.fileno(), runner.wait_all_tasks_blocked


def nested_is_possible() -> bool:
    """Return True if the running trio has the inside that `nested` needs."""
    try:
        trio_inside()
    except (AttributeError, ImportError):
        return False
    return True


async def nested(reactor: Drivable) -> None:
    """Sleep in the reactor; go to trio when its epoll set is readable, its next deadline is due, or after `wake`."""
    inner, all_tasks_blocked = trio_inside()
    reactor.add(inner, reactor.wake, 1)
    serve, statistics = reactor.serve, trio.lowlevel.current_statistics
    limit = SHORT_TURN
    try:
        while True:
            with trio.move_on_after(limit) as busy:
                await all_tasks_blocked()
            if busy.cancelled_caught:  # other tasks do not rest: take turns with them
                limit = SHORT_TURN if serve(0) else min(limit * 2, LONG_TURN)
                continue
            limit = SHORT_TURN
            seconds = statistics().seconds_to_next_deadline
            if seconds <= 0:
                await trio.lowlevel.checkpoint()
                continue
            reactor.leave = False
            reactor.wake_at(monotonic() + seconds if seconds < FAR else None)
            serve(None)
    finally:
        reactor.remove(inner)


async def task(reactor: Drivable) -> None:
    """Sleep in trio, which watches the reactor's epoll set."""
    poller = reactor.poller
    assert isinstance(poller, select.epoll), "no epoll set that trio could watch"
    fd = poller.fileno()
    while True:
        await trio.lowlevel.wait_readable(fd)
        serve_some(reactor)


async def portable(reactor: Drivable) -> None:
    """Sleep in trio, which waits for each of the reactor's descriptors."""
    poller = reactor.poller
    assert isinstance(poller, TrioPoller), "no poller that waits by trio's tasks"
    async with trio.open_nursery() as nursery:
        while True:
            await poller.wait(nursery)
            serve_some(reactor)


def serve_some(reactor: Drivable) -> None:
    """Serve what is ready now, and what that makes ready, some batches long."""
    for _ in range(BATCHES):
        if not reactor.serve(0) or reactor.aside.planned:  # what was put aside takes turns with trio, too
            break


DRIVERS: Mapping[str, Callable[[Drivable], Awaitable[None]]] = {"nested": nested, "task": task, "portable": portable}
