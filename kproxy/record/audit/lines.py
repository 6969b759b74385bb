"""Encoding of events as lines, and of the texts and times in them: a line is a CloudEvents 1.0 JSON object.

Strategy: only the data is encoded, by msgspec. The envelope of a type is constant except for the number and the time.
It is joined from bytes, and the text of the time is formatted once a second. JSON escapes control characters. So a line
contains no other newline and no NUL, which recovery relies on.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache

import msgspec

from kproxy.record.events.column import EventData

LONGEST = 500
"""Characters of a text. Topics have at most 249; a group id or a broker's message may be anything, and a line is to be
of bounded size."""

MICROSECONDS = 1_000_000
FIRST, LAST = -30_610_224_000, 253_402_300_799
"""Seconds since 1970 of the years 1000 and 9999: RFC 3339 has four digits, and damaged captures contain other times."""


LINE_START = b'{"specversion":"1.0","id":"'
"""Start of each line; the number follows immediately."""

_encode = msgspec.json.Encoder().encode
_LINE = LINE_START + b'%d","source":%b.%06dZ","datacontenttype":"application/json","data":%b}\n'
_ENCODED_LINE = LINE_START + b'%d","source":%b%b","datacontenttype":"application/json","data":%b}\n'
SECONDS_END = len("2026-11-21T10:00:00")


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


class EventEncoder:
    """Encoder of the events of one source, numbered from 1 on. Not for several threads at once."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.last_id = 0
        """Number of the last event, also of one that could not be encoded."""
        self.day = ""
        """UTC date of the last line, YYYY-MM-DD."""
        self._second = -1
        self._stamp = b""
        self._heads: dict[str, bytes] = {}

    def line(self, type_name: str, time: float, data: EventData) -> bytes:
        """Return the event's line.

        The number is used up even if data or time cannot be written, which raises TypeError, ValueError, OverflowError,
        OSError or RecursionError: readers see a gap.
        """
        self.last_id = number = self.last_id + 1
        second, micro = divmod(round(time * MICROSECONDS), MICROSECONDS)
        if second != self._second:
            self._new_second(second)
        head = self._heads.get(type_name) or self._head(type_name)
        return _LINE % (number, head, micro, _encode(data))

    def encoded_line(self, type_name: str, time: bytes, data: bytes) -> bytes:
        """Return the line of an event with a time in RFC 3339 and data in JSON; otherwise like `line`."""
        self.last_id = number = self.last_id + 1
        if time[:SECONDS_END] != self._stamp:
            self._heads.clear()
            self._second, self._stamp, self.day = -1, time[:SECONDS_END], time[:10].decode()
        head = self._heads.get(type_name) or self._head(type_name)
        return _ENCODED_LINE % (number, head, time[SECONDS_END:], data)

    def _new_second(self, second: int) -> None:
        text = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        self._heads.clear()
        self._second, self._stamp, self.day = second, text.encode(), text[:10]

    def _head(self, type_name: str) -> bytes:
        head = _encode(self.source) + b',"type":' + _encode(type_name) + b',"time":"' + self._stamp
        self._heads[type_name] = head
        return head


def id_of(line: bytes) -> int:
    """Return the number of a line that `EventEncoder` wrote. Raises ValueError for any other."""
    if not line.startswith(LINE_START):
        raise ValueError(f"begins with {line[:40]!r}, expected {LINE_START!r}")
    return int(line[len(LINE_START) : line.index(b'"', len(LINE_START))])
