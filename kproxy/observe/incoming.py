"""The requests of a connection: their headers are read, an exchange is opened, and as much is kept as is wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kproxy.core.sasl import GSSAPI_FIRST, MAX_TOKEN, RawTokens
from kproxy.wire.scan.head import body_start
from kproxy.wire.table.api_keys import PRODUCE, SASL_HANDSHAKE

from .credentials import header_end
from .exchanges import Open
from .frames import SIZE_BYTES, Arriving, Stream
from .keeping import frame_of, keep
from .wanted import Wanted, code_of

if TYPE_CHECKING:
    from .watcher import Watcher

SMALLEST = 8
"""A request header without a client id, as ControlledShutdown v0 has it."""
LARGEST = 1 << 30
"""Bytes of a request at most. Brokers accept 100 MB (socket.request.max.bytes) unless that was raised."""
FIXED = 14
"""Bytes up to the length of the client id, with those of the frame's length."""
LONGEST_HEAD = 135000
"""Client id and transactional id have at most 32767 bytes each, tags of the header about as much: more is no head."""
TOKEN = object()
"""Stands for the owner of a frame that is a raw SASL token."""


class RequestStream(Stream):
    """Requests of one connection as a stream of frames. `first`: no frame was seen yet."""

    __slots__ = ("first", "watcher")

    def __init__(self, watcher: Watcher) -> None:
        super().__init__()
        self.watcher = watcher
        self.first = True

    def look(self, frame: Arriving, now: float) -> None:
        if not frame.total:
            frame.total = SIZE_BYTES + max(frame.size, 0)
        size = frame.size
        if (self.first or self.watcher.raw is not None) and self.look_for_token(frame, size):
            return
        if not SMALLEST <= size <= LARGEST:
            self.lose()
        elif len(frame.data) < min(FIXED, frame.total):
            frame.ask(FIXED)
        else:
            self.look_at_header(frame, now)

    def look_for_token(self, frame: Arriving, size: int) -> bool:
        """Return True if the frame is a raw SASL token, or another byte is needed to tell: it is dealt with then."""
        raw = self.watcher.raw
        if size > 0 and len(frame.data) == SIZE_BYTES:
            frame.ask(SIZE_BYTES + 1)
            return True
        head = frame.data[SIZE_BYTES] if size > 0 else -1
        if self.first and raw is None and head == GSSAPI_FIRST:  # a client of Kafka 0.9 opens with the token itself
            raw = self.watcher.raw = RawTokens("GSSAPI")
        if raw is None:
            return False
        if not raw.client_sends_token(size, head):
            if raw.rounds is None:  # the client speaks Kafka now: no token comes any more
                self.watcher.raw = None
            return False
        self.first = False
        if not 0 <= size <= MAX_TOKEN:
            self.lose()
            return True
        raw.from_client += 1
        frame.owner = TOKEN
        frame.settle(0)
        return True

    def look_at_header(self, frame: Arriving, now: float, *, more: bool = True) -> None:
        """Open an exchange, if its header is all here or no `more` will come."""
        data, watcher = frame.data, self.watcher
        key, version, correlation = (int.from_bytes(data[at : at + w], "big", signed=True) for at, w in HEADER)
        wanted = watcher.plan[code_of(key, version)]
        end = body_start(data, SIZE_BYTES, len(data), 1, "request")
        acks = None
        if end is not None and wanted.acks is not None:
            acks = wanted.acks(data, SIZE_BYTES, len(data), int.from_bytes(data[12:14], "big", signed=True))
        short = end is None or (wanted.acks is not None and acks is None)
        short = short or (bool(wanted.secret[0]) and self.tags_go_on(frame, wanted))
        if short and more and len(data) < min(frame.total, LONGEST_HEAD):
            frame.ask(2 * len(data))
            return
        self.first = False
        watcher.requests += 1
        client_id = str(data[FIXED:end], "utf-8", "replace") if end is not None and data[12] < 0x80 else None
        found = watcher.begin(correlation, wanted, client_id, now)
        found.arriving, frame.owner = frame, found
        if found.seen is not None:
            found.seen.acks = acks
        if acks == 0:
            watcher.open.pop()  # no response will find it
        keep(watcher, frame, found, 0)

    def tags_go_on(self, frame: Arriving, wanted: Wanted) -> bool:
        """Return True if the header's tags are not all here, so that its end is not known."""
        return header_end(frame.data[SIZE_BYTES:], wanted.key, wanted.version, "request") == SMALLEST

    def over(self, frame: Arriving, now: float) -> None:
        found = frame.owner
        if not isinstance(found, Open) or found.arriving is None:  # a token, or answered before it was whole
            return
        self.leave(frame, now)
        wanted, seen = found.wanted, found.seen
        if wanted.key == SASL_HANDSHAKE and not wanted.version:
            self.note_mechanism(frame)
        if wanted.key == PRODUCE and seen is not None and seen.acks == 0:
            self.watcher.over(found, "no_answer_due", now)

    def leave(self, frame: Arriving, now: float) -> None:
        """Put into its exchange as much of this request as came."""
        found: Open = frame.owner
        found.arriving = None
        if found.seen is not None:
            found.seen.request = frame_of(frame, found, 0, now)

    def note_mechanism(self, frame: Arriving) -> None:
        """Note the mechanism of a SaslHandshake v0 request: it decides how many raw tokens follow."""
        start = body_start(frame.data, SIZE_BYTES, len(frame.data), 1, "request") or len(frame.data)
        length = int.from_bytes(frame.data[start : start + 2], "big")
        self.watcher.mechanism = str(frame.data[start + 2 : start + 2 + length], "utf-8", "replace")

    def cut(self, now: float) -> None:
        """Take a request under way as it is, since the connection has ended."""
        frame, self.frame = self.frame, None
        if frame is not None and not frame.settled and len(frame.data) >= FIXED:
            self.look_at_header(frame, now, more=False)
        if frame is not None and isinstance(frame.owner, Open) and frame.owner.arriving is not None:
            found = frame.owner
            self.leave(frame, now)
            if found.seen is not None and found.seen.acks == 0:
                self.watcher.lost(found, now)

    def lose(self) -> None:
        self.lost, self.frame = True, None
        self.watcher.unread += 1


HEADER = ((4, 2), (6, 2), (8, 4))
"""(offset, width) in bytes of API key, version and correlation id, behind the length field."""
