"""Heap of calls by the times at which they are due; the reactor makes them when its timer fires."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import count

Call = Callable[[], None]
FEW = 64
"""As many cancelled entries may lie about before it is worth a look whether they are the majority."""


class Deadline:
    """Handle of one call that is due at `when`; `call` is None once it was made or cancelled."""

    __slots__ = ("call", "when")

    def __init__(self, when: float, call: Call) -> None:
        self.when = when
        self.call: Call | None = call


class Deadlines:
    """Heap of calls by times of `time.monotonic()`; equal times are called in the order in which they were set."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Deadline]] = []
        self._order = count()
        self._cancelled = 0

    def add(self, when: float, call: Call) -> Deadline:
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
        """Return the time at which the next call is due."""
        heap = self._heap
        while heap and heap[0][2].call is None:
            heappop(heap)
            self._cancelled -= 1
        return heap[0][0] if heap else None

    def take(self, now: float) -> list[Call]:
        """Take out all calls that are due. What they set in their turn waits for the next look, even if due at once."""
        calls = []
        while (when := self.next()) is not None and when <= now:
            deadline = heappop(self._heap)[2]
            if deadline.call is not None:
                calls.append(deadline.call)
            deadline.call = None
        return calls
