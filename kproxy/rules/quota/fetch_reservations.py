"""Reservations for fetches under way, while nobody knows yet how many bytes they will bring.

A Fetch is charged when its response is here. Many that start at the same time would each be let bring all that is in
the bucket; so what one may bring is put aside for as long as it is under way.
"""

from __future__ import annotations

from collections import OrderedDict

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
