"""Sink for one listener who wants to see what passes now: whoever runs `kproxy tail`.

Strategy: the filter is asked when an exchange is over; what it holds for waits, as it is, until the listener comes for
it. Lines are made then, so that a listener who does not read costs traffic nothing. What does not fit is dropped and
counted: traffic never waits for a listener.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kproxy.protocol.table import schema
from kproxy.record.filter.filter import Filter
from kproxy.record.filter.view import ExchangeView, MakeData

from .exchange import Depth, Frame, ObservedExchange, Who

MOST_WAITING = 10_000
"""Exchanges; a second of a busy proxy."""
MOST_BYTES = 32 << 20
"""Bytes of the frames of exchanges that wait: filters on records want whole ones."""
SMALLEST = 1000
"""Bytes that an exchange counts for at least: the objects that it is made of."""


@dataclass(frozen=True, slots=True)
class Missed:
    """Counts of exchanges that a listener was not shown since its last call.

    `dropped`: those that did not fit; `apis`: the same by API. `unknown`: those that the filter could not judge; `why`:
    the reason of the last one.
    """

    dropped: int = 0
    unknown: int = 0
    why: str = ""
    apis: Mapping[str, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.dropped or self.unknown)


class TailSink:
    """Sink of one listener.

    `make`: an exchange's data as the filter sees it. `wake` is called when there is something to `drain`.
    """

    broker_side = False

    def __init__(
        self, wanted: Filter, make: MakeData, wake: Callable[[], None], *,
        most: int = MOST_WAITING, most_bytes: int = MOST_BYTES,
    ) -> None:  # fmt: skip
        self.wanted, self.make, self.wake = wanted, make, wake
        self.most, self.most_bytes = most, most_bytes
        self.waiting: deque[tuple[ObservedExchange, int]] = deque()
        self.bytes = 0
        self.dropped = 0
        self._dropped_apis: Counter[str] = Counter()
        self._missed_before = Missed()

    def depth(self, key: int, version: int) -> Depth:
        """Return SKETCH or more for exchanges that can match, COUNT for all others."""
        if not self.wanted.possible(key, version):
            return Depth.COUNT
        return max(Depth.SKETCH, self.wanted.depth(key, version))

    def take(self, seen: ObservedExchange) -> None:
        if not self.wanted.holds(ExchangeView(seen, self.make)):
            return
        size = SMALLEST + _kept(seen.request) + _kept(seen.response)
        if len(self.waiting) >= self.most or self.bytes + size > self.most_bytes:
            self.dropped += 1
            if seen.key in schema.paths():  # clients choose the others, without end
                self._dropped_apis[seen.api] += 1
        else:
            self.waiting.append((seen, size))
            self.bytes += size
        self.wake()

    def take_behind(self, seen: ObservedExchange) -> None:
        """Never called: it tells what clients see."""

    def opened(self, who: Who, now: float) -> None:
        """Do nothing: connections are not shown."""

    def closed(self, who: Who, now: float) -> None:
        """Do nothing: connections are not shown."""

    def drain(self, most: int) -> list[ObservedExchange]:
        """Remove and return the oldest exchanges that wait, at most `most`."""
        drained: list[ObservedExchange] = []
        while self.waiting and len(drained) < most:
            seen, size = self.waiting.popleft()
            self.bytes -= size
            drained.append(seen)
        return drained

    def missed(self) -> Missed:
        """Return what the listener has missed since the last call."""
        now = Missed(self.dropped, self.wanted.unknown, self.wanted.why)
        before, self._missed_before = self._missed_before, now
        apis, self._dropped_apis = self._dropped_apis, Counter()
        return Missed(now.dropped - before.dropped, now.unknown - before.unknown, now.why, apis)


def _kept(frame: Frame | None) -> int:
    return 0 if frame is None else len(frame.data) + len(frame.sketch)
