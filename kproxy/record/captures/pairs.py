"""Client-side exchanges, each paired with its broker-side exchange, in kproxy's own captures and live.

Strategy. A capture has an exchange at the broker's side only where its bytes are others than at the client's, or where
kproxy asked by itself. It follows its front at once or soon, on a connection with the same number, with the same
correlation id. But ids are the client's to choose: it may use one again and again, or one that kproxy uses itself. So
times also decide: the broker receives a request after the client has sent it, and responds before the client receives
the response. If several still match, the last one that was sent before it wins.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from kproxy.base.errors import CaptureError
from kproxy.record.exchange import Frame, ObservedExchange, Who

from .captured_connection import CapturedConnection
from .reader import Capture

MOST_UNMATCHED = 200
"""Exchanges of a connection that wait at each side; as many as the writer lets wait."""
MOST_IN_ALL = 50_000
"""Exchanges of all connections that wait; those that have waited longest are let go of beyond."""
MOST_BYTES = 64 << 20
"""Bytes of all that waits."""
LONGEST_WAIT = 5.0
"""Seconds of the capture's time that an exchange waits: several processes write their parts of a file each second."""
BROKER = "broker"

MOST_CONNECTIONS = 10_000
"""Connections without waiting exchanges that are kept."""

F = TypeVar("F")
B = TypeVar("B")
Pairs = list[tuple[F | None, B | None]]
"""Values of exchanges at the client, and at the broker."""


class BothSides(NamedTuple):
    """Exchange at the client (`front`; None: kproxy asked by itself) and at the broker (`behind`; None: the same bytes
    passed there, or none at all)."""

    front: ObservedExchange | None
    behind: ObservedExchange | None

    @property
    def at_broker(self) -> ObservedExchange | None:
        """Return the broker-side exchange; None if kproxy sent the response."""
        if self.behind is not None or self.front is None:
            return self.behind
        return None if self.front.answered_by_rule else self.front


@dataclass(slots=True, eq=False)
class UnmatchedExchange(Generic[F, B]):
    """Exchange that may still get its other side, on the connection of `sides`. `alone`: returned if the other side
    does not appear. `began`, `ended`: the times of the broker side lie between those of its front. `until`: end of the
    wait, in the capture's time."""

    alone: tuple[F | None, B | None]
    sides: UnmatchedSides[F, B]
    key: int
    correlation_id: int
    began: float
    ended: float
    size: int
    until: float = math.inf


@dataclass(slots=True, eq=False)
class UnmatchedSides(Generic[F, B]):
    """Exchanges of one connection that wait, at each side the oldest first. `client`, `broker`: the addresses there."""

    number: int
    fronts: deque[UnmatchedExchange[F, B]] = field(default_factory=deque)
    behinds: deque[UnmatchedExchange[F, B]] = field(default_factory=deque)
    client: Who | None = None
    broker: Who | None = None

    def is_other(self, who: Who, *, at_broker: bool) -> bool:
        """Return True if the exchanges are of an earlier connection with the same number; otherwise store the
        addresses."""
        known = self.broker if at_broker else self.client
        if known is not None and known is not who:
            return True
        if at_broker:
            self.broker = who
        else:
            self.client = who
        return False


