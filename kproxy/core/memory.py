"""The memory that held frames may take, shared by all connections.

Strategy. A frame that must be held reserves its whole length when its header is read and gives it back once the kernel
has what became of it. A session holds at most one reservation a direction and never waits for a second, and requests
and responses have separate budgets: a held request may wait for the broker, which may wait for its response to be read,
but a response waits only for its own client, whom a write time-out ends. So waiting cannot go round in a circle.
Those who wait are served in the order in which they came.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Protocol


class Holder(Protocol):
    """Lane that holds a frame; it has reserved `reserved` bytes, or waits for `need`."""

    session: Any
    need: int
    reserved: int


class HeldMemory:
    """Budget of `limit` bytes for held frames, of which `used` are reserved now."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.waiting: deque[tuple[Holder, int]] = deque()

    def reserve(self, lane: Holder, size: int) -> bool:
        """Take `size` bytes now, or join the queue and return False; `release` will then hand the lane out."""
        if self.waiting or self.used + size > self.limit:
            self.waiting.append((lane, size))
            return False
        self.used += size
        return True

    def release(self, size: int) -> list[Holder]:
        """Give `size` bytes back. Returns the lanes that have got theirs by that, in order of waiting."""
        self.used -= size
        granted = []
        while self.waiting and self.used + self.waiting[0][1] <= self.limit:
            lane, wanted = self.waiting.popleft()
            self.used += wanted
            granted.append(lane)
        return granted

    def forget(self, lane: Holder) -> list[Holder]:
        """Take the lane, whose connection has ended, out of the queue; return the lanes that can go on instead."""
        if not self.waiting:
            return []
        self.waiting = deque(entry for entry in self.waiting if entry[0] is not lane)
        return self.release(0)
