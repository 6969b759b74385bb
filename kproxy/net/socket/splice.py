"""Splicing: bodies that nobody needs to see go from socket to socket inside the kernel, through a pipe (splice(2)).

Strategy. When a session lets the rest of a long frame pass unseen, these bytes need not come to this process: copying
them in and out is most of what a long frame costs. There is one pipe for all connections. It is empty between two
calls: what the target does not take is read out of it and waits like anything else that waits, so that back-pressure
is the same for all bytes.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any, Protocol

from kproxy.core.commands import LONG, Command
from kproxy.net.driven import ConnectionPhase, Feed, LaneState
from kproxy.system.files import fcntl
from kproxy.system.sockets import HAS_SPLICE

MOST = 262144
"""Bytes taken at once, as by a read: so much may wait when the target takes nothing. 1 MiB gained 5 % more."""
TURN = 2 << 20
"""Bytes of one connection, then it is the others' turn."""
PIPE = 1 << 20
"""Bytes that the pipe is asked to hold, which the kernel allows to everybody (fs.pipe-max-size): pages count whole."""
HOW = os.SPLICE_F_MOVE | os.SPLICE_F_NONBLOCK if HAS_SPLICE else 0


class SplicedTap(Protocol):
    """Watcher of a connection, which has to see some bytes and is told of the others."""

    def unseen(self, side: int) -> int:
        """Return how many bytes of what comes next from a side it need not see."""

    def pass_over(self, side: int, n: int, now: float) -> None:
        """Count so many bytes of this side, which go from socket to socket."""


class SplicedConnection(Protocol):
    """Connection of a side, as far as splicing needs it."""

    @property
    def phase(self) -> ConnectionPhase: ...
    @property
    def tap(self) -> SplicedTap | None: ...
    def failed(self, side: Any, error: OSError) -> None: ...
    def obey(self, now: float) -> None: ...


class SplicedSide(Protocol):
    """Side of a connection, as far as splicing needs it: `side.Side`."""

    got: int

    @property
    def conn(self) -> SplicedConnection: ...
    @property
    def peer(self) -> SplicedSide: ...
    @property
    def lane(self) -> LaneState: ...
    @property
    def feed(self) -> Feed: ...
    @property
    def commands(self) -> list[Command]: ...
    @property
    def plain(self) -> bool: ...
    @property
    def sock(self) -> object: ...
    @property
    def shaper(self) -> object: ...
    @property
    def which(self) -> int: ...
    @property
    def fd(self) -> int: ...
    @property
    def muted(self) -> int: ...
    def expect_long(self) -> None: ...
    def end(self, now: float) -> None: ...
    def queue(self, data: bytes | memoryview) -> None: ...


class Pipe:
    """Pipe in the kernel: `fill` it from one socket, then `drain` it into another."""

    def __init__(self) -> None:
        self.ends: tuple[int, int] | None = None

    def open(self) -> tuple[int, int]:
        self.ends = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        with suppress(OSError):  # it holds 64 KiB then, and all of this is less of a gain
            fcntl.fcntl(self.ends[1], fcntl.F_SETPIPE_SZ, PIPE)
        return self.ends

    def fill(self, source: int, size: int) -> int:
        """Take at most `size` bytes from a socket; 0 at its end. Raises BlockingIOError, and OSError as `recv` does."""
        _, end = self.ends or self.open()
        return os.splice(source, end, min(size, MOST), flags=HOW)

    def drain(self, target: int, size: int) -> bytes:
        """Give the `size` bytes that there are to a socket; returns those that it does not take. Raises OSError as
        `send` does."""
        assert self.ends is not None
        end = self.ends[0]
        try:
            while size:
                size -= os.splice(end, target, size, flags=HOW)
        except BlockingIOError:
            return self.read(size)
        except OSError:
            self.close()  # with what is left in it
            raise
        return b""

    def read(self, size: int) -> bytes:
        assert self.ends is not None
        pieces = []
        while size:
            pieces.append(os.read(self.ends[0], size))
            size -= len(pieces[-1])
        return b"".join(pieces)

    def close(self) -> None:
        """Close both ends; the pipe is made anew when it is needed."""
        for end in self.ends or ():
            os.close(end)
        self.ends = None


PASSAGE = Pipe()
NOT_LOOKED_AT = memoryview(b"")


def can_splice(side: SplicedSide) -> bool:
    """Return True if nobody has to see the bytes that come here now, and both sockets give and take them as they
    are."""
    peer, conn = side.peer, side.conn
    return (
        HAS_SPLICE and side.plain and peer.plain and peer.sock is not None and peer.shaper is None and not side.muted
        and side.lane.kept is None and (conn.tap is None or conn.tap.unseen(side.which) >= LONG)
        and conn.phase is conn.phase.OPEN
    )  # fmt: skip


def pass_by(side: SplicedSide, now: float) -> bool:
    """Have the kernel pass on what comes on this side, as far as it is here and nobody has to see it. Return True if
    all of that has passed, so that there may be something to read."""
    lane, peer, tap, left = side.lane, side.peer, side.conn.tap, TURN
    while left > 0 and not side.muted:
        unseen = lane.skip if tap is None else min(lane.skip, tap.unseen(side.which))
        if unseen <= 0:  # the frame's last bytes are of concern to somebody, few as they are
            side.expect_long()
            return True
        try:
            n = PASSAGE.fill(side.fd, unseen)
        except BlockingIOError:
            return False
        except OSError as error:
            side.conn.failed(side, error)
            return False
        if not n:
            side.end(now)
            return False
        side.got += n
        left -= n
        try:
            rest = PASSAGE.drain(peer.fd, n)
        except OSError as error:
            side.conn.failed(peer, error)
            return False
        if rest:
            peer.queue(rest)
        if tap is None:
            side.feed(NOT_LOOKED_AT, n, now)
        else:
            tap.pass_over(side.which, n, now)
        if side.commands:
            side.conn.obey(now)
            return False
        if not lane.skip:
            side.expect_long()
            return not side.muted
    return False
