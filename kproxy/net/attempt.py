"""One act on a non-blocking socket, by a trio task."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from typing import Any

import trio


async def attempt(sock: socket.SocketType, act: Callable[[], Any]) -> Any:
    """`act` on a non-blocking socket, repeated until it neither blocks nor wants TLS bytes first.

    For questions far shorter than an empty socket buffer: what blocks is always reading.
    """
    while True:
        try:
            return act()
        except (BlockingIOError, ssl.SSLWantReadError):
            await trio.lowlevel.wait_readable(sock)
        except ssl.SSLWantWriteError:
            await trio.lowlevel.wait_writable(sock)
