"""The names that move most among any number of names, found in bounded memory (Metwally's space-saving sketch).

Strategy. So many names have a counter. One that has none takes the place, and the count, of the smallest, and remembers
that count as its possible error. What a name has moved for certain is its count less that error, so names that are made
up and never come again do not look large, however many they are.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush


class HeavyNames:
    """Counters of at most `most` names, those that moved most."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.counts: dict[str, tuple[float, float]] = {}  # count, and how much of it may be others'
        self._heap: list[tuple[float, str]] = []  # may hold counts that are out of date, never too large ones

    def add(self, name: str, weight: float) -> None:
        """Count `weight` for a name, which may drive out another one."""
        counts = self.counts
        known = counts.get(name)
        if known is None:
            least = self._pop_smallest() if len(counts) >= self.most else 0.0
            known = least, least
        counts[name] = known[0] + weight, known[1]
        if len(self._heap) >= 4 * self.most:
            self._heap = [(count, each) for each, (count, _) in counts.items()]
            heapify(self._heap)
        else:
            heappush(self._heap, (known[0] + weight, name))

    def _pop_smallest(self) -> float:
        """Give up the name with the smallest count, and return that count."""
        while True:
            count, name = heappop(self._heap)
            known = self.counts.get(name)
            if known is not None and known[0] == count:
                del self.counts[name]
                return count

    def certain(self) -> dict[str, float]:
        """Return the weight that each name has moved for certain."""
        return {name: count - error for name, (count, error) in self.counts.items()}

    def clear(self) -> None:
        self.counts.clear()
        self._heap.clear()
