"""The responses of a connection: each finds its request, and as much of it is kept as is wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kproxy.core.sasl import MAX_TOKEN, RawTokens
from kproxy.wire.table.api_keys import SASL_HANDSHAKE

from .error_places import error_at, in_order
from .exchanges import Open
from .frames import SIZE_BYTES, Arriving, Stream
from .keeping import frame_of, keep

if TYPE_CHECKING:
    from .watcher import Watcher

SMALLEST = 4
"""Bytes of a response at least: a correlation id."""
FIXED = 8
"""Bytes up to the end of the correlation id, with those of the frame's length."""
HEAD = 24
"""Bytes of a response in which an error code at its top stands, if it can be had without reading the whole: length,
correlation id, an empty tag buffer, throttle time, error code."""
NO_ERROR = b"\x00\x00"


class ResponseStream(Stream):
    """Responses of one connection as a stream of frames."""

    __slots__ = ("watcher",)

    def __init__(self, watcher: Watcher) -> None:
        super().__init__()
        self.watcher = watcher

    def look(self, frame: Arriving, now: float) -> None:
        size = frame.size
        if not frame.total:
            frame.total = SIZE_BYTES + max(size, 0)
            if self.watcher.raw is not None and self.is_token(frame, size, self.watcher.raw):
                return
        if size < SMALLEST:
            self.lose()
        elif len(frame.data) < min(HEAD, frame.total):
            frame.ask(HEAD)
        else:
            self.find_request(frame)

    def is_token(self, frame: Arriving, size: int, raw: RawTokens) -> bool:
        if not raw.broker_sends_token(bool(self.watcher.open)):
            self.watcher.raw = None
            return False
        if 0 <= size <= MAX_TOKEN:
            raw.from_broker += 1
            frame.settle(0)
        else:
            self.lose()
        return True

    def find_request(self, frame: Arriving) -> None:
        watcher, data = self.watcher, frame.data
        entry = watcher.open.find(int.from_bytes(data[SIZE_BYTES:FIXED], "big", signed=True))
        if entry is None:
            watcher.unread += 1
            frame.settle(0)
            return
        found = watcher.slowly(entry)
        frame.owner = found
        wanted = found.wanted
        if found.seen is not None:
            found.seen.known_errors = in_order(error_at(wanted.key, wanted.version, data) or 0, ())
        if wanted.key == SASL_HANDSHAKE and not wanted.version and data[FIXED : FIXED + 2] == NO_ERROR:
            watcher.raw = RawTokens(watcher.mechanism)
        keep(watcher, frame, found, 1)

    def over(self, frame: Arriving, now: float) -> None:
        found = frame.owner
        if isinstance(found, Open):
            self.watcher.responses += 1
            if found.seen is not None:
                found.seen.response = frame_of(frame, found, 1, now)
            self.watcher.over(found, "answered", now)

    def cut(self, now: float) -> None:
        """Take a response under way as it is, since the connection has ended."""
        frame, self.frame = self.frame, None
        if frame is not None and not frame.settled and len(frame.data) >= FIXED:
            self.find_request(frame)
        if frame is not None and isinstance(frame.owner, Open):
            found = frame.owner
            if found.seen is not None:
                found.seen.response = frame_of(frame, found, 1, now)
            self.watcher.lost(found, now)

    def lose(self) -> None:
        self.lost, self.frame = True, None
        self.watcher.unread += 1
