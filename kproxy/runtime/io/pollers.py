"""Pollers of a reactor: what tells it which descriptors are ready, and the timer that goes with each.

    epoll         the kernel keeps the set, and the timer is a descriptor of it (Linux)
    TrioPoller    a trio task waits for each descriptor and direction, and trio sleeps until the timer's time

Strategy of the second one. trio knows how each system waits (kqueue, AFD of Windows), so this asks trio, by its public
API, in place of the system. A task waits once and notes what is ready; `poll` takes the notes, and a descriptor that
is still wanted afterwards is waited for anew before the next sleep. So a callback that leaves something is called
again, as with epoll. Two things are weaker: an event costs two passes through trio's scheduler, and a descriptor for
which neither IN nor OUT is wanted tells nothing, where epoll reports HUP and ERR in any case. Who closes a descriptor
must say so first (`Reactor.forget`).
"""

from __future__ import annotations

import math
import select
from collections.abc import Awaitable, Callable
from itertools import islice
from time import monotonic
from typing import Protocol

import trio

from kproxy.base.sockets import HAS_EPOLL

from .deadlines import KernelTimer

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
