"""Timers of a session: calls that are due later; the driver is asked to call `tick` then."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count

from .commands import Command, WakeAt

Call = Callable[[float], None]


class Timers:
    """Calls of one session in order of their times, and of their making where these are equal.

    `armed` are the times that the driver was asked for and that have not come: it is not asked for a later one while
    there is an earlier one, nor twice for the same.
    """

    __slots__ = ("armed", "calls", "commands", "numbers")

    def __init__(self, commands: list[Command]) -> None:
        self.commands = commands
        self.calls: list[tuple[float, int, Call]] = []
        self.numbers = count()
        self.armed: list[float] = []  # a heap

    def at(self, when: float, call: Call) -> None:
        """Have `call(now)` called at `when` (monotonic seconds) or a little later."""
        heapq.heappush(self.calls, (when, next(self.numbers), call))
        self.arm()

    def tick(self, now: float) -> None:
        """Call all functions that are due, and arm for the next one."""
        while self.armed and self.armed[0] <= now:
            heapq.heappop(self.armed)
        while self.calls and self.calls[0][0] <= now:
            heapq.heappop(self.calls)[2](now)
        self.arm()

    def cancel(self) -> None:
        """Call none of the functions that are not due yet."""
        self.calls.clear()

    def arm(self) -> None:
        if self.calls and not (self.armed and self.armed[0] <= self.calls[0][0]):
            heapq.heappush(self.armed, self.calls[0][0])
            self.commands.append(WakeAt(self.armed[0]))
