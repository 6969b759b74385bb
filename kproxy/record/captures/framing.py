"""Framing of one direction of a Kafka connection, where bytes may be missing.

Strategy: a frame's length says where the next one begins, so bytes that are missing inside of a frame only shorten what
is kept of it. When the length field itself is missing, or makes no sense, the place is lost: bytes are passed over
until a segment begins like a frame, which most do, since clients and brokers write frames with one call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kproxy.protocol.framing import MAX_FRAME

from .tcp import StreamPiece

LENGTH = 4


class CutFrame(NamedTuple):
    """Frame of a capture: its size with the length field, what there is of it behind that, and when it came."""

    size: int
    data: bytes
    first: float
    last: float

    @property
    def whole(self) -> bool:
        return len(self.data) == self.size - LENGTH


Begins = Callable[[bytes], bool]
"""Test if bytes look like the beginning of a frame, with its length field."""


class Framer:
    """Framer of one direction of a connection.

    `most`: bytes that are kept of a frame. `lost_places`: how often the place was lost.
    """

    __slots__ = ("begins", "body", "first", "left", "lost", "lost_places", "most", "open", "prefix", "size")

    def __init__(self, begins: Begins, most: int, *, lost: bool) -> None:
        self.begins, self.most = begins, most
        self.lost = lost
        self.lost_places = 0
        self.prefix = b""
        """First bytes of a length field that is not all here."""
        self.left = 0
        """Bytes of the current frame that are still to come."""
        self.size = 0
        self.body = bytearray()
        self.open = False
        """No byte of the current frame is missing so far."""
        self.first = 0.0

    def receive(self, piece: StreamPiece) -> list[CutFrame]:
        data, missing, time = piece
        length = len(data) - LENGTH
        plain = not (self.left or self.lost or missing or self.prefix) and 0 <= length <= self.most
        if plain and length == int.from_bytes(data[:LENGTH], "big"):  # a segment that is one frame, as most are
            return [CutFrame(LENGTH + length, data[LENGTH:], time, time)]
        if self.lost:
            if not self.begins(data):
                return []
            self.lost = False
        frames: list[CutFrame] = []
        pos = self._go_on(data, time, frames) if self.left else 0
        end = len(data)
        while pos < end and not self.lost:
            if self.prefix or end - pos < LENGTH:
                pos = self._length(data, pos, time, frames)
                continue
            size = int.from_bytes(data[pos : pos + LENGTH], "big", signed=True)
            after = pos + LENGTH + size
            if 0 <= size <= self.most and after <= end:
                frames.append(CutFrame(LENGTH + size, data[pos + LENGTH : after], time, time))
                pos = after
            else:
                pos = self._begin(size, data, pos + LENGTH, time, time, frames)
        if missing:
            self._miss(missing, time, frames)
        return frames

    def _length(self, data: bytes, pos: int, time: float, frames: list[CutFrame]) -> int:
        """Take the next bytes of a length field that comes in pieces."""
        if not self.prefix:
            self.first = time
        take = LENGTH - len(self.prefix)
        self.prefix += data[pos : pos + take]
        if len(self.prefix) < LENGTH:
            return len(data)
        size = int.from_bytes(self.prefix, "big", signed=True)
        self.prefix = b""
        return self._begin(size, data, pos + take, self.first, time, frames)

    def _begin(self, size: int, data: bytes, pos: int, first: float, time: float, frames: list[CutFrame]) -> int:
        if not 0 <= size <= MAX_FRAME:
            self._lose()
            return len(data)
        self.size, self.left, self.first, self.open = size + LENGTH, size, first, True
        self.body = bytearray()
        if size:
            return self._go_on(data, time, frames, pos)
        frames.append(CutFrame(LENGTH, b"", first, time))
        return pos

    def _go_on(self, data: bytes, time: float, frames: list[CutFrame], pos: int = 0) -> int:
        take = min(self.left, len(data) - pos)
        if self.open:
            room = self.most - len(self.body)
            self.body += data[pos : pos + min(take, room)]
            self.open = take <= room
        self.left -= take
        if not self.left:
            self._over(time, frames)
        return pos + take

    def _over(self, time: float, frames: list[CutFrame]) -> None:
        frames.append(CutFrame(self.size, bytes(self.body), self.first, time))
        self.body = bytearray()

    def _miss(self, missing: int, time: float, frames: list[CutFrame]) -> None:
        if self.lost:
            return
        self.open = False
        if self.left:
            taken = min(self.left, missing)
            self.left -= taken
            missing -= taken
            if not self.left:
                self._over(time, frames)
        if missing:
            self._lose()

    def _lose(self) -> None:
        self.lost = True
        self.lost_places += 1
        self.prefix = b""
        self.left = 0
