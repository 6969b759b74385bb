"""Required depth of the frames of one API and version, and the kept bytes of a frame that is not complete yet.

A `PartialFrame` collects its first bytes until its stream (`streams.py`) has decided how much of it to keep. Then it is
*settled*: further bytes are copied, sketched or skipped, each once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kproxy.protocol.framing import acks_reader
from kproxy.protocol.primitives import Buffer
from kproxy.protocol.scan.sketch import Sketcher
from kproxy.protocol.table import schema
from kproxy.protocol.table.api_keys import CONTROLLED_SHUTDOWN, FETCH, PRODUCE, SASL_HANDSHAKE, SHARE_FETCH
from kproxy.record.exchange import Depth

from .credentials import REQUEST, RESPONSE, secret_paths, withheld_body
from .response_errors import has_errors_inside

SIZE_BYTES = 4
HEAD = 256
"""Bytes that are read at once at the start of a frame, if available: nearly all headers are shorter."""


class PartialFrame:
    """Frame that is not all here yet, of one stream.

    `data`: its kept bytes, from its length field on; `total`: its size with that field; `got`: the received bytes.

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
        """Return a frame of `total` bytes, `got` of them received, whose other bytes are not needed."""
        frame = cls(now)
        frame.total, frame.got, frame.owner, frame.settled = total, got, owner, True
        return frame

    @property
    def size(self) -> int:
        """Return the value of the frame's length field, in bytes."""
        return int.from_bytes(self.data[:SIZE_BYTES], "big", signed=True)

    @property
    def is_complete(self) -> bool:
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

    def fix_length(self, keep: int, sketcher: Sketcher | None = None) -> None:
        """Decide that `keep` bytes of the frame are kept, and the sketch that `sketcher` makes."""
        self.keep, self.sketcher, self.settled = keep, sketcher, True
        if sketcher is not None:
            sketcher.feed(self.data, SIZE_BYTES, len(self.data))
        del self.data[keep:]

    def need_bytes(self, more: int) -> None:
        """Have the stream look again when `more` bytes of the frame are here, or it ends."""
        self.need = min(max(more, self.need), self.total)


RECORDS = frozenset(((PRODUCE, REQUEST), (FETCH, RESPONSE), (SHARE_FETCH, RESPONSE)))
"""(API key, direction) of the frames with record batches whose rows a summary needs."""
SMALL = 65536
"""Bytes up to which a frame with records is kept and read as a whole; longer ones are sketched."""
HEAD_KEPT = 1024
"""Bytes kept of a frame beyond the connection's memory."""


class Observation:
    """Demand for the frames of one API and version on one connection.

    `counted`: the summary wants them. `taken`: a sink takes their exchanges. `nested`: they are only counted, and the
    responses have to be walked for the errors in them. `lined`: those who take the exchanges want nothing but a line of
    text of each. In each pair, the first is for requests and the second for responses: `depths`, `secret` (reason to
    withhold the body, or empty), `values` (config values are overwritten), `plain` (whole frames are kept unchanged),
    `small` (frames beyond SMALL bytes are sketched).
    """

    __slots__ = ("acks", "counted", "depth", "depths", "key", "lined", "nested", "plain", "secret", "small", "taken",
                 "values", "version")  # fmt: skip

    def __init__(self, key: int, version: int, depth: Depth, counted: bool) -> None:
        lined = depth == Depth.LINES
        depth = Depth.SKETCH if lined else depth
        self.key, self.version, self.depth, self.counted = key, version, depth, counted
        self.taken = depth >= Depth.SKETCH
        known, redacted = key in schema.paths(), depth != Depth.RAW
        self.acks = acks_reader(key, version)
        self.secret = tuple(withheld_body(key, version, one) if redacted else "" for one in (REQUEST, RESPONSE))
        self.values = tuple(bool(redacted and known and secret_paths(key, one)) for one in (REQUEST, RESPONSE))
        self.nested = counted and depth == Depth.ROWS and not self.secret[1] and has_errors_inside(key, version)
        self.depths = (self._depth(REQUEST), self._depth(RESPONSE))
        # these must be read: logins, headers of their own form, and Produce versions whose acks have no fixed place
        odd = key in (SASL_HANDSHAKE, CONTROLLED_SHUTDOWN) or (key == PRODUCE and self.acks is None)
        self.plain = tuple(self.taken and not odd and not self.secret[at] and not self.values[at] for at in (0, 1))
        self.lined = lined and all(self.plain) and version in schema.load(key).versions
        sketched = depth == Depth.SKETCH
        self.small = tuple(sketched and (key, one) in RECORDS for one in (REQUEST, RESPONSE))  # others: sketched

    def _depth(self, direction: str) -> Depth:
        """Return the required depth of the frames of one direction: rows of a summary need sketches."""
        if self.depth != Depth.ROWS:
            return self.depth
        rows = self.counted and (self.key == PRODUCE or (self.key, direction) in RECORDS)
        rows |= self.nested and direction == RESPONSE
        return Depth.SKETCH if rows else Depth.COUNT


class ObservationPlan(dict[int, Observation]):
    """Required depths of one connection, by API key << 16 | version as in the frame, without sign.

    Each is made when it is first asked for.
    """

    def __init__(self, interest: Callable[[int, int], Depth], counts: Callable[[int, int], bool] | None) -> None:
        self.interest, self.counts = interest, counts

    def __missing__(self, code: int) -> Observation:
        key, version = signed(code >> 16), signed(code & 0xFFFF)
        counted = self.counts is not None and self.counts(key, version)
        found = Observation(key, version, self.interest(key, version), counted)
        if len(self) < MOST_PLANNED:
            self[code] = found
        return found


MOST_PLANNED = 2000
"""Demands that one connection remembers. There are some 600 pairs of API and version, and a client uses twenty."""


def signed(number: int) -> int:
    return number - 0x10000 if number >= 0x8000 else number


def code_of(key: int, version: int) -> int:
    """Return API key << 16 | version without sign, the key of a `Plan`."""
    return (key & 0xFFFF) << 16 | version & 0xFFFF
