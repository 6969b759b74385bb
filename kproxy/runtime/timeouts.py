"""Periodic sweep of all connections, about once a second, for the timeouts of each phase.

Progress is derived from byte counts, so the fast path stores no timestamps.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import nsmallest
from math import inf
from operator import attrgetter
from random import uniform
from time import monotonic
from typing import TYPE_CHECKING

from kproxy.rules.rule_set import HowGone
from kproxy.runtime.config.network import Limits
from kproxy.runtime.io.reactor import Reactor
from kproxy.runtime.io.scheduler import work_through
from kproxy.runtime.io.side import ANSWERED, ENDED, NAMES, PAUSED, PEER_BLOCKED, Side
from kproxy.runtime.io.socket_io import keep_alive
from kproxy.runtime.io.splice import set_low_water
from kproxy.session.commands import BROKER
from kproxy.session.held_frames import HeldFrame, HeldRegistry
from kproxy.session.held_memory import BROKER_PATIENCE, PATIENCE, HeldMemory, Hold, Movement

from .connection import Connection
from .protocols import ConnectionPhase

if TYPE_CHECKING:
    from collections.abc import Collection

    from kproxy.app.config.document import Config

    from .server import Server

FLUSH = 30.0
"""Seconds without progress before a closing connection discards queued bytes."""
LINGER = 2.0
"""Seconds for a client to close its end after kproxy's FIN."""
INTERVAL = 1.0
"""Seconds between two sweeps. Timeouts are late by up to this time. 10,000 connections cost 1 % of a core."""
SHORTEST = 0.02
"""Minimum seconds between two sweeps, for short limits."""
AWAY = 1.0
"""Seconds that a sweep may be late. A later sweep means that the process was stopped or busy. Bytes that clients sent
in that time are not read yet, so timeouts restart."""


class Sweep:
    """Periodic sweep of `server`, active while there are connections."""

    def __init__(self, server: Server, ages: MaxAges) -> None:
        self.server, self.ages = server, ages
        self.planned = False
        self.last = 0.0  # start of the last sweep
        self.use(ages)

    def use(self, ages: MaxAges) -> None:
        """Set the interval from the server's limits and these ages, starting with the next sweep."""
        ages.credit, self.ages = self.ages.credit, ages
        limits = self.server.limits
        timeouts = (limits.header_timeout, limits.idle_timeout or INTERVAL * 4, limits.write_timeout, ages.shortest)
        self.interval = max(SHORTEST, min(INTERVAL, *(timeout / 4 for timeout in timeouts)))

    def begin(self, connection: Connection) -> None:
        """Start the sweep, if it is not planned, for a new connection."""
        self.ages.began(connection)
        if not self.planned:
            self.planned, self.last = True, monotonic()
            self.server.reactor.call_at(self.last + self.interval, self.run)

    def run(self) -> None:
        """Sweep all connections once, in slices, and plan the next sweep."""
        work_through(self.server.reactor, self.steps(), self.plan_next)

    def steps(self) -> Iterator[None]:
        server, now = self.server, monotonic()
        away = now - self.last > self.interval + AWAY
        self.last = now
        for connection in list(server.connections):
            yield
            if connection.closed:  # by an earlier step
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
    """Close the connection if a timeout of its phase has expired."""
    if connection.turn is not None:  # it waits for kproxy: its timeouts restart
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
        if side.out is not None and side.sock is not None and now - side.progress > limits.write_timeout:
            text = f"{NAMES[side.which]} took nothing for {limits.write_timeout:g} s, {side.pending} bytes wait for it"
            connection.end("write_timeout", text, reset=True)
            return
    if not connection.looked_after and broker.sock is not None:
        connection.looked_after = True
        keep_alive(broker.sock)
    if client.muted & ~ENDED:  # kproxy has paused reads: its timeouts restart when they resume
        connection.unread = now
        if connection.leaving is None:  # a leaving client is not read again and may have disconnected
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
    if held is not None and now - max(held[1], unread) > limits.buffer_timeout:
        name = NAMES[held[0]]
        text = f"a frame of the {name} that is held was not whole after {limits.buffer_timeout:g} s"
        connection.close("buffer_timeout", text, name)
        return
    if limits.idle_timeout and now - connection.active > limits.idle_timeout and may_be_idle(connection, limits, now):
        connection.close("idle_timeout", f"nothing passed for {limits.idle_timeout:g} s")


