"""Taps of all connections: installed while there is a sink, removed without one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

from kproxy.record.audit.state_events import Ended
from kproxy.record.fanout import Fanout
from kproxy.runtime.io.side import RECORDING

if TYPE_CHECKING:
    from kproxy.record.exchange import Who
    from kproxy.record.observer.summary import Summary

    from .connection import Connection
    from .protocols import HostPort
    from .tap import RequestLinesFor, SummaryFor, Tap


class Taps:
    """Taps of all connections of one process while there are sinks.

    `connections()`: open connections. `summary_for(who)`: the summary that counts a connection, or None.
    `request_lines_for(who)`: the object that records its exchanges as lines, or None. While `shut`, clients are not
    read, since their requests could not be recorded.
    """

    def __init__(self, fanout: Fanout, connections: Callable[[], Iterable[Connection]]) -> None:
        self.fanout, self.connections = fanout, connections
        self.summary_for: SummaryFor = lambda who: None
        self.request_lines_for: RequestLinesFor = lambda who: None
        self.shut = False
        self.by_connection: dict[Connection, Tap] = {}
        self.awaited: set[HostPort] = set()
        """Client addresses of connections that samplers observe regardless of the time budget."""
        fanout.changed, fanout.changed_samplers = self.changed, self.changed_samplers
        self.slowly: Callable[[Iterator[None]], object] = list
        """Runs an iterator with many steps in slices."""

    @property
    def needed(self) -> bool:
        """Return True if `opened` must be called for new connections: there are sinks, or reads are paused."""
        return self.shut or self.fanout.wanted

    def opened(self, connection: Connection) -> None:
        """Watch a new connection without traffic, if there are sinks."""
        if self.fanout.wanted:
            self.watch(connection, connection.since, late=False)
        if self.shut:
            connection.client.mute(RECORDING)

    def summary_of(self, who: Who) -> Summary | None:
        """Return the current result of `summary_for`, which can change while a connection is watched."""
        return self.summary_for(who)

    def sent(self, connection: Connection, side: int, data: bytes | bytearray | memoryview, now: float) -> None:
        tap = self.by_connection.get(connection)
        if tap is not None:
            tap.sent(side, data, now)

    def closed(self, connection: Connection, now: float) -> None:
        tap = self.by_connection.pop(connection, None)
        if tap is not None:
            connection.session.observer = connection.tap = connection.tapped = None
            tap.end(now)
            tap.who.end = ended(connection, tap, now)
            tap.fanout.closed(tap.who, now)
            tap.who.keep_snapshot()

    def stop_reading(self) -> None:
        """Pause reads from clients. Requests in flight are still answered."""
        self.shut = True
        for connection in self.connections():
            connection.client.mute(RECORDING)

    def read_again(self) -> None:
        self.shut = False
        for connection in list(self.connections()):
            connection.client.unmute(RECORDING)

    def changed(self) -> None:
        """Update all taps after sinks were added or removed."""
        for _ in self.follow():
            pass

    def changed_samplers(self) -> None:
        """Update all taps in slices after samplers were added or removed, since samplers need no complete record."""
        self.slowly(self.follow())

    def follow(self) -> Iterator[None]:
        """Update the tap of each open connection, one connection per step."""
        now = monotonic()
        for connection, tap in list(self.by_connection.items()):
            if tap is self.by_connection.get(connection):
                connection.watch(tap.refocus if self.fanout.wanted else partial(self.forget, connection, tap))
                yield
        for connection in list(self.connections()) if self.fanout.wanted else ():
            if connection not in self.by_connection:
                connection.watch(partial(self.watch_late, connection, now))
                yield

    def watch_late(self, connection: Connection, now: float) -> None:
        if connection not in self.by_connection and self.fanout.wanted:
            self.watch(connection, now, late=True)

    def forget(self, connection: Connection, tap: Tap) -> None:
        """Remove the tap of a connection without sinks."""
        if not self.fanout.wanted:
            tap.remove()
            self.by_connection.pop(connection, None)
        else:
            tap.refocus()

    def open_taps(self) -> Iterator[Tap]:
        return (tap for tap in list(self.by_connection.values()) if not tap.asleep)

    def watch(self, connection: Connection, now: float, late: bool) -> None:
        from .tap import Tap  # imported late: most processes have no sinks

        fanout = self.fanout.unsampled() if connection.client_address in self.awaited else self.fanout
        tap = self.by_connection[connection] = Tap(
            connection, fanout, self.summary_of, self.request_lines_for, late=late
        )
        fanout.opened(tap.who, connection.since if late else now)


def ended(connection: Connection, tap: Tap, now: float) -> Ended:
    """Return the `Ended` event of a connection, with its traffic counts."""
    observer = tap.observer
    return Ended(
        cause=connection.cause,
        message=connection.message,
        seconds=now - connection.since,
        connect=connection.connected_after,
        requests=observer.requests,
        responses=observer.responses,
        unanswered=observer.unanswered,
        request_bytes=observer.request_bytes,
        response_bytes=observer.response_bytes,
        unread=observer.unread,
    )
