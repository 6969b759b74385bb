"""Turn of one request at the limits that it is charged to.

A request is admitted by one limit after the other. While a limit owes, the turn waits in its line; only the first turn
of a line has a time, and wakes the next one when it leaves. So each admission costs a constant amount of work, however
many requests wait. A turn that is given up takes back its charges: a client that disconnects costs the others nothing.
If the work of a connection is put aside, its turn leaves the line and joins it again at the end: otherwise the line
would wait for that work. A turn without a waiter cannot be woken. It joins no line, and asks again when the debt is
paid.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

from .bucket import Bucket

LATE = 60.0  # seconds after late bytes of one request, in which bytes of all requests are charged when they arrive


class QuotaTurn:
    """Turn of a request; see `kproxy.rules.exchange.Turn`. `debt`: seconds of the longest debt that it has left."""

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
        if self.paid < len(self.charges):
            self.step_out(self.charges[self.paid][0])

    def leave(self, now: float, unsent: float = 0.0) -> None:
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
