"""Exchanges of kproxy's own captures as clients saw them, each with what passed of it at the broker.

Strategy. A capture has an exchange at the broker's side only where its bytes are others than at the client's, or where
kproxy asked by itself. It stands right behind its front, or soon, on a connection of the same number. So a front waits
for as long as others of its connection come, and what passed at the broker belongs to the last one with its correlation
id: ids are the client's to choose, and earlier ones may have been the same.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import NamedTuple

from kproxy.observe.exchange import ObservedExchange

from .captured_connection import CapturedConnection
from .reader import Capture

MOST_FRONTS = 200
"""Exchanges of a connection that wait for what passed at the broker; as many as the writer lets wait."""
LINGER = 1000
"""Packets behind the end of a connection until it counts as over: of several processes' blocks others may be between
the ends of its two sides."""
BROKER = "broker"


class BothSides(NamedTuple):
    """Exchange at the client (`front`; None: kproxy asked by itself) and at the broker (`behind`; None: the same bytes
    passed there, or none at all)."""

    front: ObservedExchange | None
    behind: ObservedExchange | None

    @property
    def at_broker(self) -> ObservedExchange | None:
        """Return what the broker saw: None where kproxy answered in its place."""
        if self.behind is not None or self.front is None:
            return self.behind
        return None if self.front.answered_by_rule else self.front


Fronts = OrderedDict[int, ObservedExchange]
"""Exchanges of a connection that wait, by correlation id, the oldest first."""


def paired(capture: Capture) -> Iterator[BothSides]:
    """Yield the exchanges of a capture that was opened for both sides, each once and nearly in the file's order.
    Raises CaptureError as the capture does, and ValueError for one of one side."""
    if capture.side != "both":
        raise ValueError(f"the capture is read for the {capture.side}'s side only")
    waiting: dict[int, Fronts] = {}
    ended: deque[tuple[int, int]] = deque()  # packets that were read by then, and the connection's number

    def over(who: CapturedConnection) -> None:
        ended.append((capture.counts.packets, who.number))

    capture.closed = over
    for seen in capture:
        if not capture.own:
            yield BothSides(seen, None)
            continue
        number = seen.who.number
        if is_at_broker(seen):
            fronts = waiting.get(number)
            yield BothSides(None if fronts is None else fronts.pop(seen.correlation_id, None), seen)
        else:
            yield from let_wait(waiting.setdefault(number, OrderedDict()), seen)
        while ended and ended[0][0] + LINGER < capture.counts.packets:
            yield from alone(waiting.pop(ended.popleft()[1], None))
    for fronts in waiting.values():
        yield from alone(fronts)


def let_wait(fronts: Fronts, seen: ObservedExchange) -> Iterator[BothSides]:
    """Have an exchange wait; yield those that cannot wait any more."""
    before = fronts.pop(seen.correlation_id, None)
    if before is not None:
        yield BothSides(before, None)
    fronts[seen.correlation_id] = seen
    if len(fronts) > MOST_FRONTS:
        yield BothSides(fronts.popitem(last=False)[1], None)


def alone(fronts: Fronts | None) -> Iterator[BothSides]:
    """Yield exchanges of which nothing else passed at the broker."""
    return (BothSides(front, None) for front in (fronts or {}).values())


def is_at_broker(seen: ObservedExchange) -> bool:
    """Return True if the exchange passed between kproxy and a broker, by the interface that it was captured at."""
    return isinstance(seen.who, CapturedConnection) and seen.who.interface == BROKER
