"""Side of a connection, one socket: the fast path of every frame, and the handling of blocked sockets.

Data read on a side goes to its `peer`. `ready` is the fast path: one recv into the shared buffer, one call of the
session, one send. Data that a socket does not accept is copied to its `out` queue. As long as `out` is not empty, the
peer is not read, so a slow reader blocks the other end instead of filling memory.

A side is read while `muted` is 0. Its bits are independent reasons not to read. Muting is lazy: the poller is changed
only when an event arrives that must not be served, which is rare.
"""

from __future__ import annotations

import socket
import struct
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING

from kproxy.base.cooperative import yield_now
from kproxy.session.commands import BROKER, CLIENT, LONG, Command, Dial

from .reactor import ERR, HUP, IN, OUT
from .scheduler import BUFFER
from .splice import can_splice, pass_by, set_low_water

if TYPE_CHECKING:
    from kproxy.runtime.connection import Connection
    from kproxy.runtime.protocols import Feed
    from kproxy.session.lanes.lane import Lane

    from .shaper import SideShaper

VIEW = memoryview(BUFFER)
HEAD = 16384
"""Bytes of a read after a spliced long frame: the beginning of the next long frame is likely to follow."""
BULK = 65536
"""Bytes of a read; longer reads are followed by another. After a shorter one the socket is usually empty, and a call is
expensive."""
READS = 8  # reads in one turn: at most 2 MiB of one connection, then others run
ANSWERS = 262144
"""Pending response bytes above which a client is not read. Otherwise a client that never reads would fill memory."""

PEER_BLOCKED, PAUSED, DIALLING, ENDED, CLOSING, ANSWERED, TLS_WRITE, RECORDING = 1, 2, 4, 8, 16, 32, 64, 128
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: on, 0 seconds


def not_connected(data: object) -> int:
    """Accept no bytes: `send` of a side without a socket. Its bytes wait in `out`."""
    raise BlockingIOError


