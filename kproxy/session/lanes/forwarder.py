"""Ways out of a lane: pieces go where the frame lay in the driver's buffer, or by `Send` commands, in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from kproxy.protocol.breath import FEW, rest
from kproxy.protocol.primitives import Buffer
from kproxy.session.commands import LONG, Send
from kproxy.session.held_memory import Hold

from .frame import Disposition, Replace
from .host import LaneHost

MOST_GROWTH = 4096
"""Bytes by which a frame may grow where it lies in the driver's buffer, which may have to be set aside."""
HELD_SENT = 2
"""Token of a Send that ends a held frame, without its lowest bit: the side."""
MANY = 4096
"""Pieces that are put together in one go."""


class Forwarder:
    """Way out of one lane, to the side `target`."""

    session: LaneHost
    target: int
    disposition: Disposition | None = None  # of the frame at which the scan has stopped
    reserved: Hold | None = None  # for the frame at hand
    handed_over: deque[Hold] | None = None  # of frames that the driver has not written yet, in their order

    def put_back(self, replace: Replace, buf: Buffer, at: int, stop: int) -> int | None:
        """Write the pieces that replace buf[at:replace.after] to that place, with the bytes that pass behind it, up to
        `stop`.

        Return where that ends. None: there is not enough room, or a command may have to be obeyed before it leaves.
        """
        if self.disposition is not None or self.session.commands or not isinstance(buf, memoryview):
            return None
        head = b"".join(replace.pieces)
        start = at + len(head)
        end = start + stop - replace.after
        if end > len(buf) or end > stop + MOST_GROWTH:
            return None
        if start != replace.after:
            buf[start:end] = buf[replace.after : stop]
        buf[at:start] = head
        return end

    def emit(self, *pieces: Buffer) -> None:
        """Send a copy of the pieces, in one piece with what goes just before it; the buffer is the driver's. Long
        `bytes`, which nobody changes, leave as they are: to copy them would take long."""
        size = sum(map(len, pieces))
        if size < LONG or (len(pieces) < FEW and not any(map(stays, pieces))):
            if size:
                self.put_pieces(pieces)
        elif len(pieces) < FEW:
            for piece in pieces:
                self.put(piece if type(piece) is bytes and stays(piece) else bytearray(piece))
        else:
            self.put(joined(pieces))

    def put_pieces(self, pieces: Sequence[Buffer]) -> None:
        """Send a copy of a few pieces behind everything that the lane has sent before."""
        before = self.last_sent()
        if before is None:
            self.put(bytearray().join(pieces))
        else:
            for piece in pieces:
                before += piece

    def put(self, data: bytes | bytearray) -> None:
        session = self.session
        before = self.last_sent()
        if before is not None and isinstance(data, bytearray):
            before += data
        elif session.tail_position is None:
            session.commands.append(Send(self.target, data))
        else:
            session.commands.insert(session.tail_position, Send(self.target, data))
            session.tail_position += 1

    def last_sent(self) -> bytearray | None:
        """Return what this lane sends by the last command before the place where it sends now, if more may be put
        behind it."""
        session = self.session
        commands, end = session.commands, session.tail_position
        if not commands or end == 0:
            return None
        last = commands[-1 if end is None else end - 1]
        if isinstance(last, Send) and last.side == self.target and isinstance(last.data, bytearray):
            return last.data
        return None

    def hand_over(self) -> None:
        """Have the session return the memory of the held frame that was just sent, once the kernel has all of it: the
        token of an empty Send reports that."""
        if self.reserved is not None:
            if self.handed_over is None:
                self.handed_over = deque()
            self.handed_over.append(self.reserved)
            self.reserved = None
            self.session.commands.append(Send(self.target, b"", HELD_SENT | self.target))


def stays(piece: Buffer) -> bool:
    """Return True for long `bytes`, which leave as they are."""
    return type(piece) is bytes and len(piece) >= LONG


def joined(pieces: Sequence[Any]) -> bytearray:
    """Return a copy of all pieces in one; a long list is joined in parts, so that others can run in between."""
    if len(pieces) <= MANY:
        return bytearray().join(pieces)
    data = bytearray()
    for start in range(0, len(pieces), MANY):
        rest()
        data += b"".join(pieces[start : start + MANY])
    return data
