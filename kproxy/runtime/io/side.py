"""Side of a connection, one socket: the fast path of every frame, and what to do when a socket does not take or give.

Strategy. What is read on a side goes to its `peer`. `ready` is the fast path: one recv into the buffer that all
connections share, one call of the session, one send. What a socket does not take is copied into its `out` queue; as
long as there is some, the peer is not read, so a slow reader stops the other end instead of filling memory.
A side is read while `muted` is 0. Its bits are the reasons not to; they come and go independently of each other.
Muting is lazy: the poller is told only when an event comes that may not be served, which it often does not.
"""

from __future__ import annotations

import socket
import struct
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Any, Protocol

from kproxy.protocol.breath import rest
from kproxy.runtime.protocols import Feed, LaneState
from kproxy.session.commands import BROKER, CLIENT, LONG, Command, Dial

from .reactor import ERR, HUP, IN, OUT, Reactor
from .scheduler import BUFFER, Turn, WorkOwner
from .splice import SplicedConnection, can_splice, pass_by, set_low_water

VIEW = memoryview(BUFFER)
HEAD = 16384
"""Bytes of a read behind a long frame that was spliced: it is likely to find the beginning of another one."""
BULK = 65536
"""A read this long is followed by another at once; after a shorter one there is mostly no more, and asking is dear."""
READS = 8
"""Reads in one go: 2 MiB of one connection at most, then it is the others' turn."""
ANSWERS = 262144
"""A client is not read while so many bytes wait for it: else one that asks and never reads would fill memory."""

PEER_BLOCKED, PAUSED, DIALLING, ENDED, CLOSING, ANSWERED, TLS_WRITE, RECORDING = 1, 2, 4, 8, 16, 32, 64, 128
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: on, 0 seconds


def not_connected(data: object) -> int:
    """Take no bytes: the `send` of a side that has no socket yet, whose bytes wait in `out`."""
    raise BlockingIOError


class SideOwner(SplicedConnection, WorkOwner, Protocol):
    """Connection that a side belongs to."""

    @property
    def reactor(self) -> Reactor: ...
    @property
    def listener(self) -> Any: ...
    @property
    def turn(self) -> Turn | None: ...
    @property
    def frozen(self) -> bool: ...
    def dial(self, command: Dial, now: float) -> None: ...
    def sent(self, token: int, now: float) -> None: ...
    def ended(self, side: Any, now: float) -> None: ...
    def drained(self, side: Any) -> None: ...


class SendShaper(Protocol):
    """Shaper in the place of a side's `send`."""

    @property
    def waiting(self) -> object:
        """Return the time that it waits for, None while the socket is waited for."""

    def wrap(self) -> None: ...


