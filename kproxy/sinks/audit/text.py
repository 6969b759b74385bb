"""Texts and times as they stand in events."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache

LONGEST = 500
"""Characters of a text. Topics have at most 249; a group id or a broker's message may be anything, and a line is to be
of bounded size."""

MICROSECONDS = 1_000_000
FIRST, LAST = -30_610_224_000, 253_402_300_799
"""Seconds since 1970 of the years 1000 and 9999, since RFC 3339 writes four digits; damaged captures tell of others."""


def plain(text: str | None) -> str | None:
    """Return a text that JSON can hold, None if it is null or empty.

    Bytes that were not UTF-8 become question marks, and what is too long ends in `…`.
    """
    if not text:
        return None
    if len(text) > LONGEST:
        text = text[: LONGEST - 1] + "…"
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def stamp(seconds: float) -> str:
    """Return seconds since 1970 as RFC 3339 in UTC with microseconds."""
    second, micro = divmod(round(seconds * MICROSECONDS), MICROSECONDS)
    return f"{whole_second(second)}.{micro:06d}Z"


def byte_stamp(seconds: float) -> bytes:
    """Return the `stamp` of seconds since 1970 as bytes."""
    second, micro = divmod(round(seconds * MICROSECONDS), MICROSECONDS)
    return b"%b.%06dZ" % (whole_second_bytes(second), micro)


@lru_cache(maxsize=16)
def whole_second_bytes(second: int) -> bytes:
    return whole_second(second).encode()


@lru_cache(maxsize=16)
def whole_second(second: int) -> str:
    return datetime.fromtimestamp(min(max(second, FIRST), LAST), UTC).strftime("%Y-%m-%dT%H:%M:%S")


def milliseconds(seconds: float) -> float:
    """Return seconds as ms, rounded to microseconds; never below zero, as two clocks may disagree."""
    return max(0.0, round(seconds * 1000, 3))
