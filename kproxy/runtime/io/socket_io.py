"""Calls of a trio task on a non-blocking socket, and the keep-alive of sockets.

The kernel's own times are two hours until it asks a silent peer and eleven minutes until it gives up, for which a dead
client would keep its place and its broker's. What listening sockets are told is inherited by those that they accept;
those to brokers are told when they are about a second old (sweep.py): four system calls that a short connection does
without.
"""

from __future__ import annotations

import socket
import ssl
import sys
from collections.abc import Callable
from struct import Struct
from typing import Any

import trio

from kproxy.base.sockets import HAS_TCP_STATE, KEEPIDLE, UNIX

MOST_AT_ONCE = 1 << 16
"""Bytes of one read: Python makes room for all that is asked for."""
IDLE = 60
"""Seconds of silence before the first question; less than the five minutes after which most firewalls forget."""
INTERVAL = 10
"""Seconds between questions."""
PROBES = 6
"""Questions without an answer after which the connection is broken: two minutes after the last word."""


async def attempt(sock: socket.SocketType, act: Callable[[], Any]) -> Any:
    """Repeat `act` on a non-blocking socket until it neither blocks nor wants TLS bytes first; return its result.

    For questions far shorter than an empty socket buffer: what blocks is always reading.
    """
    while True:
        try:
            return act()
        except (BlockingIOError, ssl.SSLWantReadError):
            await trio.lowlevel.wait_readable(sock)
        except ssl.SSLWantWriteError:
            await trio.lowlevel.wait_writable(sock)


async def send(sock: socket.SocketType, data: bytes) -> None:
    """Send all bytes of `data`. Raises OSError."""
    while data:
        done: int = await attempt(sock, lambda data=data: sock.send(data))  # type: ignore[misc]
        data = data[done:]


async def exactly(sock: socket.SocketType, size: int) -> bytes:
    """Read `size` bytes. Raises OSError, and EOFError when the other end closes before that."""
    parts = bytearray()
    while len(parts) < size:
        left = min(size - len(parts), MOST_AT_ONCE)
        more: bytes = await attempt(sock, lambda left=left: sock.recv(left))  # type: ignore[misc]
        if not more:
            raise EOFError(f"closed after {len(parts)} of {size} bytes")
        parts += more
    return bytes(parts)


def keep_alive(sock: socket.SocketType, idle: int | None = None, interval: int | None = None) -> None:
    """Have the kernel ask whether the peer is there; a socket of this machine needs no such thing."""
    if sock.family == UNIX:
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, KEEPIDLE, IDLE if idle is None else idle)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, INTERVAL if interval is None else interval)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, PROBES)


CLOSE_WAIT = 8
"""State of a TCP socket after a FIN of the other end (include/net/tcp_states.h)."""


TCP_STATE = Struct("=2xB21xI")  # of Linux's TCP_INFO: retransmits, unacknowledged segments
LOST_RETRANSMITS = 5  # of the same bytes, without an ACK: 6 s in a local network


def is_lost(sock: Any) -> bool:
    """Return True if the other end has not acknowledged retransmitted bytes; False if it only does not read them.

    The kernel ends such a connection after 15 minutes. With TCP_USER_TIMEOUT it would also end those of slow readers.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_STATE.size)
    except OSError:
        return False
    if len(info) < TCP_STATE.size:
        return False
    retransmits, unacked = TCP_STATE.unpack(info)
    return bool(unacked) and retransmits >= LOST_RETRANSMITS


def has_sent_fin(sock: socket.SocketType | None) -> bool:
    """Return True if the other end has closed, whether or not all before that was read. False if it is not known."""
    if sock is None or not HAS_TCP_STATE:
        return False
    try:
        return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == CLOSE_WAIT
    except OSError:
        return False