class Side:
    """Socket of a connection. `which` is CLIENT or BROKER; `feed` takes what is read here."""

    conn: SideOwner
    peer: Side
    lane: LaneState
    recv: Callable[[bytearray | memoryview], int]
    send: Callable[[bytes | memoryview], int]
    # What most sides never need stands here as long as it is so: it costs nothing to set up.
    sock: socket.SocketType | None = None
    fd = -1
    parked = False
    out: deque[tuple[memoryview, int]] | None = None
    pending = 0
    written = 0  # bytes that left `out`
    progress = 0.0
    shaper: SendShaper | None = None
    low_water = 1  # SO_RCVLOWAT, more in the middle of a long frame
    waited_since, waited_got = 0.0, 0  # when a long frame was last waited for, and `got` then
    plain = True  # what the sockets give and take are the bytes that pass

    def __init__(self, conn: SideOwner, which: int, feed: Feed, lane: LaneState, commands: list[Command]) -> None:
        self.conn, self.which, self.feed, self.lane, self.commands = conn, which, feed, lane, commands
        self.recv, self.send = no_more, not_connected
        self.into: bytearray | memoryview = BUFFER  # where reads go: all of it, or the first HEAD bytes
        self.mask = IN
        self.muted = self.got = self.reading = 0  # `reading`: bytes of the last read

    @property
    def turns_of(self) -> SideOwner:
        """Return the connection, whose work the callbacks of this side are."""
        return self.conn

    @property
    def address(self) -> str:
        """Return the name of the share of CPU for frames from this side.

        A broker must not delay clients of other clusters, so responses of each cluster have their own share."""
        network = self.conn.address
        return network if self.which == CLIENT else f"{network} {self.conn.listener.upstream.name}"

    def attach(self, sock: socket.SocketType) -> None:
        """Take a connected, non-blocking socket; what waited for it leaves at once. Raises OSError as `send` does."""
        self.sock = sock
        self.open(sock)
        if self.shaper is not None:
            self.shaper.wrap()
        if self.out is not None:
            self.flush()
        if self.sock is None:  # flushed, and closed by that
            return
        self.fd = sock.fileno()
        self.conn.reactor.add(self.fd, self.ready, self.mask)

    def open(self, sock: socket.SocketType) -> None:
        self.recv, self.send = sock.recv_into, sock.send

    # ---- the fast path

    def ready(self, mask: int) -> None:  # noqa: C901  # in one piece, for every call costs
        """Read the socket and pass on what the session lets pass; other events go to `handle_event`."""
        if mask != IN or self.muted:
            self.handle_event(mask)
            return
        peer, lane, left, now = self.peer, self.lane, READS, monotonic()
        while left:
            if lane.skip >= LONG and can_splice(self) and not pass_by(self, now):
                return
            if self.low_water > 1:  # the next bytes may be few
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
                rest()
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
        """Carry out what the session wants; `go` bytes of the buffer go before it, but behind a Dial, which is for
        them."""
        conn, peer = self.conn, self.peer
        if isinstance(first := self.commands[0], Dial):
            del self.commands[0]
            conn.dial(first, now)
            if peer.sock is None and conn.phase is not conn.phase.OPEN:
                go = 0  # nobody could be reached
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
        """Serve every event but plain readability of a side that may be read."""
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
        """Read little next: a long frame has gone by unread, and another one is likely."""
        self.into = VIEW[:HEAD]

    def end(self, now: float) -> None:
        """Mute the side, whose other end will send no more, and tell the connection."""
        self.muted |= ENDED
        self.conn.ended(self, now)
        if self.sock is not None:
            self.want(self.mask & ~IN)

    def yield_to_others(self) -> None:
        """Leave what there may be to read: others have waited long enough, and the poller will say so again."""

    def write(self, data: bytes | bytearray | memoryview, token: int) -> None:
        """Send after all that waits already. `token` goes to `session.sent` once the kernel has it all."""
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
        """Keep what the socket does not take. `data` must not be a view of the shared buffer."""
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
        """Send what waits, as far as it goes. What is sent again is the same bytes (TLS needs it)."""
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
                self.want(self.mask & ~OUT)  # it is not the socket that does not take more
            return
        if self.sock is None:  # who was told that all is sent has closed the connection
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
        """Take the socket out of the poller, as epoll would report HUP without end: both directions are shut, but what
        came before is not read yet."""
        self.mask &= ~IN
        self.parked = True
        self.conn.reactor.poller.unregister(self.fd)

    def freeze(self) -> None:
        """Let no event come, not even one that was polled before."""
        if self.fd >= 0:
            self.conn.reactor.table.pop(self.fd, None)
            if not self.parked:
                self.parked = True
                self.conn.reactor.poller.unregister(self.fd)

    def over(self) -> None:
        """Serve events again after `freeze`, as none was lost."""
        if self.fd >= 0:
            reactor = self.conn.reactor
            if self.parked:
                self.parked = False
                reactor.add(self.fd, self.ready, self.mask)
            else:
                reactor.modify(self.fd, self.mask)

    def shut(self) -> None:
        """Tell the other end that no more will come; it may still send."""
        if self.sock is not None:
            with suppress(OSError):  # gone already: its ERR or HUP is on the way
                self.sock.shutdown(socket.SHUT_WR)

    def half_close(self) -> None:
        """End the connection from our end: what still comes is thrown away until its end comes."""
        self.shut()

    def drain_unread(self) -> None:
        """Read what lies unread before the close: closing over unread bytes is a reset, and that could destroy what the
        other end has not read yet (some brokers answer acks=0)."""
        if self.sock is not None:
            with suppress(OSError):
                self.sock.shutdown(socket.SHUT_WR)
                for _ in range(READS):
                    if not self.sock.recv_into(BUFFER):
                        return

    def drop(self, reset: bool = False) -> None:
        """Close the socket, with RST if so wished, and forget what waits for it."""
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
        """End the connection after an exception that the reactor caught in `ready`."""
        self.conn.crashed(error)


def no_more(buffer: bytearray | memoryview) -> int:
    """Give no bytes: the `recv` of a side that was dropped."""
    raise BlockingIOError


NAMES = {CLIENT: "client", BROKER: "broker"}
