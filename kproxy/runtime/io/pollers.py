"""Heap of scheduled calls, and the kernel timer that wakes the reactor for the next one.

The timer is a file descriptor (timerfd) in the epoll set. The kernel would arm and disarm an epoll timeout at each
poll, which is expensive on virtual machines. The timer is armed only when a deadline moves. Python's `os` supports
timerfd only since 3.13, hence ctypes.
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
from typing import TYPE_CHECKING, Protocol

import trio

from kproxy.base.sockets import HAS_EPOLL

if TYPE_CHECKING:
    from .reactor import Reactor

Callback = Callable[[], None]
FEW = 64  # cancelled entries; above this the heap is cleaned if they are the majority

CLOCK_MONOTONIC = 1  # linux/time.h: the clock of time.monotonic()
TFD_TIMER_ABSTIME = 1  # linux/timerfd.h


class Deadline:
    """Handle of one call that is due at `when`. `call` is None after it was made or cancelled."""

    __slots__ = ("call", "when")

    def __init__(self, when: float, call: Callback) -> None:
        self.when = when
        self.call: Callback | None = call


class Deadlines:
    """Heap of calls by times of `time.monotonic()`. Calls with equal times run in the order of their registration."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Deadline]] = []
        self._order = count()
        self._cancelled = 0

    def add(self, when: float, call: Callback) -> Deadline:
        deadline = Deadline(when, call)
        heappush(self._heap, (when, next(self._order), deadline))
        return deadline

    def cancel(self, deadline: Deadline) -> None:
        """Cancel the call. Cancelling twice, or after the call, does nothing."""
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
        """Remove and return all calls that are due. Calls that these add wait for the next look, even if due at
        once."""
        calls = []
        while (when := self.next()) is not None and when <= now:
            deadline = heappop(self._heap)[2]
            if deadline.call is not None:
                calls.append(deadline.call)
            deadline.call = None
        return calls


