"""Calls of a trio task on a non-blocking socket: one act, all of some bytes out, so many bytes in."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from typing import Any

import trio

MOST_AT_ONCE = 1 << 16
"""Bytes of one read: Python makes room for all that is asked for."""


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
