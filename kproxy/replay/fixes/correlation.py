"""Correlation ids, which every link counts by itself.

A link carries requests of the replay itself beside recorded ones, may carry those of a request that is sent again, and
recorded connections may have used an id twice. A response is tied to its request by this number alone, so each link
numbers from 1 on, and the report goes by exchanges, which have both ids. The number stands at the same place in every
header (bytes 4 to 8 of a request, 0 to 4 of a response), so nothing is decoded for it.
"""

from __future__ import annotations

REQUEST_AT, RESPONSE_AT = 4, 0
LAST = 2**31 - 1


def renumbered(frame: bytes, number: int) -> bytes:
    """Return a request frame, without its length, with this correlation id."""
    return frame[:REQUEST_AT] + number.to_bytes(4, "big") + frame[REQUEST_AT + 4 :]


def answered(frame: bytes, number: int) -> bytes:
    """Return a response frame, without its length, with this correlation id."""
    return number.to_bytes(4, "big", signed=True) + frame[RESPONSE_AT + 4 :]


def number_of(response: bytes) -> int:
    """Return the correlation id of a response frame. Raises ValueError if it is too short to have one."""
    if len(response) < RESPONSE_AT + 4:
        raise ValueError(f"a response of {len(response)} bytes, expected at least {RESPONSE_AT + 4}")
    return int.from_bytes(response[:4], "big", signed=True)


def following(number: int) -> int:
    """Return the next correlation id; they stay above 0."""
    return 1 if number == LAST else number + 1