class SideMatcher(Generic[F, B]):
    """Matcher of client-side and broker-side exchanges, in any order of arrival.

    Each exchange comes with a value of the caller's. Results are pairs of these values, (front, behind). None replaces
    a side that is missing for good. Each value is in one pair. Waiting exchanges are bounded: by number for a
    connection and for all, by bytes as the callers count them, and by `wait` seconds of the capture's time.
    """

    def __init__(self, wait: float = LONGEST_WAIT) -> None:
        self.wait = wait
        self.connections: dict[int, UnmatchedSides[F, B]] = {}
        self.waiting: OrderedDict[UnmatchedExchange[F, B], None] = OrderedDict()  # the oldest first
        self.size = 0
        self.clock = -math.inf

    def front(self, seen: ObservedExchange, value: F, size: int = 0) -> Pairs[F, B]:
        """Take an exchange at the client. Return the pairs that are settled now."""
        who = seen.who
        sides = self.connections.get(who.number)
        settled: Pairs[F, B] = []
        if sides is None or (sides.client is not who and sides.is_other(who, at_broker=False)):
            settled, sides = self._begin(who, at_broker=False)
        if seen.answered_by_rule:
            return [*settled, (value, None)]
        request, answer = seen.request, seen.answer
        began = -math.inf if request is None else request.first
        ended = math.inf if answer is None else answer.last
        for behind in sides.behinds:
            if (
                seen.correlation_id == behind.correlation_id and seen.key == behind.key
                and began <= behind.began <= ended and behind.ended <= ended
            ):  # fmt: skip
                self._remove(behind)
                return [*settled, (value, behind.alone[1])]
        one: UnmatchedExchange[F, B] = UnmatchedExchange(
            (value, None), sides, seen.key, seen.correlation_id, began, ended, size
        )
        waited = self._wait(sides.fronts, one, answer or request)
        return settled + waited if settled else waited

    def behind(self, seen: ObservedExchange, value: B, size: int = 0) -> Pairs[F, B]:
        """Take an exchange at the broker. Return the pairs that are settled now."""
        who = seen.who
        sides = self.connections.get(who.number)
        settled: Pairs[F, B] = []
        if sides is None or (sides.broker is not who and sides.is_other(who, at_broker=True)):
            settled, sides = self._begin(who, at_broker=True)
        request, answer = seen.request, seen.answer
        began = math.inf if request is None else request.last
        ended = -math.inf if answer is None else answer.first
        best = None
        for front in reversed(sides.fronts):
            # of several that were sent at once, those without an answer are over together, and in order
            if (
                seen.correlation_id == front.correlation_id and seen.key == front.key
                and front.began <= began <= front.ended and ended <= front.ended
                and (best is None or front.began > best.began or (answer is None and front.began == best.began))
            ):  # fmt: skip
                best = front
        if best is None:
            one: UnmatchedExchange[F, B] = UnmatchedExchange(
                (None, value), sides, seen.key, seen.correlation_id, began, ended, size
            )
            waited = self._wait(sides.behinds, one, answer or request)
            return settled + waited if settled else waited
        self._remove(best)
        return [*settled, (best.alone[0], value)]

    def oldest(self) -> Pairs[F, B]:
        """Return the oldest waiting exchange, which stops waiting; empty if nothing waits."""
        return [self._remove(next(iter(self.waiting))).alone] if self.waiting else []

    def flush(self) -> Pairs[F, B]:
        """Return all that waits, since nothing more comes."""
        return [self._remove(one).alone for one in list(self.waiting)]

    def end(self, number: int) -> Pairs[F, B]:
        """Return the waiting exchanges of the connection with this number, which has ended."""
        sides = self.connections.pop(number, None)
        return [] if sides is None else [self._remove(one).alone for one in (*sides.fronts, *sides.behinds)]

    def _begin(self, who: Who, *, at_broker: bool) -> tuple[Pairs[F, B], UnmatchedSides[F, B]]:
        """Return the unmatched exchanges of an earlier connection with this number, and the sides of this one."""
        settled = self.end(who.number)
        if len(self.connections) >= MOST_CONNECTIONS:
            self.connections = {one.number: one for one in self.connections.values() if one.fronts or one.behinds}
        sides = self.connections[who.number] = UnmatchedSides(who.number)
        sides.is_other(who, at_broker=at_broker)
        return settled, sides

    def _wait(
        self, side: deque[UnmatchedExchange[F, B]], one: UnmatchedExchange[F, B], last: Frame | None
    ) -> Pairs[F, B]:
        """Have an exchange wait at a side of its connection; return those that cannot wait any more."""
        if last is not None and last.last > self.clock:
            self.clock = last.last
        one.until = self.clock + self.wait
        side.append(one)
        self.waiting[one] = None
        self.size += one.size
        settled = [self._remove(side[0]).alone] if len(side) > MOST_UNMATCHED else []
        while len(self.waiting) > MOST_IN_ALL or self.size > MOST_BYTES or next(iter(self.waiting)).until < self.clock:
            settled.append(self._remove(next(iter(self.waiting))).alone)
            if not self.waiting:
                break
        return settled

    def _remove(self, one: UnmatchedExchange[F, B]) -> UnmatchedExchange[F, B]:
        """Have an exchange wait no more, and return it."""
        del self.waiting[one]
        side = one.sides.behinds if one.alone[0] is None else one.sides.fronts
        if side[0] is one:
            side.popleft()
        else:
            side.remove(one)
        self.size -= one.size
        return one


