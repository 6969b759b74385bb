"""Connections to the admin address, each of which leaves time to the others and to the traffic of clients.

Strategy. Callbacks of the reactor run while no trio task can. Whoever sends one request behind the other, or on
hundreds of connections, would have a task that can run at all times; so all connections here go through one
`Turnstile`, one at a time with a poll of the reactor before it, and what a client has sent is taken in small pieces,
each of which is short work to read.

A client that does not read may take its time, for it may be somebody who looks at a page of `kproxy tail`. But
Hypercorn shields what it sends from being cancelled: at the end of the process, and where somebody else needs the
place, the connection is closed under it (`abort`).
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

import trio

PAUSE = 0.0005
"""Seconds; as soon as no other task can run, the reactor polls its sockets."""
MOST_PAUSES = 40
"""Pauses after which a connection goes on although the reactor has not: it may be its own work that takes so long."""
PIECE = 4096
"""Bytes that are read at once: some forty requests, or a few hundred frames of HTTP/2."""
SENDS = 4
"""Pieces of answers that are sent between two passes: an answer is three, and many may be asked for at once."""


class Turnstile:
    """Gate that lets one connection through at a time, in the order in which they come. `polls`: how often the reactor
    has looked at its sockets."""

    def __init__(self, polls: Callable[[], int]) -> None:
        self.polls = polls
        self.lock = trio.Lock()

    async def wait(self) -> None:
        """Return when it is this one's turn, and the reactor has had its own since the one before."""
        async with self.lock:
            before = self.polls()
            for _ in range(MOST_PAUSES):
                await trio.sleep(PAUSE)
                if self.polls() != before:
                    return


class PacedStream:
    """Connection to the admin address, with as much of a stream as Hypercorn uses."""

    def __init__(self, stream: trio.SocketStream, turnstile: Turnstile) -> None:
        self.stream, self.turnstile = stream, turnstile
        self.socket = stream.socket
        self.sends = 0
        self.stuck: float | None = None
        """Since when its client does not read what is being sent."""
        self.lost = False

    async def receive_some(self, most: int) -> bytes:
        """Return bytes that the client has sent, when it is this connection's turn."""
        data = await self.stream.receive_some(min(most, PIECE))
        if data:
            await self.turnstile.wait()
        return bytes(data)

    async def send_all(self, data: bytes) -> None:
        """Send all bytes. Raises BrokenResourceError when the connection is lost, or closed by `abort`. Answers to what
        has come before are sent all the same, so that takes its turns, too."""
        self.sends += 1
        if self.lost or self.sends % SENDS == 0:
            await self.turnstile.wait()
        self.stuck = monotonic()
        try:
            await self.stream.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self.lost = True
            raise
        finally:
            self.stuck = None

    async def send_eof(self) -> None:
        await self.stream.send_eof()

    async def aclose(self) -> None:
        await self.stream.aclose()

    def abort(self) -> None:
        """Close it, whatever is being sent or waited for."""
        self.lost = True
        self.socket.close()
