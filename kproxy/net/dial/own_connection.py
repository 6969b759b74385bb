"""Requests of kproxy's own to a broker, on connections that are dialled as those of clients are."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from kproxy.core.login import LoggedIn
from kproxy.net.driven import AddressPair, HostPort
from kproxy.net.socket.socket_io import exactly, send
from kproxy.net.transparent import Route

from .dialling import Cancellable, Dialler

CORRELATION_AT = slice(8, 12)
"""Bytes of the correlation id in a request, its size included."""


class OwnConnection:
    """Connection of kproxy's own, as the dialler sees it: `settled` is set when there is a socket, or a reason why
    not."""

    race: Cancellable | None = None
    origin: AddressPair | None = None
    sock: socket.SocketType | None = None
    reason = ""

    def __init__(
        self, upstream: Dialler, node: int | None = None, route: Route | None = None, anonymous: bool = False
    ) -> None:
        self.upstream, self.node, self.route, self.anonymous = upstream, node, route, anonymous
        self.settled = trio.Event()

    def connected(self, sock: socket.SocketType, server: HostPort, login: LoggedIn | None = None) -> None:
        self.sock = sock
        self.upstream.reactor.notify(self.settled)

    def unreachable(self, reason: str, refused: bool = False) -> None:
        self.reason = reason
        self.upstream.reactor.notify(self.settled)

    def end(self) -> None:
        """Close the socket, or stop dialling."""
        if self.race is not None:
            self.race.cancel()
        if self.sock is not None:
            self.sock.close()


@asynccontextmanager
async def own_connection(
    upstream: Dialler, *, node: int | None = None, route: Route | None = None, anonymous: bool = False
) -> AsyncIterator[socket.SocketType]:
    """Open a non-blocking socket to this broker or to any, logged in where kproxy does that unless it is to be
    `anonymous`; it is closed at the end.

    Raises OSError when no broker can be reached.
    """
    own = OwnConnection(upstream, node, route, anonymous)
    try:
        upstream.dial(own)
        await own.settled.wait()
        if own.sock is None:
            raise OSError(own.reason)
        yield own.sock
    finally:
        own.end()


async def send_request(sock: socket.SocketType, request: bytes, longest: int) -> bytes:
    """Send a request; return the frame of its answer, without its size, of at most `longest` bytes. Raises OSError when
    none comes, or one that is no answer to this request."""
    try:
        await send(sock, request)
        size = int.from_bytes(await exactly(sock, 4), "big")
        if not 4 <= size <= longest:
            raise OSError(f"answered with a frame of {size} bytes, which is no answer to it; expected 4 to {longest}")
        frame = await exactly(sock, size)
    except EOFError as error:
        raise ConnectionResetError(f"closed before it answered: {error}") from None
    if frame[:4] != request[CORRELATION_AT]:
        raise OSError(f"answered with {frame[:12].hex()}, which is no answer to it")
    return frame
