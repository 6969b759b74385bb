"""Stream over a client's socket after its TLS handshake, for tasks of trio that read and write as of a plain one."""

from __future__ import annotations

import ssl

import trio
from trio.abc import HalfCloseableStream

from .socket_io import MOST_AT_ONCE, attempt, send
from .tls import ClientSocket, release


class TlsStream(HalfCloseableStream):
    """Stream of one client's socket, which is non-blocking. Errors of the socket become those of trio's streams."""

    def __init__(self, sock: ClientSocket) -> None:
        self.socket = sock

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Return at most so many bytes; none when the client has ended, in TLS or not. Raises BrokenResourceError."""
        most = MOST_AT_ONCE if max_bytes is None else max_bytes
        try:
            data: bytes = await attempt(self.socket, lambda: self.socket.recv(most))
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
            return b""
        except (OSError, ValueError) as error:  # ValueError: it was closed
            raise trio.BrokenResourceError(str(error)) from error
        return data

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send all bytes of `data`. Raises BrokenResourceError."""
        try:
            await send(self.socket, bytes(data))
        except (OSError, ValueError) as error:
            raise trio.BrokenResourceError(str(error)) from error

    async def wait_send_all_might_not_block(self) -> None:
        """Do nothing: whoever sends waits there."""
        await trio.lowlevel.checkpoint()

    async def send_eof(self) -> None:
        """Do nothing: TLS has no end of one direction."""

    async def aclose(self) -> None:
        """Close the socket, and wake whoever waits for it."""
        release(self.socket)
        await trio.lowlevel.checkpoint()
