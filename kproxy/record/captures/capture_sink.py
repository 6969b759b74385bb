"""Sink of one capture: chooses the exchanges that go into the file, from the client's side and from the broker's.

Strategy: a filter is asked about the exchange as the client saw it. What passed at the broker finds its counterpart as
in a capture that is read (`record/captures/pairs.py`); it is written only where its bytes are others, since else the
client's side has it already. Requests of kproxy's own have no counterpart at the client: they are written when their
connection is over, if the filter holds for them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum

from kproxy.record.exchange import Depth, Frame, ObservedExchange, Who
from kproxy.record.filter.filter import Filter
from kproxy.rules.filter.fields import View

from .capture_file import CaptureFile
from .pairs import SideMatcher, kept_bytes
from .policy import CaptureSide, Policy
from .writer import CaptureEndpoint

KAFKA_PORT = 9092


class Unwanted(Enum):
    """Mark of an exchange that a capture's filter does not hold for, and so for none of its sides."""

    UNWANTED = 0


UNWANTED = Unwanted.UNWANTED


@dataclass(slots=True)
class WatchedConnection:
    """Connection that a capture watches. `opened`: None if it is older than the capture. `recorded`: it is in the
    file."""

    server: CaptureEndpoint
    opened: float | None
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
        self.matcher = SideMatcher[ObservedExchange | Unwanted, ObservedExchange](math.inf)

    @property
    def broker_side(self) -> bool:
        return self.side != "client"

    def depth(self, key: int, version: int) -> Depth:
        """Return SKETCH or more for exchanges that the filter can match, COUNT for all others."""
        if not self.wanted.possible(key, version):
            return Depth.COUNT
        return max(Depth.SKETCH, self.policy.depth, self.wanted.depth(key, version))

    def opened(self, who: Who, now: float) -> None:
        # A connection that is older than the capture begins in it with its first request.
        self.watched[who.number] = WatchedConnection(self.server(who), now if now >= self.file.began else None)

    def take(self, seen: ObservedExchange) -> None:
        if self.file.stopped:
            return
        watched = self._watched(seen.who)
        meant = self._meant(seen)
        if meant and self.side != "broker":
            watched.recorded = True
            self.file.exchange(seen, watched.server, watched.opened, behind=False)
        if self.broker_side and not seen.answered_by_rule:
            self._settle(self.matcher.front(seen, seen if meant else UNWANTED, kept_bytes(seen) if meant else 0))

    def take_behind(self, seen: ObservedExchange) -> None:
        if not self.file.stopped and self.broker_side:
            settled = self.matcher.behind(seen, seen, kept_bytes(seen))
            if settled:
                self._settle(settled)

    def closed(self, who: Who, now: float) -> None:
        self._settle(self.matcher.end(who.number))
        watched = self.watched.pop(who.number, None)
        if watched is not None and watched.recorded:
            self.file.closed(who, now)

    def _settle(self, pairs: Iterable[tuple[ObservedExchange | Unwanted | None, ObservedExchange | None]]) -> None:
        """Write what passed at the broker: where it is another than its counterpart, if that is meant; and what has
        none, if the filter holds for it."""
        for front, behind in pairs:
            if behind is None or front is UNWANTED:
                continue
            if self._meant(behind) if front is None else differ(front, behind):
                self._write_behind(behind)

    def _watched(self, who: Who) -> WatchedConnection:
        """Return the record of a connection, made here if the connection was watched before the capture began."""
        watched = self.watched.get(who.number)
        if watched is None:
            watched = self.watched[who.number] = WatchedConnection(self.server(who), None)
        return watched

    def _meant(self, seen: ObservedExchange) -> bool:
        return not self.wanted or self.wanted.holds(self.view(seen))

    def _write_behind(self, seen: ObservedExchange) -> None:
        watched = self._watched(seen.who)
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
