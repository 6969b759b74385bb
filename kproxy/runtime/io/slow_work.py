"""Work of milliseconds that clients cause, done in a thread: one piece at a time, and each address has its turn.

Strategy. To check a password takes as long as hundreds of frames do, and whoever can connect can have one checked. In
the event loop it would keep everybody waiting; hashlib lets go of the interpreter, so a thread beside the loop keeps
nobody. There is one, so that guessing takes no more than one core. Work waits in a queue by address, and the addresses
take turns: one that guesses on a thousand connections delays the login of another one by one hash.

Work that does not let go of the interpreter keeps the loop waiting while it is done, some milliseconds for each turn of
the loop. It has a queue of its own, with a share of a core: after it has used that up, it pauses. So nobody's login
waits for it, and however much of it there is, most of the time is the loop's.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import monotonic, thread_time
from typing import Any, NamedTuple, Protocol

import trio

from .reactor import Reactor
from .turn_order import Queue


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
