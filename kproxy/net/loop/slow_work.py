"""Work of milliseconds that clients cause, done in a thread: one piece at a time, and each address has its turn.

Strategy. To check a password takes as long as hundreds of frames do, and whoever can connect can have one checked. In
the event loop it would keep everybody waiting; hashlib lets go of the interpreter, so a thread beside the loop keeps
nobody. There is one, so that guessing takes no more than one core. Work waits in a queue by address, and the addresses
take turns: one that guesses on a thousand connections delays the login of another one by one hash.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

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


class SlowWork:
    """Queue of work for the thread of a process."""

    def __init__(self, reactor: Reactor) -> None:
        self.reactor = reactor
        self.queue: Queue[tuple[JobOwner, ThreadJob]] = Queue(lambda thing: thing[0].closed)
        self.busy = False

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
            try:
                result = await trio.to_thread.run_sync(work, abandon_on_cancel=True)
                if not owner.closed:
                    owner.computed(result)
            except Exception as error:  # the others' is done all the same
                self.reactor.log.error("work in a thread raised", exc_info=error)
                owner.crashed(error)
        self.busy = False
