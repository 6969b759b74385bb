"""Clients that leave while a rule holds a frame of theirs: nobody reads their sockets, so no end would be seen."""

from __future__ import annotations

import socket
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

from kproxy.core.holding.desk import HoldingDesk
from kproxy.core.holding.held import HeldFrame
from kproxy.net.loop.reactor import Reactor
from kproxy.rules.running import HowGone

if TYPE_CHECKING:
    from kproxy.net.connection import Connection

LOOK = 0.25
"""Seconds between two looks."""
CLOSE_WAIT = 8
"""State of a TCP socket whose other end has closed (include/net/tcp_states.h)."""


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
        """Close the connections whose clients have left."""
        owners = {held.session.owner for held in self.desk.held.values()} - {None}
        for connection in owners:
            if not connection.closed and has_left(connection):
                text = "client closed while a rule held a frame of its connection"
                connection.watch(partial(connection.close, "client_closed", text))
        self.planned = bool(self.desk.held)
        if self.planned:
            self.reactor.call_at(monotonic() + LOOK, self.look)


def has_left(connection: Connection) -> bool:
    """Return True if the client has closed its end, whatever it sent before."""
    sock = connection.client.sock
    if sock is None:
        return False
    try:
        return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == CLOSE_WAIT
    except OSError:
        return False
