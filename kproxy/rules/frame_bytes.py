"""Frames as bytes, size in front: where their body begins, and how they are cut, lengthened and spoilt."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from kproxy.rules.exchange import Exchange
from kproxy.wire.breath import FEW, breathe, each
from kproxy.wire.head import body_start
from kproxy.wire.headers import header_version

if TYPE_CHECKING:
    from kproxy.rules.kinds.base import Direction

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
    places = list(range(start * 8, end * 8)) if (end - start) * 8 <= bits else _draw(start * 8, end * 8, bits, random)
    spoilt = bytearray(data)
    for place in each(places):
        spoilt[place >> 3] ^= 0x80 >> (place & 7)
    return bytes(spoilt)


def _draw(start: int, end: int, count: int, random: Random) -> set[int]:
    places: set[int] = set()
    while len(places) < count:
        if not len(places) % FEW:
            breathe()
        places.add(start + int(random.random() * (end - start)))  # random() alone is the same in every Python
    return places