def note_progress(connection: Connection, now: float) -> None:
    """Record whether bytes were read since the last sweep. If not, remove low-water marks, since fewer bytes may be
    pending."""
    client, broker = connection.client, connection.broker
    moved = client.got + broker.got
    if moved != connection.moved:
        connection.moved, connection.active = moved, now
        return
    for side in (client, broker):
        if side.low_water > 1:
            set_low_water(side)


def may_be_idle(connection: Connection, limits: Limits, now: float) -> bool:
    """Return True unless a response to a client that is still read is pending or being written."""
    session = connection.session
    if session.idle or session.cut_off:
        return True
    written = max(connection.client.progress, connection.broker.progress)
    return connection.leaving is not None and now - written > limits.idle_timeout


MOST = 50
"""Maximum connections per second that begin to drain, in all workers together."""


# Maximum ages of connections, drawn at random when they begin, and the rate of drains.
#
# The rate is limited, since each drained client reconnects with a handshake at kproxy and at a broker. The oldest
# connections are drained first.
class MaxAges:
    """Maximum connection ages by listener name, and the drain rate of one process."""

    def __init__(self, config: Config) -> None:
        limits = config.limits
        self.ages: dict[str, tuple[float, float]] = {}  # (seconds, jitter) of the listeners that have an age
        for listener in config.listeners:
            age, jitter = listener.max_connection_age, listener.max_connection_age_jitter
            age = limits.max_connection_age if age is None else age
            if age:
                jitter = limits.max_connection_age_jitter if jitter is None else jitter
                self.ages[listener.name] = age, jitter
        self.pace = MOST / config.workers
        self.credit = 0.0

    @property
    def shortest(self) -> float:
        """Return the shortest age of any listener; infinite without ages."""
        return min((age for age, _ in self.ages.values()), default=inf)

    def began(self, connection: Connection) -> None:
        """Draw the maximum age of a new connection, if its listener has one."""
        age, jitter = self.ages.get(connection.listener.name, (0, 0))
        if age:
            connection.drain_at = connection.since + uniform(age * (1 - jitter), age * (1 + jitter))

    def take(self, connections: Collection[Connection], now: float, interval: float) -> list[Connection]:
        """Return the connections to drain now, oldest first. `interval`: minimum seconds between two calls. Longer gaps
        do not add credit."""
        if not self.ages:
            return []
        self.credit = min(self.credit, 1.0) + self.pace * interval
        due = [each for each in connections if each.drain_at <= now and may_drain(each)]
        oldest = nsmallest(int(self.credit), due, key=attrgetter("drain_at"))
        self.credit -= len(oldest)
        return oldest


def drain(connection: Connection, now: float) -> None:
    """Drain a connection that has reached its maximum age."""
    connection.drain_at = inf
    connection.drain(now, "max_age", f"the connection was {now - connection.since:.1f} s old")


def may_drain(connection: Connection) -> bool:
    """Return True for a connection that is not about to end and has no suspended work."""
    return connection.phase is ConnectionPhase.OPEN and connection.leaving is None and connection.turn is None


MEMORY_INTERVAL = 0.1  # seconds between two checks
FULL = {"full"}
"""Reasons of `FlowControl` for pausing a client with too many requests in flight."""


# Eviction of held frames when memory is short: `session/held_memory.py` decides, this class measures and closes.
#
# Runs only while frames wait for memory, every `MEMORY_INTERVAL` seconds, in short steps.
class MemoryWatch:
    """Monitor of one memory budget for held frames."""

    def __init__(self, memory: HeldMemory, server: Server) -> None:
        self.memory, self.server = memory, server
        self.planned = False
        memory.on_wait = self.begin

    def begin(self) -> None:
        if not self.planned:
            self.plan(0.0)

    def plan(self, seconds: float) -> None:
        self.planned = True
        self.server.reactor.call_at(monotonic() + seconds, self.check)

    def check(self) -> None:
        work_through(self.server.reactor, self.steps(), self.plan_next)

    def steps(self) -> Iterator[None]:
        for hold in self.memory.evictions(monotonic(), progress):
            if hold is not None:
                try:
                    evict(hold)
                except Exception as error:  # other reservations are still evicted
                    self.server.log.error("a held frame cannot be evicted", exc_info=error)
            elif granted := self.memory.grant():
                self.server.wake([lane.session for lane in granted])
            yield

    def plan_next(self) -> None:
        self.planned = False
        if self.memory.waiting:
            self.plan(MEMORY_INTERVAL)


