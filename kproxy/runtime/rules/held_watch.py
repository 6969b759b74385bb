"""Clients that end while a rule holds a frame of theirs: nobody reads their sockets, so their end would not be seen.

Strategy. A FIN says no more than that the client sends nothing more. It may have left, or it may wait for its answer;
and what it sent before, the last write of a producer with acks 0, say, is for the broker all the same. So what is held
stays held, and those who look are told. The kernel of a client that has left entirely answers for another minute, then
it resets the connection: that is an end like any other. It is asked again and again, so that this is seen soon.
"""

from __future__ import annotations

from collections.abc import Iterator
from time import monotonic

from kproxy.rules.rule_set import HowGone
from kproxy.runtime.io.reactor import Reactor
from kproxy.runtime.io.socket_io import keep_alive
from kproxy.runtime.io.turns import work_through
from kproxy.session.holding.desk import HoldingDesk
from kproxy.session.holding.held import HeldFrame

LOOK = 0.25
"""Seconds between two looks."""
ASK = 2
"""Seconds between two questions whether a client that sends nothing more is still there."""


class HeldWatch:
    """Watch over the clients of all frames that are held in this process; at work only while there are any."""

    def __init__(self, desk: HoldingDesk, reactor: Reactor) -> None:
        self.desk, self.reactor = desk, reactor
        self.planned = False
        desk.clock = monotonic
        desk.tell.append(self.told)

    def told(self, what: str, held: HeldFrame, how: HowGone | None, who: str) -> None:
        """Begin to look when a frame is held."""
        if not self.planned and self.desk.held:
            self.planned = True
            self.reactor.call_at(monotonic() + LOOK, self.look)

    def look(self) -> None:
        """Look at the clients of all held frames, some at a time."""
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
            self.reactor.call_at(monotonic() + LOOK, self.look)
