"""Buckets that several processes charge together, so that a quota is one quota.

Strategy: level and time are taken out of the common table, the bucket does with them what it does in one process, and
they are put back. Promises of fetches under way are added up by the half second in which they were given, for a process
that ends takes the knowledge with it which of them were its own: they count for 1 to 1.5 s, as in one process for 1 s.
"""

from __future__ import annotations

from collections import OrderedDict

from kproxy.rules.shared_numbers import NumberCells

from .bucket import Bucket, FetchBucket
from .fetch_reservations import LIFE

AGES = 3
"""Half lives whose promises count: the one that it is now, and two before it."""
HALF = LIFE / 2


class SharedBucket(Bucket):
    """Bucket that several processes charge. Numbers: level, then."""

    __slots__ = ("cells",)

    def __init__(self, rate: float, size: float, now: float, cells: NumberCells) -> None:
        super().__init__(rate, size, now)
        self.cells = cells

    def charge(self, amount: float, now: float) -> float:
        self.load(now)
        try:
            return super().charge(amount, now)
        finally:
            self.store()

    def ahead(self, amount: float, now: float) -> float:
        self.load(now)
        try:
            return super().ahead(amount, now)
        finally:
            self.store()

    def load(self, now: float) -> None:
        self.level, self.then = (self.cells.take(now) or (self.size, now))[:2]

    def store(self) -> None:
        self.cells.put(self.level, self.then, until=self.full_at)


class SharedFetchBucket(FetchBucket):
    """Bucket of fetches that several processes charge. Numbers: level, then, the half second that it is, and
    reservations by the half second."""

    __slots__ = ("ages", "cells", "given", "half")

    def __init__(self, rate: float, size: float, now: float, cells: NumberCells) -> None:
        super().__init__(rate, size, now)
        self.cells = cells
        self.half = 0
        self.ages = [0.0] * AGES
        self.given: OrderedDict[int, tuple[int, float]] = OrderedDict()  # here: by connection number; oldest first

    def charge(self, amount: float, now: float) -> float:
        self.load(now)
        try:
            return super().charge(amount, now)
        finally:
            self.store()

    def allowed(self, number: int, now: float) -> int:
        """Return the bytes that a fetch of this connection may bring, beside what all processes have reserved."""
        self.load(now)
        try:
            self.fill(now)
            self.take_back(number)
            return self.room(sum(self.ages))
        finally:
            self.store()

    def promise(self, number: int, amount: float, now: float) -> None:
        self.load(now)
        try:
            self.take_back(number)
            self.given[number] = self.half, amount
            self.ages[self.half % AGES] += amount
        finally:
            self.store()

    def settle(self, number: int, now: float) -> None:
        if number in self.given:
            self.load(now)
            try:
                self.take_back(number)
            finally:
                self.store()

    def take_back(self, number: int) -> None:
        """End the reservation of a connection, if it still counted."""
        half, amount = self.given.pop(number, (0, 0.0))
        if amount and self.half - half < AGES:
            self.ages[half % AGES] = max(0.0, self.ages[half % AGES] - amount)
        while self.given and self.half - next(iter(self.given.values()))[0] >= AGES:
            self.given.popitem(last=False)

    def load(self, now: float) -> None:
        """Take over the numbers that the other processes have left, without reservations that are too old."""
        numbers = self.cells.take(now)
        self.level, self.then, half, *self.ages = (
            numbers if numbers is not None else (self.size, now, 0.0, 0.0, 0.0, 0.0)
        )
        before, self.half = int(half), max(int(half), int(now // HALF))
        for over in range(before + 1, min(self.half, before + AGES) + 1):
            self.ages[over % AGES] = 0.0

    def store(self) -> None:
        self.cells.put(self.level, self.then, self.half, *self.ages, until=self.full_at)
