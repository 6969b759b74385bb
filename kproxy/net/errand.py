"""A connection of kproxy's own to one of a cluster's brokers: dialled as those of clients are, for one question."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from kproxy.core.login import LoggedIn

from .dial import Race
from .driven import HostPort, Origin
from .login import Login
from .transparent import Route
from .upstream import Upstream


class Errand:
    """What the dialler takes for a client: `found` is set when there is a socket, or a reason why there is none."""

    node: int | None = None
    race: Race | Login | None = None
    origin: Origin | None = None
    route: Route | None = None
    sock: socket.SocketType | None = None
    reason = ""

    def __init__(self, upstream: Upstream) -> None:
        self.upstream = upstream
        self.found = trio.Event()

    def connected(self, sock: socket.SocketType, server: HostPort, login: LoggedIn | None = None) -> None:
        self.sock = sock
        self.upstream.reactor.notify(self.found)

    def unreachable(self, reason: str, refused: bool = False) -> None:
        self.reason = reason
        self.upstream.reactor.notify(self.found)

    def end(self) -> None:
        """Whatever has come of it."""
        if self.race is not None:
            self.race.cancel()
        if self.sock is not None:
            self.sock.close()


@asynccontextmanager
async def errand(upstream: Upstream) -> AsyncIterator[socket.SocketType]:
    """A non-blocking socket to any of the brokers, logged in where kproxy does that; it is closed at the end.

    Raises OSError when nobody can be reached.
    """
    own = Errand(upstream)
    try:
        upstream.dial(own)
        await own.found.wait()
        if own.sock is None:
            raise OSError(own.reason)
        yield own.sock
    finally:
        own.end()
