"""TCP segments of packets, and the ordered stream of one direction; any byte may be missing.

Segments: the link type gives the offset of the IP header; the rest is IPv4 or IPv6. The lengths in the headers show the
uncaptured part of a segment: `size` counts it, `data` lacks it. IP fragments are not reassembled: hosts do not fragment
TCP (path MTU discovery), and a fragment counts as not captured.

Streams: a segment that continues the stream is yielded at once, a repeated one is dropped, and an early one waits,
within bounds of time, bytes and number. After that, the bytes before it count as not captured, and a piece contains the
number of missing bytes. Sequence numbers have 32 bits and wrap (RFC 9293, section 3.4).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from struct import Struct
from typing import NamedTuple

NULL, ETHERNET, RAW_BSD, RAW_OPENBSD, RAW, LOOP, SLL, IPV4, IPV6, SLL2 = 0, 1, 12, 14, 101, 108, 113, 228, 229, 276
IP_AT = {NULL: 4, RAW_BSD: 0, RAW_OPENBSD: 0, RAW: 0, LOOP: 4, SLL: 16, IPV4: 0, IPV6: 0, SLL2: 20}
"""Offset of the IP header by link type, except for Ethernet."""
VLAN = frozenset((0x8100, 0x88A8, 0x9100))
TCP, FRAGMENT = 6, 44
EXTENSIONS = frozenset((0, 43, 60, 135))
"""IPv6 headers before TCP: hop-by-hop, routing, destination, mobility."""
FIN, SYN, RST, ACK = 1, 2, 4, 16

_IPV4 = Struct(">BBHHHBBH4s4s").unpack_from
_IPV6 = Struct(">IHBB16s16s").unpack_from
_TCP = Struct(">HHIIBB").unpack_from
_SHORT = Struct(">H").unpack_from


class Segment(NamedTuple):
    """TCP segment of a packet. Addresses as in the packet, 4 or 16 bytes. `data` is what was kept of `size` bytes."""

    source: bytes
    source_port: int
    target: bytes
    target_port: int
    sequence: int
    acknowledged: int
    flags: int
    data: bytes
    size: int


def segment_of(link: int, data: bytes, length: int) -> Segment | None:
    """Return the segment in a packet; None if it is not TCP, a fragment, or cut before the end of its headers.

    `length`: bytes of the whole packet.
    """
    at = IP_AT.get(link)
    if at is None:
        at = _after_ethernet(data) if link == ETHERNET else None
    elif link in (SLL, SLL2) and len(data) > at and _SHORT(data, 14 if link == SLL else 0)[0] in VLAN:
        at += 4
    if at is None or len(data) < at + 20:
        return None
    version = data[at] >> 4
    if version == 4:
        return _in_ipv4(data, at, length)
    return _in_ipv6(data, at, length) if version == 6 and len(data) >= at + 40 else None


def _after_ethernet(data: bytes) -> int | None:
    at = 12
    while len(data) >= at + 4 and _SHORT(data, at)[0] in VLAN:
        at += 4
    return at + 2 if len(data) >= at + 2 and _SHORT(data, at)[0] in (0x0800, 0x86DD) else None


def _in_ipv4(data: bytes, at: int, length: int) -> Segment | None:
    first, _, total, _, fragment, _, protocol, _, source, target = _IPV4(data, at)
    if protocol != TCP or fragment & 0x3FFF:
        return None
    end = at + total if total else length  # 0: longer than 65,535, as segmentation offload makes them
    return _tcp(data, at + (first & 15) * 4, min(end, length), source, target)


def _in_ipv6(data: bytes, at: int, length: int) -> Segment | None:
    _, payload, following, _, source, target = _IPV6(data, at)
    end = at + 40 + payload if payload else length
    pos = at + 40
    while following in EXTENSIONS and len(data) >= pos + 2:
        following, pos = data[pos], pos + (data[pos + 1] + 1) * 8
    return _tcp(data, pos, min(end, length), source, target) if following == TCP else None


def _tcp(data: bytes, at: int, end: int, source: bytes, target: bytes) -> Segment | None:
    if len(data) < at + 14:
        return None
    source_port, target_port, sequence, acknowledged, offset, flags = _TCP(data, at)
    start = at + (offset >> 4) * 4
    size = end - start
    if size < 0:
        return None
    return Segment(source, source_port, target, target_port, sequence, acknowledged, flags, data[start:end], size)


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
        ahead = self._ahead(sequence)
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
            sequence = min(self.waiting, key=self._ahead)
            past = -self._ahead(sequence)
            if past < 0:
                return
            data, missing, time = self.waiting.pop(sequence)
            self.waiting_bytes -= len(data)
            if len(data) + missing > past:
                yield self._pass(data[past:], len(data) + missing - past, time)

    def _ahead(self, sequence: int) -> int:
        """Bytes from the next expected one to `sequence`; negative for bytes that have passed."""
        return (sequence - self.next + HALF) % WHOLE - HALF
