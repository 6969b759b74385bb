"""Structures over the offsets of one partition: what lies where, and which stretches are wholly known.

Strategy: offsets mostly come in ascending order, which costs an append. Those that do not are put in their place within
a chunk of some thousand, so that no order of arrival costs more than a chunk each.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from typing import Generic, TypeVar

OffsetValue = TypeVar("OffsetValue")
CHUNK = 2048
MOST_RANGES = 10_000
"""Stretches of a partition that are remembered apart; a record without gaps has one."""


class OffsetIndex(Generic[OffsetValue]):
    """Map from offsets to values, in the order of the offsets."""

    __slots__ = ("chunks", "firsts", "values")

    def __init__(self) -> None:
        self.values: dict[int, OffsetValue] = {}
        self.chunks: list[list[int]] = []
        self.firsts: list[int] = []

    def __len__(self) -> int:
        return len(self.values)

    def get(self, offset: int) -> OffsetValue | None:
        """Return the value at exactly this offset, None if there is none."""
        return self.values.get(offset)

    def put(self, offset: int, value: OffsetValue) -> None:
        new = offset not in self.values
        self.values[offset] = value
        if not new:
            return
        if not self.chunks or (offset > self.chunks[-1][-1] and len(self.chunks[-1]) >= CHUNK):
            self.chunks.append([offset])
            self.firsts.append(offset)
            return
        at = max(bisect_right(self.firsts, offset) - 1, 0)
        chunk = self.chunks[at]
        insort(chunk, offset)
        self.firsts[at] = chunk[0]
        if len(chunk) > 2 * CHUNK:
            self.chunks[at : at + 1] = [chunk[:CHUNK], chunk[CHUNK:]]
            self.firsts[at : at + 1] = [chunk[0], chunk[CHUNK]]

    def below(self, offset: int) -> OffsetValue | None:
        """Return the value at the highest offset that is less than this one; None if there is none."""
        at = bisect_left(self.firsts, offset) - 1
        if at < 0:
            return None
        chunk = self.chunks[at]
        return self.values[chunk[bisect_left(chunk, offset) - 1]]

    def down_from(self, offset: int) -> Iterator[OffsetValue]:
        """Yield the values at the offsets that are less than this one, in descending order."""
        for at in range(bisect_left(self.firsts, offset) - 1, -1, -1):
            chunk = self.chunks[at]
            for lower in reversed(chunk[: bisect_left(chunk, offset)]):
                yield self.values[lower]

    def between(self, first: int, last: int) -> Iterator[OffsetValue]:
        """Yield the values at the offsets from `first` to `last`, both included, in ascending order."""
        for at in range(max(bisect_right(self.firsts, first) - 1, 0), len(self.chunks)):
            chunk = self.chunks[at]
            if chunk[0] > last:
                return
            for offset in chunk[bisect_left(chunk, first) : bisect_right(chunk, last)]:
                yield self.values[offset]

    def take_lowest(self, count: int) -> list[OffsetValue]:
        """Remove the values at the lowest offsets, about `count` of them, and return them."""
        removed: list[OffsetValue] = []
        while self.chunks and len(removed) < count:
            removed += (self.values.pop(offset) for offset in self.chunks.pop(0))
            del self.firsts[0]
        return removed


class KnownOffsets:
    """Set of offsets as stretches. `dropped`: stretches that were forgotten, the lowest first."""

    __slots__ = ("dropped", "firsts", "lasts")

    def __init__(self) -> None:
        self.firsts: list[int] = []
        self.lasts: list[int] = []
        self.dropped = 0

    def add(self, first: int, last: int) -> None:
        """Add the offsets from `first` to `last`, both included."""
        if last < first:
            return
        begin = bisect_left(self.lasts, first - 1)
        end = bisect_right(self.firsts, last + 1)
        if begin < end:
            first, last = min(first, self.firsts[begin]), max(last, self.lasts[end - 1])
        self.firsts[begin:end] = [first]
        self.lasts[begin:end] = [last]
        if len(self.firsts) > MOST_RANGES:
            self.drop(MOST_RANGES // 2)

    def __len__(self) -> int:
        return len(self.firsts)

    def drop(self, count: int) -> None:
        """Forget so many stretches, the lowest."""
        del self.firsts[:count], self.lasts[:count]
        self.dropped += count

    def holds(self, first: int, last: int) -> bool:
        """Return True if all offsets from `first` to `last` are in the set."""
        at = bisect_right(self.firsts, first) - 1
        return at >= 0 and self.lasts[at] >= last
