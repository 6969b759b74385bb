"""Token buckets that may go below empty: what comes is charged first, and whoever sent it then waits.

That is how Kafka's quotas work (KIP-13, KIP-219): a frame is never refused or cut for being too large for its limit, so
a bucket has a debt after it, which the time pays off. A debt is seconds that somebody has to wait.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from itertools import islice
from typing import Generic, TypeVar

from .fetch_reservations import FetchReservations

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
