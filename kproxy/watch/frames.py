"""One direction's bytes cut into frames, of which as much is kept as somebody wants.

Strategy. A frame that is under way is an `Arriving`. It gathers its first bytes until the stream that it belongs to
knows what it is (`look`, called as often as more bytes are needed to tell), is settled then, and from there on copies,
sketches or passes over what comes. Bytes are looked at once, in whatever pieces they come.
"""

from __future__ import annotations

from typing import Any

from kproxy.wire.primitives import Buffer
from kproxy.wire.sketch import Sketcher

SIZE_BYTES = 4
HEAD = 256
"""Bytes that are taken at once of a frame that begins, if they are there: nearly all headers are shorter."""


class Arriving:
    """A frame on its way. `data`: what is kept of it, from its length field on; `total`: its bytes with that field.

    `need`: bytes of `data` that are needed before it can be settled. `keep`: how long `data` may become then.
    """

    __slots__ = ("data", "first", "got", "keep", "need", "owner", "secret", "settled", "sketcher", "total")

    def __init__(self, now: float) -> None:
        self.first = now
        self.data = bytearray()
        self.got = self.total = self.keep = 0
        self.need = SIZE_BYTES
        self.settled = False
        self.sketcher: Sketcher | None = None
        self.secret = ""  # why the body is not kept
        self.owner: Any = None

    @property
    def size(self) -> int:
        """What the length field says."""
        return int.from_bytes(self.data[:SIZE_BYTES], "big", signed=True)

    @property
    def whole(self) -> bool:
        return self.settled and self.got >= self.total

    def take(self, buf: Buffer, pos: int, n: int) -> int:
        """Take what is there, up to what is needed or the end of the frame; the position behind it."""
        data = self.data
        if not self.settled:
            most = max(self.need, min(HEAD, self.total))
            stop = min(n, pos + most - len(data))
            data += memoryview(buf)[pos:stop]
            self.got = len(data)
            return stop
        stop = min(n, pos + self.total - self.got)
        room = self.keep - len(data)
        if room > 0:
            data += memoryview(buf)[pos : min(stop, pos + room)]
        if self.sketcher is not None:
            self.sketcher.feed(buf, pos, stop)
        self.got += stop - pos
        return stop

    @property
    def unseen(self) -> int:
        """How many of the bytes that come next are of no concern to it, 0 or less if they are."""
        if not self.settled or len(self.data) < self.keep:
            return 0
        left = self.total - self.got
        return left if self.sketcher is None else min(left, self.sketcher.unseen)

    def pass_over(self, size: int) -> None:
        """So many of these have come."""
        self.got += size
        if self.sketcher is not None:
            self.sketcher.pass_over(size)

    def settle(self, keep: int, sketcher: Sketcher | None = None) -> None:
        """Keep so many bytes of it, and its sketch."""
        self.keep, self.sketcher, self.settled = keep, sketcher, True
        if sketcher is not None:
            sketcher.feed(self.data, SIZE_BYTES, len(self.data))
        del self.data[keep:]

    def ask(self, more: int) -> None:
        """Look again when so many bytes are there, or the frame ends."""
        self.need = min(max(more, self.need), self.total)


class Stream:
    """One direction. `lost`: its lengths made no sense, and nobody can tell where frames begin."""

    __slots__ = ("frame", "lost")

    def __init__(self) -> None:
        self.frame: Arriving | None = None
        self.lost = False

    def receive(self, buf: Buffer, pos: int, n: int, now: float) -> int:
        """Take bytes of buf[pos:n], up to the end of a frame at most; the position behind them."""
        if self.lost:
            return n
        frame = self.frame
        if frame is None:
            frame = self.frame = Arriving(now)
        while pos < n and not frame.whole:
            pos = frame.take(buf, pos, n)
            while not frame.settled and len(frame.data) >= frame.need:
                self.look(frame, now)
                if self.lost:
                    return n
        if frame.whole:
            self.frame = None
            self.over(frame, now)
        return pos

    @property
    def unseen(self) -> int:
        """How many of the bytes that come next are of no concern."""
        return 0 if self.frame is None else self.frame.unseen

    def pass_over(self, size: int, now: float) -> None:
        """So many of these have come."""
        frame = self.frame
        assert frame is not None, "some were of no concern"
        frame.pass_over(size)
        if frame.whole:
            self.frame = None
            self.over(frame, now)

    def look(self, frame: Arriving, now: float) -> None:
        """As many bytes as were needed are there: settle the frame, ask for more, or be lost."""
        raise NotImplementedError

    def over(self, frame: Arriving, now: float) -> None:
        """The frame has come to its end."""
        raise NotImplementedError