@dataclass(slots=True, eq=False)
class PairInOrder:
    """Place of an exchange among those that are given out in the order of the file. `settled`: it is complete. Without
    either side it is void: its broker side was paired with its front."""

    front: ObservedExchange | None
    behind: ObservedExchange | None
    size: int
    settled: bool = False

    def sides(self) -> Iterator[BothSides]:
        """Yield what is at this place, if anything is."""
        if self.front is not None or self.behind is not None:
            yield BothSides(self.front, self.behind)


def paired(capture: Capture) -> Iterator[BothSides]:
    """Yield the exchanges of a capture that was opened for both sides, each once and in the file's order. Raises
    CaptureError as the capture does, after yielding the exchanges read so far, and ValueError for a capture of one
    side."""
    if capture.side != "both":
        raise ValueError(f"the capture is read for the {capture.side}'s side only")
    order = FileOrder()
    damage: CaptureError | None = None
    try:
        for seen in capture:
            if capture.own:
                yield from order.take(seen)
            else:
                yield BothSides(seen, None)
    except CaptureError as error:  # exchanges read before the error count
        damage = error
    yield from order.flush()
    if damage is not None:
        raise damage


class FileOrder:
    """Exchanges of both sides in the order of their file, each held until it has its other side, or will get none."""

    def __init__(self) -> None:
        self.matcher = SideMatcher[PairInOrder, PairInOrder]()
        self.waiting: deque[PairInOrder] = deque()
        self.size = 0

    def take(self, seen: ObservedExchange) -> Iterator[BothSides]:
        """Take the next exchange of the file; yield those that need not wait any more."""
        size, at_broker = kept_bytes(seen), is_at_broker(seen)
        one = PairInOrder(None, seen, size) if at_broker else PairInOrder(seen, None, size)
        self.waiting.append(one)
        self.size += size
        join_pairs((self.matcher.behind if at_broker else self.matcher.front)(seen, one, size))
        while self.waiting:
            if self.size > MOST_BYTES and not self.waiting[0].settled:
                join_pairs(self.matcher.oldest())
            if not self.waiting[0].settled:
                return
            first = self.waiting.popleft()
            self.size -= first.size
            yield from first.sides()

    def flush(self) -> Iterator[BothSides]:
        """Yield all that waits, since nothing more comes."""
        join_pairs(self.matcher.flush())
        for one in self.waiting:
            yield from one.sides()


def join_pairs(pairs: Iterable[tuple[PairInOrder | None, PairInOrder | None]]) -> None:
    """Pair a broker-side exchange with its front. The front may be yielded then, as may an exchange that stays
    alone."""
    for front, behind in pairs:
        if front is not None and behind is not None:
            front.behind, behind.behind = behind.behind, None
        for one in (front, behind):
            if one is not None:
                one.settled = True


def kept_bytes(seen: ObservedExchange) -> int:
    """Return how many bytes of an exchange's frames are kept."""
    request, response = seen.request, seen.response
    size = 0 if request is None else len(request.data) + len(request.sketch)
    return size if response is None else size + len(response.data) + len(response.sketch)


def is_at_broker(seen: ObservedExchange) -> bool:
    """Return True if the exchange passed between kproxy and a broker, by the interface that it was captured at."""
    return isinstance(seen.who, CapturedConnection) and seen.who.interface == BROKER
