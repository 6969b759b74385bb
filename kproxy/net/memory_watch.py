"""Eviction of held frames that keep memory from others: `core/held_memory.py` decides, this module measures and closes.

Runs only while frames wait for memory, every `INTERVAL` seconds, in short steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

from kproxy.core.commands import BROKER
from kproxy.core.held_memory import BROKER_PATIENCE, PATIENCE, HeldMemory, Hold
from kproxy.net.loop.turns import work_through
from kproxy.net.socket.side import NAMES, PEER_BLOCKED, Side

from .driven import ConnectionPhase

if TYPE_CHECKING:
    from kproxy.net.connection import Connection
    from kproxy.net.loop.reactor import Reactor

INTERVAL = 0.1  # seconds between two looks


class MemoryServer(Protocol):
    """Server whose connections share the watched memory."""

    @property
    def reactor(self) -> Reactor: ...
    def wake(self, sessions: Sequence[Any]) -> None: ...


class MemoryWatch:
    """Watch over one budget of held frames."""

    def __init__(self, memory: HeldMemory, server: MemoryServer) -> None:
        self.memory, self.server = memory, server
        self.planned = False
        memory.on_wait = self.begin

    def begin(self) -> None:
        if not self.planned:
            self.plan(0.0)

    def plan(self, seconds: float) -> None:
        self.planned = True
        self.server.reactor.call_at(monotonic() + seconds, self.look)

    def look(self) -> None:
        work_through(self.server.reactor, self.steps())

    def steps(self) -> Iterator[None]:
        for hold in self.memory.evictions(monotonic(), progress):
            if hold is not None:
                evict(hold)
            elif granted := self.memory.grant():
                self.server.wake([lane.session for lane in granted])
            yield
        self.planned = False
        if self.memory.waiting:
            self.plan(INTERVAL)


def ends_of(hold: Hold) -> tuple[Connection, Side, Side] | None:
    """Return (connection, side that sends the frame, side that gets it); None: the connection has ended."""
    connection: Connection | None = hold.lane.session.owner
    if connection is None or connection.closed:
        return None
    sides = connection.client, connection.broker
    return connection, sides[hold.lane.source], sides[hold.lane.target]


def progress(hold: Hold) -> tuple[int, float] | None:
    """Return (bytes that the frame has still to move, seconds in which it must progress).

    None: kproxy itself, a rule, or a dial under way is why it does not move.
    """
    ends, lane = ends_of(hold), hold.lane
    if ends is None:
        return None
    connection, source, target = ends
    if connection.turn is not None:
        return None
    if target.out is not None:
        if target.sock is None or (target.shaper is not None and target.shaper.waiting is not None):
            return None
        return target.pending + lane.missing, patience_with(target)
    if connection.phase is not ConnectionPhase.OPEN:
        return hold.size, PATIENCE
    if lane.blocked or source.muted & ~PEER_BLOCKED or source.sock is None:
        return None
    return lane.missing, patience_with(source)


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
