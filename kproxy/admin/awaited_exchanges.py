"""Waiting until so many exchanges that fit a filter are kept: `wait` of `GET /api/exchanges`.

Strategy. Whoever waits is a viewer of each member, from the place that it names on: what is kept behind that is counted
first, and then what comes, so nothing falls between the two, and nobody asks again and again. It counts as one of those
who listen, until its client closes the connection, and for a minute at most: one that vanishes without a word is not
heard of.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

import trio

from .backend import Backend
from .member import Member, MemberGone
from .problem import Problem
from .tail import room_for_another
from .view_source import MOST_ROWS, ViewSource

LONGEST_WAIT = 60.0
"""Seconds; who wants to wait longer asks again, behind the place of the answer or from the same one."""
FIRST_PLACE = 0
"""Place before all that a process keeps."""


class ExchangeCount:
    """Count of the exchanges that fit a filter, over all members of a backend, until it is `wanted`."""

    def __init__(self, backend: Backend, text: str, after: Mapping[int, int], wanted: int) -> None:
        self.backend, self.text, self.after, self.wanted = backend, text, after, wanted
        self.number = next(backend.numbers)
        self.matched: dict[int, int] = {}
        self.sources: list[ViewSource] = []

    @property
    def reached(self) -> bool:
        return sum(self.matched.values()) >= self.wanted

    async def wait(self, seconds: float) -> bool:
        """Return True as soon as there are so many, False after these seconds. Raises Problem when too many listen."""
        room_for_another(len(self.backend.listeners))
        self.backend.listeners.add(self.number)
        try:
            with trio.move_on_after(seconds):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(trio.sleep_forever)  # members may end, and others begin in their places
                    for member in self.backend.members:
                        if member.process is not None:
                            nursery.start_soon(self.count, member, nursery.cancel_scope)
        finally:
            self.backend.listeners.discard(self.number)
            for source in self.sources:
                source.end()
        return self.reached

    async def count(self, member: Member, scope: trio.CancelScope) -> None:
        """Count what fits at one member, until it ends; cancel the scope when there are enough of all."""
        source = member.view(self.number, self.text, MOST_ROWS, self.after.get(member.index, FIRST_PLACE))
        self.sources.append(source)
        try:
            await source.begin()
            with suppress(MemberGone):
                while not self.reached:
                    self.matched[member.index] = (await source.next()).matched
                scope.cancel()
        except Problem as problem:
            self.backend.log.warning(
                "waiting for exchanges misses a worker", of_worker=member.index, reason=str(problem)
            )
