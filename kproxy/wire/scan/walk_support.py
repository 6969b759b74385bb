"""Functions that compiled walks call: tables for lengths of one byte, and the rare cases that are not worth lines in
every walk.

Strategy. Nearly every compact length, count and tag is one byte. `near(size)[b]` is how far a value whose compact
length is the byte `b` reaches, its length included, for elements of `size` bytes; 0 says that the length goes on after
that byte. So a walk skips a string by `p += near[buf[p]] or far_string(buf, p)`, and null needs no branch.

Nothing here checks that a value ends inside the frame: positions only grow, so one look at the end of the walk does.
"""

from __future__ import annotations

from functools import cache

from kproxy.wire.breath import steps
from kproxy.wire.primitives import MAX_LENGTH, MAX_STRING, Buffer, read_uvarint


class Bad(Exception):
    """Failure of compiled code at bytes that do not fit; `trace.py` then finds out what and where."""


class TooManyHits(Bad):
    """Refusal of bytes that may be good, but in which more is wanted than a walk will list."""


MOST_HITS = 500_000
"""Hits of one message: some 60 MB and a third of a second. The Metadata of 100,000 renamed topics has 300,000."""


@cache
def near(size: int) -> tuple[int, ...]:
    """Return the bytes from the length's byte to the end of the value, by that byte; 0 for the bytes that do not end a
    varint."""
    return (1, *(1 + size * (byte - 1) for byte in range(1, 128)), *(0 for _ in range(128)))


def far(buf: Buffer, at: int, size: int) -> int:
    """Return the bytes from the length to the end of the value, for a length that takes more than one byte."""
    raw, after = read_uvarint(buf, at)
    if raw > MAX_LENGTH:
        raise Bad
    return after - at + max(raw - 1, 0) * size


def far_string(buf: Buffer, at: int) -> int:
    """Return the bytes from the length to the end of a string whose length takes more than one byte and is limited."""
    raw, after = read_uvarint(buf, at)
    if raw - 1 > MAX_STRING:
        raise Bad
    return after - at + max(raw - 1, 0)


def skip_tags(buf: Buffer, p: int, end: int) -> int:
    """Return the position after a tag buffer in which nothing is wanted."""
    number, p = read_uvarint(buf, p)
    if number + number > end - p:  # a tag and its size take a byte each
        raise Bad
    for _ in steps(number):
        _, p = read_uvarint(buf, p)
        size, p = read_uvarint(buf, p)
        p += size
    return p
