"""Pool of all workers: started together, looked after, and ended together."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from time import monotonic

import trio
from structlog.typing import FilteringBoundLogger

from kproxy.errors import DocumentError, WeDidWrong

from ..deadlines import Deadline
from ..reactor import Reactor
from .channel import Notice
from .member import Member
from .messages import Drain, Failed, GiveUp, Start

LOOK = 0.5
"""Seconds between two looks at whether all of them answer."""
LAST_WORDS = 15.0
"""Seconds beyond their drain, or after they were told to end at once, in which they write what they have recorded."""

StartFor = Callable[[Member], Start]


class Crew:
    """Pool of the supervisor's workers.

    `start_for` makes the first message to a worker's process; `descriptors` are what all of them inherit, by name.
    Functions in `on_member` are called with each worker whose process has begun: its channel is new. `on_admit` is
    awaited before it gets its first connection. `on_room` is called when a worker may be able to take connections,
    `on_returned` when it has some that are to be taken back.
    """

    def __init__(
        self, workers: int, reactor: Reactor, start_for: StartFor, log: FilteringBoundLogger, *,
        descriptors: Mapping[str, int] | None = None, by_address: bool = False,
    ) -> None:  # fmt: skip
        self.reactor, self.log, self.make_start = reactor, log, start_for
        self.inherited = dict(descriptors or {})
        self.members = [Member(self, index, by_address=by_address) for index in range(workers)]
        self.on_member: list[Callable[[Member], object]] = []
        self.on_admit: Callable[[Member], Awaitable[object]] | None = None
        self.on_room: Callable[[Member], object] = lambda member: None
        self.on_returned: Callable[[Member], object] = lambda member: None
        self.ending = self.started = False
        self.told = trio.Event()
        self.failed: Failed | None = None
        self.finished = trio.Event()
        self.deadline: Deadline | None = None

    @property
    def ready(self) -> list[Member]:
        return [member for member in self.members if member.ready]

    @property
    def restarts(self) -> int:
        return sum(member.restarts for member in self.members)

    async def start(self) -> None:
        """Return when all are ready. Raises what the first one that cannot start has said, and OSError."""
        for member in self.members:
            member.start()
        await self.told.wait()
        if self.failed is not None:
            raise DocumentError(list(self.failed.mistakes)) if self.failed.mistakes else WeDidWrong(self.failed.message)
        self.started = True
        self.look()

    def look(self) -> None:
        """Look at all workers every so often, until the end."""
        now = monotonic()
        for member in self.members:
            member.look(now)
        if not self.ending:
            self.reactor.call_at(now + LOOK, self.look)

    def tell(self, notice: Notice) -> None:
        """Send it to all workers that run; one that starts later has it in its first message."""
        for member in self.members:
            if member.channel is not None:
                member.channel.tell(notice)

    def restart(self, member: Member, reason: str) -> None:
        """End a worker's process at once; another takes its place."""
        self.log.error("worker is ended", of_worker=member.index, reason=reason)
        member.kill()

    # ---- the end

    def drain(self, timeout: float) -> None:
        """End open connections when nothing is in flight, all of them after `timeout` seconds."""
        self._end(Drain(), timeout + LAST_WORDS)

    def give_up(self) -> None:
        """End all connections at once, and the workers."""
        self._end(GiveUp(), LAST_WORDS)

    def _end(self, notice: Notice, within: float) -> None:
        self.ending = True
        self.tell(notice)
        for member in self.members:
            if not member.ready:  # it has no connections, and may not be listening yet
                member.kill()
        if self.deadline is not None:
            self.reactor.cancel(self.deadline)
        self.deadline = self.reactor.call_at(monotonic() + within, self.out_of_time)
        self._check_finished()

    def out_of_time(self) -> None:
        """Kill the workers that have not ended by themselves."""
        for member in self.members:
            if member.process is not None:
                self.log.error("worker has not ended in time, it is killed", of_worker=member.index)
                member.kill()

    def close(self) -> None:
        """Kill all processes at once and without a word; wait for them."""
        self.ending = True
        for member in self.members:
            if member.process is not None:
                member.process.kill()
                member.process.popen.wait()
                member.process.close()
            if member.channel is not None:
                member.channel.close()
            member.close()

    def _check_finished(self) -> None:
        if self.ending and all(member.process is None for member in self.members):
            self.reactor.notify(self.finished)

    # ---- what members say

    def start_for(self, member: Member) -> Start:
        return self.make_start(member)

    def descriptors(self) -> Mapping[str, int]:
        return self.inherited

    def begins(self, member: Member) -> None:
        for hook in self.on_member:
            hook(member)

    async def admit(self, member: Member) -> None:
        if self.on_admit is not None:
            await self.on_admit(member)

    def is_ready(self, member: Member) -> None:
        assert member.process is not None
        if not self.started and len(self.ready) == len(self.members):
            self.reactor.notify(self.told)
        if self.started:
            member.log.info("worker is back", pid=member.process.pid)
        self.on_room(member)

    def has_room(self, member: Member) -> None:
        self.on_room(member)

    def returned(self, member: Member) -> None:
        self.on_returned(member)

    def is_down(self, member: Member, failed: Failed) -> None:
        if not self.started and self.failed is None:
            self.failed = failed
            self.ending = True
            self.reactor.notify(self.told)
        self._check_finished()


def pids(crew: Crew) -> list[int]:
    """Return the ids of the processes that run."""
    return [member.process.pid for member in crew.members if member.process is not None]
