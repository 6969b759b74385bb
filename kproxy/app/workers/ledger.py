"""Ledger of a worker's connections: those it has told of, and those that are on their way to it.

Strategy. A worker tells absolute numbers, so nothing that is miscounted stays so: how many connections it has taken
since it began, and how many are open. What it was handed beyond those it has taken is on its way, and counts as open.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping


class Ledger:
    """Ledger of one worker process. `by_address`: connections from one address are counted, too."""

    def __init__(self, *, by_address: bool = False) -> None:
        self.by_address = by_address
        self.handed = self.taken = self.open = 0
        self.late_since: float | None = None
        """Since when something has been on its way, at the longest."""
        self.told: dict[str, int] = {}
        self.coming: deque[str] = deque()
        self.coming_from: Counter[str] = Counter()

    def count_addresses(self, by_address: bool) -> None:
        """Count connections by their addresses from now on, or no more; the worker tells of all that it has."""
        self.by_address = by_address
        self.told.clear()

    @property
    def connections(self) -> int:
        return self.open + self.handed - self.taken

    def hand(self, host: str, now: float) -> None:
        self.handed += 1
        if self.late_since is None:
            self.late_since = now
        if self.by_address:
            self.coming.append(host)
            self.coming_from[host] += 1

    def tell(self, taken: int, still_open: int, addresses: Mapping[str, int], now: float) -> None:
        for _ in range(min(taken - self.taken, len(self.coming))):
            self._come(self.coming.popleft())
        if taken != self.taken:
            self.late_since = now
        self.taken, self.open = taken, still_open
        if taken >= self.handed:
            self.late_since = None
        for host, count in addresses.items():
            if count:
                self.told[host] = count
            else:
                self.told.pop(host, None)

    def take_back(self) -> None:
        """Count the newest connection no more, which will not get there. (Whether the worker is late is for itself to
        say.)"""
        self.handed -= 1
        if self.coming:
            self._come(self.coming.pop())

    def end(self) -> int:
        """Clear the numbers of a process that has ended; return how many connections it had."""
        lost = self.connections
        self.open, self.handed, self.late_since, self.told = 0, self.taken, None, {}
        self.coming.clear()
        self.coming_from.clear()
        return lost

    def of(self, host: str) -> int:
        """Return the number of connections from `host`."""
        return self.told.get(host, 0) + self.coming_from[host]

    def _come(self, host: str) -> None:
        self.coming_from[host] -= 1
        if not self.coming_from[host]:
            del self.coming_from[host]