def ends_of(hold: Hold) -> tuple[Connection, Side, Side] | None:
    """Return (connection, sending side, receiving side) of the frame. None: the connection has ended."""
    connection: Connection | None = hold.lane.session.owner
    if connection is None or connection.closed:
        return None
    sides = connection.client, connection.broker
    return connection, sides[hold.lane.source], sides[hold.lane.target]


def progress(hold: Hold) -> Movement | None:
    """Return the progress of the frame. None: kproxy itself, a rule, or a pending dial blocks it.

    If a client is paused because it does not read or has too many requests in flight, the client is responsible.
    """
    ends, lane = ends_of(hold), hold.lane
    if ends is None:
        return None
    connection, source, target = ends
    if connection.turn is not None:
        return None
    moved = source.got + target.written
    if target.out is not None:
        if target.sock is None or (target.shaper is not None and target.shaper.waiting is not None):
            return None
        return Movement(target.pending + lane.missing, moved, patience_with(target))
    if connection.phase is not ConnectionPhase.OPEN:
        return Movement(hold.size, moved, PATIENCE)
    waived = PEER_BLOCKED | ANSWERED
    if lane.session.flow.paused[lane.source] == FULL:
        waived |= PAUSED
    if lane.blocked or source.muted & ~waived or source.sock is None:
        return None
    return Movement(lane.missing, moved, patience_with(source))


def patience_with(side: Side) -> float:
    return BROKER_PATIENCE if side.which == BROKER else PATIENCE


def evict(hold: Hold) -> None:
    """End the connection of this reservation with the cause `held_evicted`."""
    ends = ends_of(hold)
    if ends is None:
        return
    connection, source, target = ends
    why = "did not progress" if hold.slow else "exceeds the fair share of its network"
    name = NAMES[(source if target.out is None else target).which]
    text = f"frames wait for memory, and a held frame of {hold.size} bytes {why}; waits for the {name}"
    connection.end("held_evicted", text, reset=True)


CHECK_EVERY = 0.25
"""Seconds between two checks."""
ASK = 2
"""Seconds between TCP keep-alive probes of a client that has sent FIN."""


# Detection of clients that disconnect while a rule holds their frame. Their sockets are not read, so the end would go
# unnoticed.
#
# Strategy. A FIN means only that the client sends nothing more. It may have disconnected, or it may wait for its
# response. Its earlier requests, such as the last Produce with acks=0, must still reach the broker. So held frames stay
# held, and their viewers receive an update. After a full disconnect, the client's kernel still acknowledges for another
# minute, and then resets the connection, which is handled like any other end. TCP keep-alive probes detect this soon.
class HeldWatch:
    """Monitor of the clients of all held frames in this process. Active only while there are held frames."""

    def __init__(self, desk: HeldRegistry, reactor: Reactor) -> None:
        self.desk, self.reactor = desk, reactor
        self.planned = False
        desk.clock = monotonic
        desk.tell.append(self.on_change)

    def on_change(self, what: str, held: HeldFrame, how: HowGone | None, who: str) -> None:
        """Start the checks when a frame is held."""
        if not self.planned and self.desk.held:
            self.planned = True
            self.reactor.call_at(monotonic() + CHECK_EVERY, self.check)

    def check(self) -> None:
        """Check the clients of all held frames, in slices."""
        work_through(self.reactor, self.steps(), self.plan_next)

    def steps(self) -> Iterator[None]:
        for held in list(self.desk.held.values()):
            connection = held.session.owner
            if not held.ended and held.gone is None and connection is not None and connection.client_left:
                held.ended = True
                keep_alive(connection.client.sock, idle=ASK, interval=ASK)
                self.desk.changed(held)
            yield

    def plan_next(self) -> None:
        self.planned = bool(self.desk.held)
        if self.planned:
            self.reactor.call_at(monotonic() + CHECK_EVERY, self.check)
