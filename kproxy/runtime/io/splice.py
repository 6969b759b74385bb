"""Splicing: long frame bodies go from socket to socket inside the kernel, through a pipe (splice(2)).

When a session forwards the rest of a long frame without decoding, its bytes are not copied to this process and back.
Copying is most of the cost of a long frame. One pipe serves all connections. It is empty between two calls: bytes that
the target does not accept are read from the pipe and queued for the target. So back-pressure is the same for all bytes.

A long frame from a network wakes the loop every few packets. So while the loop waits for the rest of such a frame, the
socket has a low-water mark (`SO_RCVLOWAT`): the bytes that arrive in LONGEST_WAIT at the last measured rate. The mark
is at most the rest of the frame. End of stream, errors and a full receive window are reported in any case.
`timeouts.py` removes the mark of a socket without reads for a while.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from typing import TYPE_CHECKING

from kproxy.base.sockets import HAS_SPLICE
from kproxy.base.system import fcntl
from kproxy.session.commands import LONG

if TYPE_CHECKING:
    from .side import Side

MOST = 262144
"""Bytes per splice, as for a read; the target's queue holds up to this much. 1 MiB gained 5 % more."""
TURN = 2 << 20  # bytes of one connection in one turn
PIPE = 1 << 20
"""Requested bytes of the pipe, the default of fs.pipe-max-size for unprivileged users. Partial pages count whole."""
LONGEST_WAIT = 0.002
"""Seconds of delay by a low-water mark in the middle of a frame, at the rate of its last bytes."""
LEAST_MARK, MOST_MARK = 16384, 262144  # bytes; below the first the mark is 1
HOW = os.SPLICE_F_MOVE | os.SPLICE_F_NONBLOCK if HAS_SPLICE else 0


class Pipe:
    """Pipe in the kernel: `fill` it from one socket, then `drain` it into another."""

    def __init__(self) -> None:
        self.ends: tuple[int, int] | None = None

    def open(self) -> tuple[int, int]:
        self.ends = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        with suppress(OSError):  # it holds 64 KiB then, which gains less
            fcntl.fcntl(self.ends[1], fcntl.F_SETPIPE_SZ, PIPE)
        return self.ends

    def fill(self, source: int, size: int) -> int:
        """Read at most `size` bytes from a socket; 0 at its end. Raises BlockingIOError, and OSError as `recv` does."""
        _, end = self.ends or self.open()
        return os.splice(source, end, min(size, MOST), flags=HOW)

    def drain(self, target: int, size: int) -> bytes:
        """Send the `size` bytes of the pipe to a socket. Returns the bytes that it does not accept. Raises OSError as
        `send` does."""
        assert self.ends is not None
        end = self.ends[0]
        try:
            while size:
                size -= os.splice(end, target, size, flags=HOW)
        except BlockingIOError:
            return self.read(size)
        except OSError:
            self.close()  # discards the rest
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
        """Close both ends. The next `fill` opens a new pipe."""
        for end in self.ends or ():
            os.close(end)
        self.ends = None


PASSAGE = Pipe()
NOT_LOOKED_AT = memoryview(b"")


def can_splice(side: Side) -> bool:
    """Return True if the next bytes of this side are not inspected, and both sockets carry them unchanged."""
    peer, conn = side.peer, side.conn
    return (
        HAS_SPLICE and side.plain and peer.plain and peer.sock is not None and peer.shaper is None and not side.muted
        and side.lane.kept is None and (conn.tap is None or conn.tap.unseen(side.which) >= LONG)
        and conn.phase is conn.phase.OPEN
    )  # fmt: skip


def wait_for_more(side: Side, unseen: int, now: float) -> None:
    """Set the low-water mark for the next `unseen` bytes of a long frame. The socket is empty now."""
    came, took = side.got - side.waited_got, now - side.waited_since
    side.waited_got, side.waited_since = side.got, now
    mark = min(unseen, MOST_MARK, int(came * LONGEST_WAIT / took)) if took > 0 else 1
    if mark < LEAST_MARK:
        mark = 1
    before = side.low_water
    if before > unseen or not before / 2 <= mark <= before * 2:  # small changes are not worth a system call
        set_low_water(side, mark)


def set_low_water(side: Side, mark: int = 1) -> None:
    """Let the poller report this side once `mark` bytes have arrived, at once if the socket has them already."""
    side.low_water = mark
    if side.sock is not None:
        side.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, mark)


def pass_by(side: Side, now: float) -> bool:
    """Splice the bytes of this side that are not inspected, as far as they have arrived. Return True if all of them are
    forwarded, so the next bytes can be read."""
    lane, peer, tap, left, again = side.lane, side.peer, side.conn.tap, TURN, False
    while left > 0 and not side.muted:
        unseen = lane.skip if tap is None else min(lane.skip, tap.unseen(side.which))
        if unseen <= 0:  # the last bytes of the frame are inspected
            side.expect_long()
            return True
        try:
            n = PASSAGE.fill(side.fd, unseen)
        except BlockingIOError:
            wait_for_more(side, unseen, now)
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
            break
        if not lane.skip:
            side.expect_long()
            again = not side.muted
            break
    if side.low_water > 1:
        set_low_water(side)
    return again
