"""Frames as bytes, size in front: where their body begins, and how they are cut, lengthened and spoilt."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from kproxy.rules.exchange import Exchange
from kproxy.wire.breath import FEW, breathe, each
from kproxy.wire.codec.structs import header_version
from kproxy.wire.scan.head import body_start

if TYPE_CHECKING:
    from .rule import Direction

SIZE = 4
"""Bytes of a frame's size."""


def body_at(frame: bytes, exchange: Exchange, direction: Direction) -> int:
    """Return the position at which the body begins; behind the frame when its header does not end."""
    version = header_version(exchange.api.key, exchange.version, direction)
    start = body_start(frame, SIZE, len(frame), version, direction)
    return len(frame) if start is None else start


def sized(content: bytes) -> bytes:
    """Return a frame: the content with its size in front."""
    return len(content).to_bytes(SIZE, "big") + content


def kept(length: int, size: int | None, fraction: float) -> int:
    """Return how many of `length` bytes stay: so many, or that part of them."""
    return min(size, length) if size is not None else int(length * fraction)


def flipped(data: bytes, start: int, end: int, bits: int, random: Random) -> bytes:
    """Return the data with other values for so many different bits of data[start:end], or for all of them if there are
    not so many."""
    spoilt = bytearray(data)
    first, count = start * 8, (end - start) * 8
    if count <= bits:
        for place in each(range(first, first + count)):
            spoilt[place >> 3] ^= 0x80 >> (place & 7)
        return bytes(spoilt)
    left = bits
    while left:
        if not left % FEW:
            breathe()
        place = first + int(random.random() * count)  # random() alone is the same in every Python
        at, bit = place >> 3, 0x80 >> (place & 7)
        if not (spoilt[at] ^ data[at]) & bit:  # a set of those that were drawn would take as long to free as to fill
            spoilt[at] ^= bit
            left -= 1
    return bytes(spoilt)
