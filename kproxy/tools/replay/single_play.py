"""Play of a recording over one connection that is open already, in a thread of its own.

Strategy. The player says what to send and when to look again; here is the one socket that all of it goes over, read and
written with time limits. Of a long response only the first bytes are kept: the correlation id, by which the player
knows whose it is, is among them, and nobody else needs the rest.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from time import monotonic

from kproxy.protocol.framing import MAX_FRAME, RESPONSE_HEADER

from .links import CloseLink, FinishReplay, OpenLink, SendRequest, TickAt
from .player import ReplayPlayer

READ = 1 << 16
MOST_KEPT = 1 << 16
"""Bytes of a response that are kept; what is longer is counted and let go."""
LOOK = 0.25
"""Seconds after which it is looked whether the play is still wanted."""
SEND = 10.0
"""Seconds in which a request has to be taken."""


class ResponseHeads:
    """Cutter of a stream into responses of which only the beginning is kept."""

    def __init__(self) -> None:
        self.head = bytearray()
        self.left = 0
        """Bytes of the frame at hand that are still to come; 0 while its length is awaited."""

    def receive(self, data: bytes) -> Iterator[bytes]:
        """Take the next bytes; yield the beginning of each response that ends in them. Raises OSError at what is no
        response."""
        at = 0
        while at < len(data):
            if not self.left:
                at = self.length(data, at)
                continue
            part = data[at : at + self.left]
            self.head += part[: max(0, MOST_KEPT - len(self.head))]
            self.left -= len(part)
            at += len(part)
            if not self.left:
                yield bytes(self.head)
                self.head.clear()

    def length(self, data: bytes, at: int) -> int:
        """Take the length of a frame, or a part of it; return where what is behind that begins."""
        end = at + 4 - len(self.head)
        self.head += data[at:end]
        if len(self.head) == 4:
            self.left = int.from_bytes(self.head, "big", signed=True)
            self.head.clear()
            if not RESPONSE_HEADER <= self.left <= MAX_FRAME:
                raise OSError(f"the answer is a frame of {self.left} bytes")
        return min(end, len(data))


class SinglePlay:
    """Play of one player. `stop` may be called from any thread: `run` ends a moment later."""

    def __init__(self, player: ReplayPlayer) -> None:
        self.player = player
        self.heads = ResponseHeads()
        self.links: set[int] = set()
        """Numbers of the links that stand for the socket."""
        self.wake = 0.0
        self.stopped = False

    def stop(self) -> None:
        """End the play, whatever is awaited."""
        self.stopped = True

    def run(self, sock: socket.socket) -> None:
        """Play to the end. What happens to the connection is the player's to report."""
        player = self.player
        player.begin(monotonic())
        player.advance(monotonic())
        while self.obey(sock) and not self.stopped:
            now = monotonic()
            sock.settimeout(min(max(self.wake - now, 0.001), LOOK))
            try:
                data = sock.recv(READ)
            except TimeoutError:
                if monotonic() >= self.wake:
                    player.tick(monotonic())
                continue
            except (OSError, ssl.SSLError):
                data = b""
            self.take(data)

    def take(self, data: bytes) -> None:
        """Give the player what has come; nothing is the end of the connection."""
        try:
            for head in self.heads.receive(data):
                for number in list(self.links):
                    self.player.received(number, head, monotonic())
        except OSError:
            data = b""
        if not data:
            self.lose()

    def lose(self) -> None:
        """Tell the player that the connection is over."""
        lost = list(self.links)
        self.links.clear()
        for number in lost:
            self.player.closed(number, monotonic())

    def obey(self, sock: socket.socket) -> bool:
        """Carry out what the player wants, oldest first; return False when it is over."""
        commands = self.player.commands
        self.wake = monotonic() + SEND
        while commands:
            match commands.pop(0):
                case OpenLink(number):
                    self.links.add(number)
                    self.player.opened(number, monotonic())
                case SendRequest(number, data) if number in self.links:
                    try:
                        sock.settimeout(SEND)
                        sock.sendall(data)
                    except OSError:
                        self.lose()
                case CloseLink(number):
                    self.links.discard(number)
                case TickAt(when):
                    self.wake = when
                case FinishReplay():
                    return False
                case _:
                    pass
        return True
