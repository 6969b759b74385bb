"""Sweep of all connections about once a second, for the time-outs of each phase.

Progress is read from byte counts, so the fast path stores no times.
"""

from __future__ import annotations

from collections.abc import Iterator
from time import monotonic
from typing import Protocol

from kproxy.runtime.config.limits import Limits
from kproxy.runtime.io.side import ENDED, NAMES
from kproxy.runtime.io.socket_io import keep_alive
from kproxy.runtime.io.splice import set_low_water
from kproxy.runtime.io.turns import work_through

from .connection import Connection
from .drain import DrainedServer
from .driven import ConnectionPhase
from .max_age import MaxAges, drain

FLUSH = 30.0
"""Seconds without progress after which a closing connection gives up what its peer does not take."""
LINGER = 2.0
"""Seconds that a client gets to close its end after our FIN; most need none."""
INTERVAL = 1.0
"""Seconds between two looks at all connections: time-outs are late by that much; 10,000 of them cost 1 % of a core."""
SHORTEST = 0.02
"""Seconds between two looks where limits are shorter than that."""
AWAY = 1.0
"""Seconds that a look may be late. If it is later the process was stopped, or busy: what clients have sent meanwhile is
not read yet, so their times begin anew."""


class SweptServer(DrainedServer, Protocol):
    """Server whose connections are swept."""

    def swept(self) -> None:
        """Note that all connections have been looked at."""


class Sweep:
    """Sweep of `server`: runs as long as there are connections."""

    def __init__(self, server: SweptServer, ages: MaxAges) -> None:
        self.server, self.ages = server, ages
        self.planned = False
        self.last = 0.0  # when all connections were last looked at
        self.use(ages)

    def use(self, ages: MaxAges) -> None:
        """Look as often as the server's limits and these ages ask for, from the next look on."""
        ages.credit, self.ages = self.ages.credit, ages
        limits = self.server.limits
        timeouts = (limits.header_timeout, limits.idle_timeout or INTERVAL * 4, limits.write_stall, ages.shortest)
        self.interval = max(SHORTEST, min(INTERVAL, *(timeout / 4 for timeout in timeouts)))

    def begin(self, connection: Connection) -> None:
        """Look at the connections from now on: there is a new one."""
        self.ages.began(connection)
        if not self.planned:
            self.planned, self.last = True, monotonic()
            self.server.reactor.call_at(self.last + self.interval, self.run)

    def run(self) -> None:
        """Look at all connections once, in slices, and plan the next look."""
        work_through(self.server.reactor, self.steps(), self.plan_next)

    def steps(self) -> Iterator[None]:
        server, now = self.server, monotonic()
        away = now - self.last > self.interval + AWAY
        self.last = now
        for connection in list(server.connections):
            yield
            if connection.closed:  # by the end of one before it
                continue
            if away:
                connection.unread = now
            try:
                end_if_overdue(connection, server.limits, now)
            except Exception as error:
                server.log.error("a connection cannot be looked after", exc_info=error)
                connection.crashed(error)
        for connection in self.ages.take(server.connections, now, self.interval):
            try:
                drain(connection, now)
            except Exception as error:
                server.log.error("a connection cannot be drained", exc_info=error)
                connection.crashed(error)
            yield
        server.swept()

    def plan_next(self) -> None:
        self.planned = bool(self.server.connections)
        if self.planned:
            self.server.reactor.call_at(self.last + self.interval, self.run)


def end_if_overdue(connection: Connection, limits: Limits, now: float) -> None:
    """Close the connection if it has been in its phase for longer than a limit allows."""
    if connection.turn is not None:  # it waits for us: its times begin anew
        connection.active = connection.unread = now
        return
    client, broker = connection.client, connection.broker
    note_progress(connection, now)
    if connection.phase is not ConnectionPhase.OPEN:
        last = max(connection.active, client.progress, broker.progress)
        if now - last > (LINGER if connection.phase is ConnectionPhase.LINGERING else FLUSH):
            connection.finish()
        return
    for side in (client, broker):
        if side.out is not None and side.sock is not None and now - side.progress > limits.write_stall:
            text = f"{NAMES[side.which]} took nothing for {limits.write_stall:g} s, {side.pending} bytes wait for it"
            connection.end("write_stall", text, reset=True)
            return
    if not connection.looked_after and broker.sock is not None:
        connection.looked_after = True
        keep_alive(broker.sock)
    if client.muted & ~ENDED:  # it is us who do not read: its times begin anew when we do
        connection.unread = now
        if connection.leaving is None:  # else it is read no more, and may be gone
            connection.active = now
            return
    if broker.muted & ~ENDED:
        connection.unread = now
    session, unread = connection.session, connection.unread
    since = session.waiting_since
    if since is not None and now - max(since, unread) > limits.header_timeout:
        connection.close("header_timeout", f"a frame header was not whole after {limits.header_timeout:g} s")
        return
    held = session.holding_since()
    if held is not None and now - max(held[1], unread) > limits.held_timeout:
        name = NAMES[held[0]]
        text = f"a frame of the {name} that is held was not whole after {limits.held_timeout:g} s"
        connection.close("held_timeout", text, name)
        return
    if limits.idle_timeout and now - connection.active > limits.idle_timeout and may_be_idle(connection, limits, now):
        connection.close("idle_timeout", f"nothing passed for {limits.idle_timeout:g} s")


def note_progress(connection: Connection, now: float) -> None:
    """Note whether bytes were read since the last look. If not, remove low-water marks: fewer bytes may be waiting."""
    client, broker = connection.client, connection.broker
    moved = client.got + broker.got
    if moved != connection.moved:
        connection.moved, connection.active = moved, now
        return
    for side in (client, broker):
        if side.low_water > 1:
            set_low_water(side)


def may_be_idle(connection: Connection, limits: Limits, now: float) -> bool:
    """Return True unless an answer is due to a client that is still read, or is on its way to it."""
    session = connection.session
    if session.idle or session.cut_off:
        return True
    written = max(connection.client.progress, connection.broker.progress)
    return connection.leaving is not None and now - written > limits.idle_timeout