class Side:
    """Socket of a connection. `which` is CLIENT or BROKER. `feed` receives the data read here."""

    conn: Connection
    peer: Side
    lane: Lane
    recv: Callable[[bytearray | memoryview], int]
    send: Callable[[bytes | memoryview], int]
    # Class attributes for state that most sides never need: they cost nothing to set up.
    sock: socket.SocketType | None = None
    fd = -1
    parked = False
    out: deque[tuple[memoryview, int]] | None = None
    pending = 0
    written = 0  # bytes that left `out`
    progress = 0.0
    shaper: SideShaper | None = None
    low_water = 1  # SO_RCVLOWAT, more in the middle of a long frame
    waited_since, waited_got = 0.0, 0  # time of the last wait for a long frame, and `got` then
    plain = True  # the socket carries the forwarded bytes unchanged (no TLS)

    def __init__(self, conn: Connection, which: int, feed: Feed, lane: Lane, commands: list[Command]) -> None:
        self.conn, self.which, self.feed, self.lane, self.commands = conn, which, feed, lane, commands
        self.recv, self.send = no_more, not_connected
        self.into: bytearray | memoryview = BUFFER  # buffer for reads: all of it, or the first HEAD bytes
        self.mask = IN
        self.muted = self.got = self.reading = 0  # `reading`: bytes of the last read

    @property
    def turns_of(self) -> Connection:
        return self.conn

    @property
    def address(self) -> str:
        """Return the name of the CPU share for frames from this side.

        A broker must not delay clients of other clusters, so responses of each cluster have their own share.
        """
        network = self.conn.address
        return network if self.which == CLIENT else f"{network} {self.conn.listener.upstream.name}"

    def attach(self, sock: socket.SocketType) -> None:
        """Attach a connected, non-blocking socket, and send the pending data. Raises OSError as `send` does."""
        self.sock = sock
        self.open(sock)
        if self.shaper is not None:
            self.shaper.wrap()
        if self.out is not None:
            self.flush()
        if self.sock is None:  # closed during the flush
            return
        self.fd = sock.fileno()
        self.conn.reactor.add(self.fd, self.ready, self.mask)

    def open(self, sock: socket.SocketType) -> None:
        self.recv, self.send = sock.recv_into, sock.send

    # ---- the fast path

    def ready(self, mask: int) -> None:  # noqa: C901  # in one piece, for every call costs
        """Read the socket and forward the bytes that the session allows. Other events go to `handle_event`."""
        if mask != IN or self.muted:
            self.handle_event(mask)
            return
        peer, lane, left, now = self.peer, self.lane, READS, monotonic()
        while left:
            if lane.skip >= LONG and can_splice(self) and not pass_by(self, now):
                return
            if self.low_water > 1:  # the next read may be short
                set_low_water(self)
            try:
                n = self.recv(self.into)
            except BlockingIOError:
                return
            except OSError as error:
                self.conn.failed(self, error)
                return
            if not n:
                self.end(now)
                return
            self.got += n
            self.reading = n
            if n > HEAD:
                yield_now()
            go = self.feed(VIEW, n, now)
            if self.commands:
                self.obey(go, now)
                return
            if go:
                try:
                    done = peer.send(VIEW[:go])
                except BlockingIOError:
                    done = 0
                except OSError as error:
                    self.conn.failed(peer, error)
                    return
                if done < go:
                    peer.queue(bytes(VIEW[done:go]))
            if (n < BULK and lane.skip < LONG) or self.muted:
                if n == HEAD:
                    self.into = BUFFER
                return
            left -= 1
        self.yield_to_others()

    # ---- off the fast path

    def obey(self, go: int, now: float) -> None:
        """Execute the session's commands. `go` bytes of the buffer are sent before them, but after a Dial, which opens
        the connection for these bytes."""
        conn, peer = self.conn, self.peer
        if isinstance(first := self.commands[0], Dial):
            del self.commands[0]
            conn.dial(first, now)
            if peer.sock is None and conn.phase is not conn.phase.OPEN:
                go = 0  # the broker could not be reached
        if go:
            try:
                done = peer.send(VIEW[:go])
            except BlockingIOError:
                done = 0
            except OSError as error:
                conn.failed(peer, error)
                return
            if done < go:
                peer.queue(bytes(VIEW[done:go]))
        if self.commands:
            conn.obey(now)

    def handle_event(self, mask: int) -> None:
        """Serve every event except readability of a side that is not muted."""
        if mask & OUT and self.out is not None:
            try:
                self.flush()
            except OSError as error:
                self.conn.failed(self, error)
        if self.sock is None:
            return
        if mask & OUT and self.out is None:
            self.want(self.mask & ~OUT)
        if not self.muted:
            if mask & ~OUT:
                self.ready(IN)
        elif mask & ERR:
            code = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            self.conn.failed(self, OSError(code, "reset"))
        elif mask & HUP:
            self.park()
        elif mask & IN:
            self.want(self.mask & ~IN)

    def expect_long(self) -> None:
        """Make the next read short: a long frame was spliced, and another one is likely."""
        self.into = VIEW[:HEAD]

    def end(self, now: float) -> None:
        """Mute the side at the end of its stream, and notify the connection."""
        self.muted |= ENDED
        self.conn.ended(self, now)
        if self.sock is not None:
            self.want(self.mask & ~IN)

    def yield_to_others(self) -> None:
        """Stop reading so that others run. The poller reports the rest again."""

    def write(self, data: bytes | bytearray | memoryview, token: int) -> None:
        """Send `data` after all pending data. `token` goes to `session.sent` once the kernel has accepted all of it."""
        done = 0
        if self.out is None:
            try:
                done = self.send(memoryview(data)) if data else 0
            except BlockingIOError:
                pass
            except OSError as error:
                self.conn.failed(self, error)
                return
            if done == len(data):
                if token:
                    self.conn.sent(token, monotonic())
                return
        self.queue(memoryview(data)[done:], token)

    def queue(self, data: bytes | memoryview, token: int = 0) -> None:
        """Queue data that the socket does not accept. `data` must not be a view of the shared buffer."""
        if self.out is None:
            self.out = deque()
            self.progress = monotonic()
            self.peer.muted |= PEER_BLOCKED
            self.want(self.mask | OUT)
        self.out.append((memoryview(data), token))
        self.pending += len(data)
        if self.which == CLIENT and self.pending > ANSWERS:
            self.muted |= ANSWERED

    def flush(self) -> None:
        """Send pending data until the socket blocks. A retry sends the same bytes, as TLS requires."""
        out = self.out
        assert out is not None
        try:
            while out:
                data, token = out[0]
                if data:
                    done = self.send(data)
                    self.pending -= done
                    self.written += done
                    self.progress = monotonic()
                    if done < len(data):
                        out[0] = data[done:], token
                        return
                out.popleft()
                if token:
                    self.conn.sent(token, self.progress)
        except BlockingIOError:
            if self.shaper is not None and self.shaper.waiting is not None:
                self.want(self.mask & ~OUT)  # the shaper blocks, not the socket
            return
        if self.sock is None:  # the `sent` callback has closed the connection
            return
        self.out = None
        self.want(self.mask & ~OUT)
        self.unmute(ANSWERED)
        self.peer.unmute(PEER_BLOCKED)
        self.conn.drained(self)

    def mute(self, reason: int) -> None:
        self.muted |= reason

    def unmute(self, reason: int) -> None:
        self.muted &= ~reason
        if not self.muted and self.sock is not None:
            self.want(self.mask | IN)

    def want(self, mask: int) -> None:
        if mask == self.mask:
            return
        self.mask = mask
        if self.fd < 0 or self.conn.turn is not None:
            return
        if self.parked:
            self.parked = False
            self.conn.reactor.poller.register(self.fd, mask)
        else:
            self.conn.reactor.modify(self.fd, mask)

    def park(self) -> None:
        """Unregister the socket from the poller. Both directions are shut, but unread data remains, and epoll would
        report HUP repeatedly."""
        self.mask &= ~IN
        self.parked = True
        self.conn.reactor.poller.unregister(self.fd)

    def freeze(self) -> None:
        """Unregister the socket, and ignore events that were already polled."""
        if self.fd >= 0:
            self.conn.reactor.table.pop(self.fd, None)
            if not self.parked:
                self.parked = True
                self.conn.reactor.poller.unregister(self.fd)

    def over(self) -> None:
        """Register the socket again after `freeze`. Events are not lost."""
        if self.fd >= 0:
            reactor = self.conn.reactor
            if self.parked:
                self.parked = False
                reactor.add(self.fd, self.ready, self.mask)
            else:
                reactor.modify(self.fd, self.mask)

    def shut(self) -> None:
        """Send FIN. The other end may still send."""
        if self.sock is not None:
            with suppress(OSError):  # already disconnected: ERR or HUP follows
                self.sock.shutdown(socket.SHUT_WR)

    def half_close(self) -> None:
        """Close the sending direction. Data received until the other end closes is discarded."""
        self.shut()

    def drain_unread(self) -> None:
        """Read and discard unread bytes before the close. A close with unread bytes is a reset, which can destroy data
        that the other end has not read yet (some brokers answer acks=0)."""
        if self.sock is not None:
            with suppress(OSError):
                self.sock.shutdown(socket.SHUT_WR)
                for _ in range(READS):
                    if not self.sock.recv_into(BUFFER):
                        return

    def drop(self, reset: bool = False) -> None:
        """Close the socket, with RST if `reset`, and discard pending data."""
        if self.out is not None:
            self.out, self.pending = None, 0
        sock, self.sock = self.sock, None
        self.recv, self.send = no_more, not_connected
        if sock is None:
            return
        self.conn.reactor.forget(self.fd)
        self.fd = -1
        if reset:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        sock.close()

    def crashed(self, error: Exception) -> None:
        """End the connection after an exception in `ready`."""
        self.conn.crashed(error)


def no_more(buffer: bytearray | memoryview) -> int:
    """Return no bytes: `recv` of a dropped side."""
    raise BlockingIOError


NAMES = {CLIENT: "client", BROKER: "broker"}