class KernelTimer:
    """Timer with a descriptor that is readable once the time of `set` has passed. Times are those of
    `time.monotonic()`."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._spec = (ctypes.c_long * 4)()  # interval s, ns; value s, ns
        self.fd: int = self._libc.timerfd_create(CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self.fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create failed")

    def set(self, when: float | None) -> None:
        """Make the descriptor readable from `when`; None: never. A new setting makes it unreadable until the new
        time."""
        nanoseconds = 0 if when is None else max(1, int(when * 1e9))
        self._spec[2], self._spec[3] = divmod(nanoseconds, 1_000_000_000)
        self._libc.timerfd_settime(self.fd, TFD_TIMER_ABSTIME, self._spec, None)

    def close(self) -> None:
        os.close(self.fd)


IN, OUT, ERR, HUP = 1, 4, 8, 16
"""Event masks, with the numbers of epoll(7)."""


class Poller(Protocol):
    """Set of descriptors, each with a mask of events. `select.epoll` is one."""

    def register(self, fd: int, mask: int, /) -> None: ...
    def modify(self, fd: int, mask: int, /) -> None: ...
    def unregister(self, fd: int, /) -> None: ...
    def poll(self, timeout: float | None = None, most: int = -1, /) -> list[tuple[int, int]]:
        """Return at most `most` pairs (descriptor, events), after at most `timeout` seconds."""

    def close(self) -> None: ...


# Pollers of a reactor report ready descriptors. Each has its timer.
#
#     epoll         the kernel holds the set, and the timer is a descriptor in it (Linux)
#     TrioPoller    a trio task waits for each descriptor and direction, and trio sleeps until the timer's time
#
# TrioPoller uses trio's public API, because trio supports each system's poller (kqueue, AFD on Windows). A task waits
# once and records the ready event. `poll` returns recorded events. A descriptor with a nonempty mask gets a new task
# before the next sleep, so a callback that leaves bytes unread is called again, as with epoll. Compared with epoll, an
# event costs two passes through trio's scheduler. A descriptor with a mask of 0 reports no events, but epoll reports
# HUP and ERR in any case. Call `Reactor.forget` before closing a descriptor.
class AwaitedDescriptor:
    """Descriptor of a TrioPoller. `waiting`: events with a waiting task; `noted`: events that have occurred."""

    __slots__ = ("fd", "mask", "noted", "waiting")

    def __init__(self, fd: int, mask: int) -> None:
        self.fd, self.mask = fd, mask
        self.waiting = self.noted = 0


class TrioPoller:
    """Poller that lets trio wait for its descriptors. `poll` never blocks; the driver calls `wait`, which does."""

    def __init__(self) -> None:
        self.known: dict[int, AwaitedDescriptor] = {}
        self.changed: set[AwaitedDescriptor] = set()  # tasks may be missing
        self.ready: dict[AwaitedDescriptor, None] = {}  # in the order of their events
        self.due: float | None = None
        self.woken = trio.Event()

    # ---- as epoll has it

    def register(self, fd: int, mask: int) -> None:
        """Wait for `fd`. If the number is registered, the earlier descriptor was closed without `unregister`."""
        self.unregister(fd)
        self.known[fd] = AwaitedDescriptor(fd, mask)
        self._look_at(self.known[fd])

    def modify(self, fd: int, mask: int) -> None:
        awaited = self.known[fd]
        awaited.mask = mask
        self._look_at(awaited)

    def unregister(self, fd: int) -> None:
        """Stop waiting for `fd`, which may be closed then. An unregistered `fd` is ignored."""
        awaited = self.known.pop(fd, None)
        if awaited is None:
            return
        awaited.mask = 0
        self.changed.discard(awaited)
        self.ready.pop(awaited, None)
        if awaited.waiting:
            trio.lowlevel.notify_closing(fd)

    def poll(self, timeout: float | None = None, most: int = -1) -> list[tuple[int, int]]:
        """Return at most `most` events that are ready now. `timeout` is ignored: the driver sleeps in `wait`."""
        events = [(SleepTimer.fd, IN)] if self.due is not None and monotonic() >= self.due else []
        for awaited in list(islice(self.ready, most if most >= 0 else None)):
            del self.ready[awaited]
            mask, awaited.noted = awaited.noted & awaited.mask, 0
            if mask:
                events.append((awaited.fd, mask))
            self._look_at(awaited)
        return events

    def close(self) -> None:
        """Do nothing: the tasks end with the driver."""

    # ---- for the driver and the timer

    async def wait(self, nursery: trio.Nursery) -> None:
        """Return when events may be ready. `nursery` runs the waiting tasks as long as the driver runs."""
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
        """Let `wait` return at `when`, and `poll` report the timer once it has passed; None: never."""
        self.due = when
        self.woken.set()

    # ---- inside

    def _look_at(self, awaited: AwaitedDescriptor) -> None:
        """Schedule the start of missing tasks before the next sleep."""
        self.changed.add(awaited)
        self.woken.set()

    def _start_tasks(self, nursery: trio.Nursery, awaited: AwaitedDescriptor) -> None:
        missing = awaited.mask & ~awaited.waiting & ~awaited.noted
        for bit, wait in ((IN, trio.lowlevel.wait_readable), (OUT, trio.lowlevel.wait_writable)):
            if missing & bit:
                awaited.waiting |= bit
                nursery.start_soon(self._wait_once, awaited, bit, wait)

    async def _wait_once(self, awaited: AwaitedDescriptor, bit: int, wait: Callable[[int], Awaitable[None]]) -> None:
        """Record that the descriptor is ready, once it is. A wait that fails counts as ready: the reader gets the
        error."""
        try:
            if self.known.get(awaited.fd) is not awaited:  # closed since; the number may have been reused
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
    """Timer of a TrioPoller. Its descriptor -2 is never a valid one."""

    fd = -2

    def __init__(self, poller: TrioPoller) -> None:
        self.poller = poller

    def set(self, when: float | None) -> None:
        """Set the time of the timer event; None: never."""
        self.poller.sleep_until(when)

    def close(self) -> None:
        self.poller.sleep_until(None)


def epoll_poller() -> tuple[Poller, KernelTimer | SleepTimer]:
    """Return an epoll set, and a timer with a descriptor in it."""
    poller, timer = select.epoll(), KernelTimer()
    poller.register(timer.fd, IN)
    return poller, timer


def trio_poller() -> tuple[Poller, KernelTimer | SleepTimer]:
    """Return a poller that needs only trio, and its timer."""
    poller = TrioPoller()
    return poller, SleepTimer(poller)


make_poller = epoll_poller if HAS_EPOLL else trio_poller


SHORT_TURN = 50e-6  # seconds of other tasks between two batches of the reactor, while they keep running
LONG_TURN = 10e-3
"""Limit in seconds when the reactor had no events: SHORT_TURN doubles up to this, so that a slow machine does not
spin."""
FAR = 1e6  # seconds (eleven days); trio reports infinity without a deadline, and longer times count as none
BATCHES = 8  # batches that `task` and `portable` serve before other tasks run


# Three drivers run a reactor in a trio task. `nested` is preferred; the others need only trio's public API.
#
#     nested    the reactor's epoll set holds trio's epoll set: while no task can run, the program sleeps in the
#               reactor's poll, and forwarded frames do not pass trio's scheduler
#     task      trio's epoll set holds the reactor's: each wake passes trio's scheduler
#     portable  without epoll: trio waits for each descriptor (`TrioPoller`), which costs several times as much
#
# Under a test's MockClock use `task`: `nested` sleeps by the real clock.
def trio_inside() -> tuple[int, Callable[[], Awaitable[None]]]:
    """Return the descriptor of trio's own epoll set, and its `wait_all_tasks_blocked`.

    Both are private. Raises AttributeError if this trio does not have them. `trio.testing` exports the function
    publicly, but its import takes 9 MB and 80 ms where pytest is installed.
    """
    from trio._core import _run

    runner = _run.GLOBAL_RUN_CONTEXT.runner
    return runner.io_manager._epoll.fileno(), runner.wait_all_tasks_blocked


def nested_is_possible() -> bool:
    """Return True if this trio has the private attributes that `nested` needs."""
    try:
        trio_inside()
    except (AttributeError, ImportError):
        return False
    return True


async def nested(reactor: Reactor) -> None:
    """Sleep in the reactor. Run trio when its epoll set is readable, its next deadline is due, or after `wake`."""
    inner, all_tasks_blocked = trio_inside()
    reactor.add(inner, reactor.wake, 1)
    serve, statistics = reactor.serve, trio.lowlevel.current_statistics
    limit = SHORT_TURN
    try:
        while True:
            with trio.move_on_after(limit) as busy:
                await all_tasks_blocked()
            if busy.cancelled_caught:  # other tasks keep running: alternate with them
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


async def task(reactor: Reactor) -> None:
    """Sleep in trio, which polls the reactor's epoll set."""
    poller = reactor.poller
    assert isinstance(poller, select.epoll), "no epoll set that trio could watch"
    fd = poller.fileno()
    while True:
        await trio.lowlevel.wait_readable(fd)
        serve_some(reactor)


async def portable(reactor: Reactor) -> None:
    """Sleep in trio, which waits for each of the reactor's descriptors."""
    poller = reactor.poller
    assert isinstance(poller, TrioPoller), "no poller that waits by trio's tasks"
    async with trio.open_nursery() as nursery:
        while True:
            await poller.wait(nursery)
            serve_some(reactor)


def serve_some(reactor: Reactor) -> None:
    """Serve ready events, and events that these cause, for up to `BATCHES` batches."""
    for _ in range(BATCHES):
        if not reactor.serve(0) or reactor.aside.planned:  # suspended turns alternate with trio
            break


DRIVERS: Mapping[str, Callable[[Reactor], Awaitable[None]]] = {"nested": nested, "task": task, "portable": portable}
