"""Eviction of held frames that keep memory from others: `session/held_memory.py` decides, this module measures and
closes.

Runs only while frames wait for memory, every `INTERVAL` seconds, in short steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

from structlog.typing import FilteringBoundLogger

from kproxy.runtime.io.side import ANSWERED, NAMES, PAUSED, PEER_BLOCKED, Side
from kproxy.runtime.io.turns import work_through
from kproxy.session.commands import BROKER
from kproxy.session.held_memory import BROKER_PATIENCE, PATIENCE, HeldMemory, Hold, Movement

from .driven import ConnectionPhase

if TYPE_CHECKING:
    from kproxy.runtime.io.reactor import Reactor

    from .connection import Connection

INTERVAL = 0.1  # seconds between two looks
FULL = {"full"}
"""Reasons of `FlowControl` for not reading a client with too many requests in flight."""


class MemoryServer(Protocol):
    """Server whose connections share the watched memory."""

    @property
    def reactor(self) -> Reactor: ...
    @property
    def log(self) -> FilteringBoundLogger: ...
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
        work_through(self.server.reactor, self.steps(), self.plan_next)

    def steps(self) -> Iterator[None]:
        for hold in self.memory.evictions(monotonic(), progress):
            if hold is not None:
                try:
                    evict(hold)
                except Exception as error:  # other reservations are evicted all the same
                    self.server.log.error("a held frame cannot be evicted", exc_info=error)
            elif granted := self.memory.grant():
                self.server.wake([lane.session for lane in granted])
            yield

    def plan_next(self) -> None:
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


def progress(hold: Hold) -> Movement | None:
    """Return how far the frame is; None: kproxy itself, a rule, or a dial under way is why it does not move.

    A client that is not read because it does not read, or has too many requests in flight, is the one to act.
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
