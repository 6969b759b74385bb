"""Trace contexts in record headers: W3C's `traceparent`, and the single header `b3` of Zipkin.

Strategy: a header is what somebody wrote, so only what is exactly as the specifications have it counts; anything else
is as if it were not there. Of several headers of one name the last counts, as in Kafka's own clients.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

LONGEST = 512
"""Bytes of a header that are looked at: a later version of traceparent may be longer than this one's 55."""
_TRACEPARENT = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-[\x21-\x7e]*)?")
_B3 = re.compile(rb"([0-9a-f]{16}|[0-9a-f]{32})-([0-9a-f]{16})-([01d])(?:-[0-9a-f]{16})?")
NO_TRACE, NO_SPAN = b"0" * 32, b"0" * 16
SAMPLED = 1
RANDOM_DIGITS, MOST_RANDOM = 14, 1 << 56
"""Hex digits at the end of a trace id that are random (W3C Trace Context Level 2): by them all agree who is sampled."""


class TraceContext(NamedTuple):
    """Trace and span that a record was written in, as hex digits, and whether that span is recorded."""

    trace_id: str
    span_id: str
    sampled: bool


def context_in(headers: Iterable[tuple[str, bytes | None]]) -> TraceContext | None:
    """Return the context in a record's headers, that of `traceparent` before that of `b3`; None if there is none."""
    found: dict[str, bytes] = {}
    for name, value in headers:
        if name in ("traceparent", "b3") and value is not None and len(value) <= LONGEST:
            found[name] = bytes(value)
    return parse_traceparent(found.get("traceparent", b"")) or parse_b3(found.get("b3", b""))


def parse_traceparent(value: bytes) -> TraceContext | None:
    """Return the context of a `traceparent` (W3C Trace Context §3.2), of later versions what is alike."""
    match = _TRACEPARENT.fullmatch(value)
    if match is None:
        return None
    version, trace, span, flags, more = match.groups()
    if version == b"ff" or (version == b"00" and more is not None):
        return None
    return _context(trace, span, bool(int(flags, 16) & SAMPLED))


def parse_b3(value: bytes) -> TraceContext | None:
    """Return the context of a `b3` header that says whether the trace is recorded; `d` is one that is debugged."""
    match = _B3.fullmatch(value)
    if match is None:
        return None
    trace, span, sampled = match.groups()
    return _context(trace.rjust(32, b"0"), span, sampled != b"0")


def _context(trace: bytes, span: bytes, sampled: bool) -> TraceContext | None:
    if NO_TRACE == trace or NO_SPAN == span:
        return None
    return TraceContext(trace.decode(), span.decode(), sampled)


def is_chosen(trace_id: str, fraction: float) -> bool:
    """Return True if a trace is among this fraction of all: the same for all who ask by the same rule."""
    return int(trace_id[-RANDOM_DIGITS:], 16) >= (1 - fraction) * MOST_RANDOM
