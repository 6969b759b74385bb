"""Token buckets of quotas. A bucket may go below empty: the level below zero is a debt, which time pays off.

As in Kafka (KIP-13, KIP-219), a frame is never refused or cut because it is larger than its limit. A frame is admitted
while the bucket owes nothing, and is then charged in full. While a bucket owes, requests wait in its line, in the order
of their arrival. So the bytes admitted in any time are at most one burst, the rate times that time, and one frame,
however many connections share the bucket.

A Fetch is charged when its response arrives. Until then its expected bytes are reserved, so that Fetch requests which
start together do not each receive the whole bucket.

With several processes, the level and the time are stored in a common table. Reservations are stored there as sums by
half second, because a process that ends cannot settle its own: they count for 1 to 1.5 s, in one process for 1 s.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from itertools import islice
from math import inf
from typing import Any, ClassVar, Generic, TypeVar, cast

from kproxy.rules.shared_numbers import NumberCells

LIFE = 1.0
"""Seconds until a reservation ends without a response. A broker with data responds sooner; one without data waits for
`max_wait_ms`, by default half a second. Connections that end with a Fetch in flight do not settle it."""


class FetchReservations:
    """Reserved bytes by Fetch in flight; a connection may have several. `total`: their sum."""

    __slots__ = ("given", "total")

    def __init__(self) -> None:
        self.given: OrderedDict[int, tuple[float, float]] = OrderedDict()  # fetch → until when, bytes; oldest first
        self.total = 0.0

    def give(self, fetch: int, amount: float, now: float) -> None:
        """Reserve bytes for the Fetch with the id `fetch`, instead of an earlier reservation with this id."""
        self.end(fetch)
        self.given[fetch] = now + LIFE, amount
        self.total += amount

    def end(self, fetch: int) -> None:
        if fetch in self.given:
            self.total -= self.given.pop(fetch)[1]

    def expire(self, now: float) -> None:
        """Forget the reservations that have come to their end by `now`."""
        while self.given and next(iter(self.given.values()))[0] <= now:
            self.total -= self.given.popitem(last=False)[1][1]
        if not self.given:
            self.total = 0.0  # rounding may have left a rest


BucketKey = TypeVar("BucketKey", bound=Hashable)
Method = TypeVar("Method", bound=Callable[..., Any])

MOST_BUCKETS = 10_000
"""Buckets of one limit, since clients choose client ids and topics. Beyond it, the bucket that is full first among the
least recently used is evicted: a new bucket is also full, and debts of other clients stay."""
LOOKED_AT = 16
"""Least recently used buckets that are compared for an eviction."""

SHORTEST = 0.001
"""Seconds; the unit of throttle_time_ms. A shorter debt counts as none."""
LEAST_FETCH, SMALL_FETCH = 0.1, 64 << 10
"""Bytes that a Fetch may always request: a tenth of a burst, or this size, but at most a burst. Brokers cut a response
at `max_bytes` within a batch, and clients fetch the cut batch again. Small values waste more."""


class Bucket:
    """Token bucket of `rate` tokens a second, at most `size` of them; full at `now`.

    `line`: turns of requests that wait in this process until the debt is paid, in order of arrival. `late_until`: until
    then, bytes of requests are charged when they arrive, since those of one request were late.
    """

    __slots__ = ("late_until", "level", "line", "rate", "size", "then")
    review: ClassVar[float] = inf  # seconds between two asks of the first turn, at most

    def __init__(self, rate: float, size: float, now: float) -> None:
        self.rate, self.size, self.level, self.then = rate, size, size, now
        self.late_until = -inf
        self.line: OrderedDict[QuotaTurn, None] = OrderedDict()

    def charge(self, amount: float, now: float) -> float:
        """Take `amount` tokens out; return the seconds until the debt is paid, 0 for none."""
        self.fill(now)
        self.level -= amount
        return max(0.0, -self.level / self.rate)

    def ahead(self, amount: float, now: float) -> float:
        """Return the seconds of debt that such a charge would leave, without charging it."""
        self.fill(now)
        return max(0.0, (amount - self.level) / self.rate)

    def admit(self, amount: float, now: float) -> tuple[bool, float]:
        """Charge `amount` unless the bucket owes; return whether it was charged, and the seconds of the debt."""
        self.fill(now)
        admitted = -self.level / self.rate < SHORTEST
        if admitted:
            self.level -= amount
        return admitted, max(0.0, -self.level / self.rate)

    def covers(self, amount: float, now: float, debt: float) -> bool:
        """Charge `amount` and return True. If the debt would reach `debt` seconds, charge nothing: return False."""
        self.fill(now)
        left = self.level - amount
        if left < 0 and -left / self.rate >= debt:
            return False
        self.level = left
        return True

    def give_back(self, amount: float, now: float) -> None:
        """Return tokens that were charged just now."""
        self.fill(now)
        self.level = min(self.size, self.level + amount)

    @property
    def full_at(self) -> float:
        """Return the time when it will be, or was, full."""
        return self.then + (self.size - self.level) / self.rate

    def fill(self, now: float) -> None:
        """Add the tokens since the last call. A time in the past adds nothing."""
        if now > self.then:
            self.level = min(self.size, self.level + (now - self.then) * self.rate)
            self.then = now


class FetchBucket(Bucket):
    """Token bucket with reservations for Fetch requests in flight."""

    __slots__ = ("reservations",)

    def __init__(self, rate: float, size: float, now: float) -> None:
        super().__init__(rate, size, now)
        self.reservations = FetchReservations()

    def allowed(self, now: float) -> int:
        """Return the bytes that another Fetch may ask for."""
        self.fill(now)
        self.reservations.expire(now)
        return self.room(self.reservations.total)

    def room(self, promised: float) -> int:
        """Return the bytes in the bucket without the reserved ones, at least 1.

        A client makes progress even with 1: brokers send a complete batch of the first partition with data (KIP-74).
        """
        least = min(self.size, max(self.size * LEAST_FETCH, SMALL_FETCH))
        return max(1, int(max(self.level - promised, least)))

    def promise(self, fetch: int, amount: float, now: float) -> None:
        """Reserve the expected bytes of a Fetch."""
        self.reservations.give(fetch, amount, now)

    def end_fetch(self, fetch: int, now: float) -> None:
        self.reservations.end(fetch)


class Buckets(Generic[BucketKey]):
    """Buckets by key, created at the first lookup. `make` returns None for a key without a limit."""

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
        """Evict one bucket. The others that were looked at move to the end, so that all are looked at in time."""
        goes, first = None, float("inf")
        for key in list(islice(self.buckets, LOOKED_AT)):
            bucket = self.buckets[key]
            full_at = now if bucket is None else float("inf") if bucket.line else bucket.full_at
            if goes is None or full_at < first:
                goes, first = key, full_at
            if full_at <= now:
                break
            self.buckets.move_to_end(key)
        assert goes is not None
        del self.buckets[goes]


AGES = 3
"""Half lives with counted reservations: the current one and two before it."""
HALF = LIFE / 2
REVIEW = 0.5
"""Seconds between two looks at a shared level. Another process may have given back a charge, and cannot wake turns."""


def stored(method: Method) -> Method:
    """Return the method of a bucket, called between `load` and `store` of the common numbers."""

    def call(self: Any, amount: float, now: float, *more: Any) -> Any:
        self.load(now)
        try:
            return method(self, amount, now, *more)
        finally:
            self.store()

    return cast("Method", call)


class StoredCharges:
    """Charges of a bucket that several processes share. Each process has its own line of requests."""

    __slots__ = ()
    review = REVIEW
    charge, ahead, admit = stored(Bucket.charge), stored(Bucket.ahead), stored(Bucket.admit)
    covers, give_back = stored(Bucket.covers), stored(Bucket.give_back)


class SharedBucket(StoredCharges, Bucket):
    """Bucket that several processes charge. Numbers: level, then."""

    __slots__ = ("cells",)

    def __init__(self, rate: float, size: float, now: float, cells: NumberCells) -> None:
        super().__init__(rate, size, now)
        self.cells = cells

    def load(self, now: float) -> None:
        self.level, self.then = (self.cells.take(now) or (self.size, now))[:2]

    def store(self) -> None:
        self.cells.put(self.level, self.then, until=self.full_at)


class SharedFetchBucket(StoredCharges, FetchBucket):
    """Bucket of fetches that several processes charge. Numbers: level, then, the half second that it is, and
    reservations by the half second."""

    __slots__ = ("ages", "cells", "given", "half")

    def __init__(self, rate: float, size: float, now: float, cells: NumberCells) -> None:
        super().__init__(rate, size, now)
        self.cells = cells
        self.half = 0
        self.ages = [0.0] * AGES
        self.given: OrderedDict[int, tuple[int, float]] = OrderedDict()  # of this process, by fetch; oldest first

    def allowed(self, now: float) -> int:
        self.load(now)
        try:
            self.fill(now)
            return self.room(sum(self.ages))
        finally:
            self.store()

    def promise(self, fetch: int, amount: float, now: float) -> None:
        self.load(now)
        try:
            self.take_back(fetch)
            self.given[fetch] = self.half, amount
            self.ages[self.half % AGES] += amount
        finally:
            self.store()

    def end_fetch(self, fetch: int, now: float) -> None:
        if fetch in self.given:
            self.load(now)
            try:
                self.take_back(fetch)
            finally:
                self.store()

    def take_back(self, fetch: int) -> None:
        """End the reservation of a Fetch, if it still counts."""
        half, amount = self.given.pop(fetch, (0, 0.0))
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


LATE = 60.0  # seconds after late bytes during which all bytes are charged on arrival


class QuotaTurn:
    """Place of one request in the queues of the limits that it is charged to.

    `waiter`: session of the request, set before the first `ask`; None if nothing can wake it. `woken`: first waiters of
    the queues that this turn has left. The caller removes and wakes them. `debt`: seconds of the longest debt of its
    charges.
    """

    __slots__ = ("charges", "debt", "paid", "waiter", "woken")

    def __init__(self, charges: Sequence[tuple[Bucket, float]]) -> None:
        """Make a turn for `charges`: each bucket at most once, with the tokens that it is charged."""
        self.charges = charges
        self.paid = 0  # of these charges, the leading ones
        self.debt = 0.0
        self.waiter: Any = None
        self.woken: list[Any] = []

    def pay(self, now: float) -> bool:
        """Charge one limit after the other without waiting; return False at the first one that owes or has a line."""
        while self.paid < len(self.charges):
            bucket, amount = self.charges[self.paid]
            if bucket.line or self.admit(bucket, amount, now):
                return False
        return True

    def expected(self) -> float:
        """Return the seconds of debt that it leaves in all likelihood, once all is charged."""
        return max([self.debt, *(amount / bucket.rate for bucket, amount in self.charges[self.paid :])])

    def ask(self, now: float) -> float:
        """Charge the request and return 0 if it may go on. Otherwise return the seconds until it asks again; infinite:
        another turn is before it, and wakes it."""
        while self.paid < len(self.charges):
            bucket, amount = self.charges[self.paid]
            if self.waiter is not None:
                bucket.line[self] = None  # keeps its place if it has one
                if next(iter(bucket.line)) is not self:
                    return inf
            wait = self.admit(bucket, amount, now)
            if wait:
                return wait
            self.step_out(bucket)
        return 0.0

    def admit(self, bucket: Bucket, amount: float, now: float) -> float:
        """Charge the next limit and return 0; or return the seconds that it owes."""
        admitted, debt = bucket.admit(amount, now)
        if not admitted:
            return min(debt, bucket.review)
        self.paid += 1
        self.debt = max(self.debt, debt)
        return 0.0

    def step_aside(self) -> None:
        """Leave the queue until the next `ask`, so that others do not wait for it."""
        if self.paid < len(self.charges):
            self.step_out(self.charges[self.paid][0])

    def give_up(self, now: float, unsent: float = 0.0) -> None:
        """Leave all queues. Take back the `unsent` part of the charges, or all of them if it was in a queue."""
        if self.paid < len(self.charges):
            self.step_out(self.charges[self.paid][0])
            unsent = 1.0
        if unsent:
            for bucket, amount in self.charges[: self.paid]:
                bucket.give_back(amount * unsent, now)
                if bucket.line:  # the first turn waits for a debt that is lower now
                    self.woken.append(next(iter(bucket.line)).waiter)
            self.charges = ()

    def has_late(self, now: float) -> bool:
        """Return True if bytes of a request at one of these limits were late within the last LATE seconds."""
        return any(now < bucket.late_until for bucket, _ in self.charges)

    def note_late(self, now: float) -> None:
        for bucket, _ in self.charges:
            bucket.late_until = now + LATE

    def part(self, share: float) -> QuotaTurn:
        return QuotaTurn([(bucket, amount * share) for bucket, amount in self.charges])

    def step_out(self, bucket: Bucket) -> None:
        """Leave the line of a bucket; the next turn is woken if this one was the first."""
        line = bucket.line
        if self in line:
            first = next(iter(line)) is self
            del line[self]
            if first and line:
                self.woken.append(next(iter(line)).waiter)
