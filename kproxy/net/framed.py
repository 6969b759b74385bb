"""One question of kproxy's own, and the frame that answers it."""

from __future__ import annotations

import socket

from .attempt import exactly, send

CORRELATION_AT = slice(8, 12)
"""Of a request with its size."""


async def framed(sock: socket.SocketType, request: bytes, longest: int) -> bytes:
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
