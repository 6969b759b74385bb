"""Token buckets that may go below empty: what comes is charged first, and whoever sent it then waits.

That is how Kafka's quotas work (KIP-13, KIP-219): a frame is never refused or cut for being too large for its limit, so
a bucket has a debt after it, which the time pays off. A debt is seconds that somebody has to wait.

A Fetch is charged when its response is here, and until then nobody knows how many bytes it will bring. Many that start
at the same time would each be let bring all that is in the bucket; so what one may bring is reserved for as long as it
is under way.

Of buckets that several processes charge, level and time are taken out of a common table, the bucket does with them what
it does in one process, and they are put back. Their reservations are added up by the half second in which they were
given, for a process that ends takes the knowledge with it which of them were its own: they count for 1 to 1.5 s, as in
one process for 1 s.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from itertools import islice
from typing import Generic, TypeVar

from kproxy.rules.shared_numbers import NumberCells

LIFE = 1.0
"""Seconds after which a promise counts no more: a broker that has data answers sooner, and one that has none waits for
half a second by default (`max_wait_ms`). Connections that end with a fetch under way take their promise with them."""


class FetchReservations:
    """Bytes by connection number, one reservation each. `total` is all of them."""

    __slots__ = ("given", "total")

    def __init__(self) -> None:
        self.given: OrderedDict[int, tuple[float, float]] = OrderedDict()  # number → until when, bytes; oldest first
        self.total = 0.0

    def give(self, number: int, amount: float, now: float) -> None:
        """Reserve so many bytes for this connection, in place of those that it had."""
        self.settle(number)
        self.given[number] = now + LIFE, amount
        self.total += amount

    def settle(self, number: int) -> None:
        """End the reservation of a connection whose response is here."""
        if number in self.given:
            self.total -= self.given.pop(number)[1]

    def expire(self, now: float) -> None:
        """Forget the reservations that have come to their end by `now`."""
        while self.given and next(iter(self.given.values()))[0] <= now:
            self.total -= self.given.popitem(last=False)[1][1]
        if not self.given:
            self.total = 0.0  # rounding may have left a rest


BucketKey = TypeVar("BucketKey", bound=Hashable)

MOST_BUCKETS = 10_000
"""Buckets of one limit. Client ids and topics are the clients' to choose, so there must be an end; beyond it the bucket
goes that is full, or will be first, of those that were quiet for the longest: it would be full again if it comes back,
and nobody's debt is to be forgotten because many others are named."""
LOOKED_AT = 16
"""Buckets from which that one is chosen."""

LONGEST_DEBT = 600.0
"""Seconds of debt that are carried. Who is made to wait no longer than `max_throttle` may go on overdrawing; without an
end, whoever shares the bucket would be slowed for days after that."""
LEAST_FETCH, SMALL_FETCH = 0.1, 64 << 10
"""Bytes that a Fetch may always ask for: a tenth of a burst, or so many bytes, but no more than a burst. A response is
cut at `max_bytes` in the middle of a batch, which clients throw away and fetch again: the smaller, the more is lost."""


class Bucket:
    """Token bucket of `rate` tokens a second, at most `size` of them; full at `now`."""

    __slots__ = ("level", "rate", "size", "then")

    def __init__(self, rate: float, size: float, now: float) -> None:
        self.rate, self.size, self.level, self.then = rate, size, size, now

    def charge(self, amount: float, now: float) -> float:
        """Take so many tokens out, and return the seconds until the debt is paid, 0 when there is none."""
        self.fill(now)
        self.level = max(self.level - amount, -LONGEST_DEBT * self.rate)
        return max(0.0, -self.level / self.rate)

    def ahead(self, amount: float, now: float) -> float:
        """Return the seconds that such a charge would make somebody wait; nothing is taken."""
        self.fill(now)
        return max(0.0, (amount - self.level) / self.rate)

    def covers(self, amount: float, now: float, debt: float) -> bool:
        """Take so many tokens out and return True, unless that makes a debt of so many seconds: then nothing is
        taken."""
        self.fill(now)
        left = self.level - amount
        if left < 0 and -left / self.rate >= debt:
            return False
        self.level = left
        return True

    def give_back(self, amount: float, now: float) -> None:
        """Put so many tokens back in, which were taken just now."""
        self.fill(now)
        self.level = min(self.size, self.level + amount)

    @property
    def full_at(self) -> float:
        """Return the time when it will be, or was, full."""
        return self.then + (self.size - self.level) / self.rate

    def fill(self, now: float) -> None:
        """Put in what has come since the last time. Time that goes backwards brings nothing."""
        if now > self.then:
            self.level = min(self.size, self.level + (now - self.then) * self.rate)
            self.then = now


class FetchBucket(Bucket):
    """Token bucket that knows what fetches under way may bring."""

    __slots__ = ("reservations",)

    def __init__(self, rate: float, size: float, now: float) -> None:
        super().__init__(rate, size, now)
        self.reservations = FetchReservations()

    def allowed(self, number: int, now: float) -> int:
        """Return the bytes that a fetch of this connection may bring, the one before being over."""
        self.fill(now)
        self.reservations.settle(number)
        self.reservations.expire(now)
        return self.room(self.reservations.total)

    def room(self, promised: float) -> int:
        """Return the bytes that are left beside those that are reserved, 1 at least.

        The client goes on even with 1: of the first partition that has data a whole batch is sent, however long it is
        (KIP-74).
        """
        least = min(self.size, max(self.size * LEAST_FETCH, SMALL_FETCH))
        return max(1, int(max(self.level - promised, least)))

    def promise(self, number: int, amount: float, now: float) -> None:
        """Reserve the bytes that a fetch of this connection may bring, as it begins."""
        self.reservations.give(number, amount, now)

    def settle(self, number: int, now: float) -> None:
        """End the reservation of a connection whose response is here."""
        self.reservations.settle(number)


class Buckets(Generic[BucketKey]):
    """Buckets by key, made when they are first asked for; `make` gives None for what is not limited."""

    def __init__(self, make: Callable[[BucketKey, float], Bucket | None], most: int = MOST_BUCKETS) -> None:
        self.make, self.most = make, most
        self.buckets: OrderedDict[BucketKey, Bucket | None] = OrderedDict()

    def of(self, key: BucketKey, now: float) -> Bucket | None:
        """Return the bucket for this key, None for one that is not limited."""
        try:
            self.buckets.move_to_end(key)
            return self.buckets[key]
        except KeyError:
            if len(self.buckets) >= self.most:
                self.forget_one(now)
            bucket = self.buckets[key] = self.make(key, now)
            return bucket

    def forget_one(self, now: float) -> None:
        """Make room for one bucket. Those that are not full get in line again, so that all are looked at in time."""
        goes, first = None, float("inf")
        for key in list(islice(self.buckets, LOOKED_AT)):
            bucket = self.buckets[key]
            full_at = now if bucket is None else bucket.full_at
            if goes is None or full_at < first:
                goes, first = key, full_at
            if full_at <= now:
                break
            self.buckets.move_to_end(key)
        assert goes is not None
        del self.buckets[goes]


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

    def covers(self, amount: float, now: float, debt: float) -> bool:
        self.load(now)
        try:
            return super().covers(amount, now, debt)
        finally:
            self.store()

    def give_back(self, amount: float, now: float) -> None:
        self.load(now)
        try:
            super().give_back(amount, now)
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
