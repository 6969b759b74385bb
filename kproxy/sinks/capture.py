"""Sink of one capture: chooses the exchanges that go into the file, from the client's side and from the broker's.

Strategy: a filter is asked about the exchange as the client saw it. What passed at the broker finds its counterpart by
connection and correlation id; it is written only where its bytes are others, since else the client's side has it
already. Requests of kproxy's own have no counterpart at the client: they are written when their connection is over, if
the filter holds for them.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from kproxy.capture.policy import CaptureSide, Policy
from kproxy.capture.writer import CaptureEndpoint
from kproxy.observe.exchange import Depth, Frame, ObservedExchange, Who
from kproxy.observe.filter.filter import Filter
from kproxy.rules.filter.fields import View

from .capture_file import CaptureFile

V = TypeVar("V")
MOST_UNPAIRED = 200
"""Exchanges of a connection that wait for their counterpart; clients have five in flight, what is older has none."""
KAFKA_PORT = 9092


class Unpaired(Generic[V]):
    """Exchanges of a connection that wait for their counterpart on its other side.

    Under each correlation id the oldest comes first, since both sides end in order.
    """

    __slots__ = ("by_id", "count")

    def __init__(self) -> None:
        self.by_id: OrderedDict[int, deque[V]] = OrderedDict()
        self.count = 0

    def __len__(self) -> int:
        return self.count

    def __contains__(self, correlation_id: int) -> bool:
        return correlation_id in self.by_id

    def add(self, correlation_id: int, exchange: V) -> Iterator[V]:
        """Add an exchange. Returns an iterator over the one that has to leave for it, if any."""
        self.by_id.setdefault(correlation_id, deque()).append(exchange)
        self.count += 1
        return iter([self.take(next(iter(self.by_id)))] if self.count > MOST_UNPAIRED else ())

    def take(self, correlation_id: int) -> V:
        """Remove and return the oldest exchange with this id."""
        same = self.by_id[correlation_id]
        self.count -= 1
        if len(same) == 1:
            del self.by_id[correlation_id]
        return same.popleft()

    def all(self) -> Iterator[V]:
        """Return an iterator over all exchanges that wait."""
        return (one for same in self.by_id.values() for one in same)


@dataclass(slots=True)
class WatchedConnection:
    """Connection that a capture watches.

    `fronts`, `behinds`: exchanges without their counterpart so far, by correlation id and in order; a front is None if
    the filter does not hold for it.
    """

    server: CaptureEndpoint
    opened: float | None
    fronts: Unpaired[ObservedExchange | None] = field(default_factory=Unpaired)
    behinds: Unpaired[ObservedExchange] = field(default_factory=Unpaired)
    recorded: bool = False


class CaptureSink:
    """Sink of one capture.

    `server`: the address at kproxy that a client is connected to. `view`: an exchange as filters see it.
    """

    def __init__(
        self, file: CaptureFile, policy: Policy, wanted: Filter, side: CaptureSide,
        server: Callable[[Who], CaptureEndpoint], view: Callable[[ObservedExchange], View],
    ) -> None:  # fmt: skip
        self.file, self.policy, self.wanted, self.side = file, policy, wanted, side
        self.server, self.view = server, view
        self.watched: dict[int, WatchedConnection] = {}

    @property
    def broker_side(self) -> bool:
        return self.side != "client"

    def depth(self, key: int, version: int) -> Depth:
        """Return SKETCH or more for exchanges that the filter can match, COUNT for all others."""
        if not self.wanted.possible(key, version):
            return Depth.COUNT
        return max(Depth.SKETCH, self.policy.depth, self.wanted.depth(key, version))

    def opened(self, who: Who, now: float) -> None:
        self.watched[who.number] = WatchedConnection(self.server(who), now)

    def take(self, seen: ObservedExchange) -> None:
        if self.file.stopped:
            return
        watched = self._watched(seen.who)
        meant = self._meant(seen)
        if meant and self.side != "broker":
            watched.recorded = True
            self.file.exchange(seen, watched.server, watched.opened, behind=False)
        if not self.broker_side or seen.answered_by_rule:
            return
        if seen.correlation_id not in watched.behinds:
            watched.fronts.add(seen.correlation_id, seen if meant else None)
            return
        behind = watched.behinds.take(seen.correlation_id)
        if meant and differ(seen, behind):
            self._write_behind(watched, behind)

    def take_behind(self, seen: ObservedExchange) -> None:
        if self.file.stopped or not self.broker_side:
            return
        watched = self._watched(seen.who)
        if seen.correlation_id not in watched.fronts:
            for oldest in watched.behinds.add(seen.correlation_id, seen):
                self._write_without_front(watched, oldest)
            return
        front = watched.fronts.take(seen.correlation_id)
        if front is not None and differ(front, seen):
            self._write_behind(watched, seen)

    def closed(self, who: Who, now: float) -> None:
        watched = self.watched.pop(who.number, None)
        if watched is not None:
            for seen in watched.behinds.all():
                self._write_without_front(watched, seen)
            if watched.recorded:
                self.file.closed(who, now)

    def _watched(self, who: Who) -> WatchedConnection:
        """Return the record of a connection, made here if the capture began after it did.

        A connection of which `opened` did not tell begins with its first request.
        """
        watched = self.watched.get(who.number)
        if watched is None:
            watched = self.watched[who.number] = WatchedConnection(self.server(who), None)
        return watched

    def _meant(self, seen: ObservedExchange) -> bool:
        return not self.wanted or self.wanted.holds(self.view(seen))

    def _write_without_front(self, watched: WatchedConnection, behind: ObservedExchange) -> None:
        """Write an exchange at the broker that has no counterpart at the client, if the filter holds for it."""
        if self._meant(behind):
            self._write_behind(watched, behind)

    def _write_behind(self, watched: WatchedConnection, seen: ObservedExchange) -> None:
        watched.recorded = True
        self.file.exchange(seen, host_port(seen.who.broker), watched.opened, behind=True)


def differ(front: ObservedExchange, behind: ObservedExchange) -> bool:
    """Return True if the broker got, or sent, other bytes than the client."""
    return frames_differ(front.request, behind.request) or frames_differ(front.response, behind.response)


def frames_differ(front: Frame | None, behind: Frame | None) -> bool:
    if front is None or behind is None:
        return front is not behind
    return front.size != behind.size or front.data != behind.data


def host_port(address: str | None) -> CaptureEndpoint:
    """Split `host:port` or `[v6]:port`; an address without a port gets Kafka's."""
    host, _, port = (address or "unknown").rpartition(":")
    if not port.isdecimal():
        return (address or "unknown").strip("[]"), KAFKA_PORT
    return host.strip("[]"), int(port)
