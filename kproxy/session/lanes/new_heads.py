"""Frames of one read whose heads are written anew, where another name of a topic is all that changes in them.

Strategy: a scan goes over them as over frames that pass, and puts down what becomes of each head. What they were made
into, and what passes between them, replaces all of it at once.
"""

from __future__ import annotations

from kproxy.protocol.breath import breathe
from kproxy.protocol.primitives import Buffer
from kproxy.session.rewrite.names.single_topic import KnownHead
from kproxy.session.rewrite.rewriter import Pieces

from .frame import Replace


class NewHeads:
    """Pieces in the place of buf[first:done], in which `changes` heads are other than they were."""

    __slots__ = ("changes", "done", "first", "pieces")

    def __init__(self, pos: int) -> None:
        self.first = self.done = pos
        self.pieces: Pieces = []
        self.changes = 0

    def write(self, buf: Buffer, pos: int, size: int, stop: int, head: KnownHead) -> None:
        """Write the head up to `stop` of the frame of `size` bytes at `pos`. Others have turns: a read may have ten
        thousand of them."""
        breathe()
        if pos > self.done:
            self.pieces.append(buf[self.done : pos])
        start = stop - head.length
        self.pieces += ((size + len(head.written) - head.length).to_bytes(4, "big"), buf[pos + 4 : start], head.written)
        self.done = stop
        self.changes += 1

    def replace(self, pos: int) -> Replace:
        """Return the disposition of the frames from the first one with another head to `pos`, which may lie behind what
        is here: behind the last head they pass."""
        return Replace(self.pieces, self.done, rest=pos - self.done)
