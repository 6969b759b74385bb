"""Frame that is not all here yet: how much of it is kept, in whatever pieces its bytes come.

Strategy. It gathers its first bytes until the stream that it belongs to (`streams.py`) has decided how much of it to
keep. From then on it is *settled*: further bytes are copied, sketched or passed over, each once.
"""

from __future__ import annotations

from typing import Any

from kproxy.protocol.primitives import Buffer
from kproxy.protocol.scan.sketch import Sketcher

SIZE_BYTES = 4
HEAD = 256
"""Bytes that are taken at once of a frame that begins, if they are there: nearly all headers are shorter."""


class PartialFrame:
    """Frame that is not all here yet, of one stream.

    `data`: what is kept of it, from its length field on; `total`: its bytes with that field; `got`: those that came.

    `need`: bytes of `data` that are needed before it can be settled. `keep`: how long `data` may become afterwards.
    """

    __slots__ = ("data", "first", "got", "keep", "need", "owner", "secret", "settled", "sketcher", "total")

    def __init__(self, now: float) -> None:
        self.first = now
        self.data = bytearray()
        self.got = self.total = self.keep = 0
        self.need = SIZE_BYTES
        self.settled = False
        self.sketcher: Sketcher | None = None
        self.secret = ""  # why the body is not kept, as in `credentials.BODIES`
        self.owner: Any = None

    @classmethod
    def passing(cls, now: float, total: int, got: int, owner: Any = None) -> PartialFrame:
        """Return a frame of `total` bytes, `got` of them here, of which nothing more has to be seen."""
        frame = cls(now)
        frame.total, frame.got, frame.owner, frame.settled = total, got, owner, True
        return frame

    @property
    def size(self) -> int:
        """Return the value of the frame's length field, in bytes."""
        return int.from_bytes(self.data[:SIZE_BYTES], "big", signed=True)

    @property
    def whole(self) -> bool:
        return self.settled and self.got >= self.total

    def take(self, buf: Buffer, pos: int, n: int) -> int:
        """Take bytes of buf[pos:n], up to those needed or the end of the frame; return the position behind them."""
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
        """Return how many of the next bytes the frame need not be given, 0 or less if it needs the very next one."""
        if not self.settled or len(self.data) < self.keep:
            return 0
        left = self.total - self.got
        return left if self.sketcher is None else min(left, self.sketcher.unseen)

    def pass_over(self, size: int) -> None:
        """Count `size` bytes as come that the frame was not given."""
        self.got += size
        if self.sketcher is not None:
            self.sketcher.pass_over(size)

    def settle(self, keep: int, sketcher: Sketcher | None = None) -> None:
        """Decide that `keep` bytes of the frame are kept, and the sketch that `sketcher` makes."""
        self.keep, self.sketcher, self.settled = keep, sketcher, True
        if sketcher is not None:
            sketcher.feed(self.data, SIZE_BYTES, len(self.data))
        del self.data[keep:]

    def need_bytes(self, more: int) -> None:
        """Have the stream look again when `more` bytes of the frame are here, or it ends."""
        self.need = min(max(more, self.need), self.total)
