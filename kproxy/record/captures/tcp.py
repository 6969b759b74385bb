"""One direction of a TCP connection put in order: segments in, pieces of the stream out, with counts of missing bytes.

Strategy: what continues the stream goes out at once, what was there before is dropped, and what comes too early waits:
for so long, so much, or so many. Then what is before it was not captured and will not come, and a piece says how many
bytes are missing. Sequence numbers have 32 bits and wrap (RFC 9293, section 3.4).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

HALF, WHOLE = 1 << 31, 1 << 32
MOST_WAITING = 256
"""Segments that wait for an earlier one; on a real network a retransmission comes long before."""
MOST_WAITING_BYTES = 4 << 20
"""Bytes of segments that wait for an earlier one."""
LONGEST_WAIT = 3.0
"""Seconds of the capture's time; a first retransmission comes within one (RFC 6298)."""


class StreamPiece(NamedTuple):
    """Piece of a stream: its next bytes, and how many behind them are missing."""

    data: bytes
    missing: int
    time: float


class StreamDirection:
    """Stream of one side of a connection. `gaps`, `lost`: places where segments are missing, and their bytes."""

    __slots__ = ("gaps", "lost", "next", "since", "waiting", "waiting_bytes")

    def __init__(self) -> None:
        self.next = -1
        """Sequence number of the next byte; -1: not known yet."""
        self.waiting: dict[int, StreamPiece] = {}
        self.waiting_bytes = 0
        self.since = 0.0
        self.gaps = self.lost = 0

    def begin(self, sequence: int) -> None:
        self.next = (sequence + 1) % WHOLE

    def receive(self, sequence: int, data: bytes, size: int, time: float) -> Iterable[StreamPiece]:
        """Return the pieces that a segment gives: `data` is what was captured of `size` bytes from `sequence` on."""
        if self.next < 0:
            self.next = sequence
        if sequence == self.next and not self.waiting:
            self.next = (sequence + size) % WHOLE
            return (StreamPiece(data, size - len(data), time),)
        return self._receive_out_of_order(sequence, data, size, time)

    def _receive_out_of_order(self, sequence: int, data: bytes, size: int, time: float) -> Iterator[StreamPiece]:
        """Yield the pieces that a segment gives which is not just the next one."""
        ahead = (sequence - self.next) % WHOLE
        if ahead >= HALF:
            ahead -= WHOLE
        if ahead <= 0:
            if size + ahead > 0:
                yield self._pass(data[-ahead:], size + ahead, time)
                yield from self._continue()
        else:
            self._wait(sequence, data, size, time)
        if self.waiting and self._long_enough(time):
            yield from self.give_up()

    def give_up(self) -> Iterator[StreamPiece]:
        """Yield what waits, without what is missing before it. To be called at the end of the connection."""
        while self.waiting:
            sequence = min(self.waiting, key=self._ahead)
            missing = self._ahead(sequence)
            self.gaps += 1
            self.lost += missing
            self.next = sequence
            yield StreamPiece(b"", missing, self.waiting[sequence].time)
            yield from self._continue()

    def _ahead(self, sequence: int) -> int:
        return (sequence - self.next) % WHOLE

    def _pass(self, data: bytes, size: int, time: float) -> StreamPiece:
        self.next = (self.next + size) % WHOLE
        return StreamPiece(data, size - len(data), time)

    def _wait(self, sequence: int, data: bytes, size: int, time: float) -> None:
        known = self.waiting.get(sequence)
        if known is not None and len(known.data) + known.missing >= size:
            return
        if not self.waiting:
            self.since = time
        self.waiting_bytes += len(data) - (len(known.data) if known else 0)
        self.waiting[sequence] = StreamPiece(data, size - len(data), time)

    def _long_enough(self, time: float) -> bool:
        many = len(self.waiting) > MOST_WAITING or self.waiting_bytes > MOST_WAITING_BYTES
        return many or time - self.since > LONGEST_WAIT

    def _continue(self) -> Iterator[StreamPiece]:
        """Yield what waited for the last piece; parts of it may have come already."""
        while self.waiting:
            sequence = min(self.waiting, key=self._behind)
            past = -self._behind(sequence)
            if past < 0:
                return
            data, missing, time = self.waiting.pop(sequence)
            self.waiting_bytes -= len(data)
            if len(data) + missing > past:
                yield self._pass(data[past:], len(data) + missing - past, time)

    def _behind(self, sequence: int) -> int:
        ahead = (sequence - self.next) % WHOLE
        return ahead - WHOLE if ahead >= HALF else ahead
