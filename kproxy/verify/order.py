"""Order of time: facts of exchanges in the order in which exchanges were over."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush

from .facts import Fact
from .terms import RecordClock

WINDOW = 10.0
"""Seconds by which exchanges may come later than those that were over after them, as of several files, or of a
connection whose frames were put together late."""
FACT_SIZE = 2000
"""Bytes of the whole verification's memory for each fact, or batch in one, that is held: a sixth of it in all. If more
of them come in so many seconds, the earliest is taken as it is."""


class TimeOrder:
    """Facts of exchanges in the order of their ends, held as long as an earlier one may still come. An exchange without
    a response counts from its beginning, and comes when its connection ends. `late`: exchanges with a response that
    came after that time, as with a clock that went back."""

    __slots__ = ("clock", "count", "given", "held", "late", "most", "newest", "weight")

    def __init__(self, memory: int, clock: RecordClock) -> None:
        self.clock, self.weight = clock, 0
        self.limit(memory)
        self.held: list[tuple[float, int, list[Fact]]] = []
        self.count = self.late = 0
        self.newest = self.given = float("-inf")

    def limit(self, memory: int) -> None:
        """Hold as much as so many bytes of the whole verification's memory allow."""
        self.most = max(memory // FACT_SIZE, 1)

    def take(self, time: float, facts: list[Fact], *, over: bool = True) -> Iterator[list[Fact]]:
        """Hold an exchange's facts; yield those of exchanges that are due. `over`: it has an end, and is told of when
        it has."""
        self.count += 1
        if over and time < self.newest - WINDOW:
            self.late += 1
            self.clock.goes_back(self.newest - time)
        heappush(self.held, (time, self.count, facts))
        self.weight += weight(facts)
        self.newest = max(self.newest, time)
        while self.held and (self.held[0][0] < self.newest - WINDOW or self.weight > self.most):
            self.given, _, due = heappop(self.held)
            self.weight -= weight(due)
            yield due

    def rest(self) -> Iterator[list[Fact]]:
        while self.held:
            self.given, _, due = heappop(self.held)
            self.weight -= weight(due)
            yield due


def weight(facts: list[Fact]) -> int:
    return sum(one.weight for one in facts)
