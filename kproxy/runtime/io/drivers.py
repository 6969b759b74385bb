"""Three ways for a trio task to drive a reactor. `nested` is the one to have; the others need trio's public API only.

    nested   the reactor's epoll set holds trio's own: while no task can run, the program sleeps in the reactor's poll,
             and trio is not passed at all by a frame that comes and goes
    task     trio's epoll set holds the reactor's: each wake passes trio's scheduler
    portable  there is no epoll: trio waits for each descriptor by itself (see pollers.py), several times as dear

Under a test's MockClock use `task`: `nested` sleeps by the real clock.
"""

from __future__ import annotations

import select
from collections.abc import Awaitable, Callable, Mapping
from time import monotonic
from typing import Protocol

import trio

from .pollers import Poller, TrioPoller

SHORT_TURN = 50e-6
"""While other tasks keep running, they get this many seconds between two batches of ours."""
LONG_TURN = 10e-3
"""The same when there was nothing for us to do: it doubles up to this, so that a slow machine does not spin."""
FAR = 1e6
"""Trio says infinity when it has no deadline; anything above eleven days is none."""
BATCHES = 8
"""Batches that `task` and `portable` serve at once before other tasks get their turn."""


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
