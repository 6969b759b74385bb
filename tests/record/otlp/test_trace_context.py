"""Trace contexts in record headers, good ones and hostile ones."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.record.otlp import trace_sink
from kproxy.record.otlp.trace_sink import (
    MAX_HEADER_LENGTH,
    TraceContext,
    context_in,
    parse_b3,
    parse_traceparent,
)
from kproxy.rules.kinds.base.content_rule import is_chosen

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
GOOD = f"00-{TRACE}-{SPAN}-01"
SAMPLED, NOT_SAMPLED = TraceContext(TRACE, SPAN, True), TraceContext(TRACE, SPAN, False)


@pytest.mark.parametrize(
    ("text", "context"),
    [
        (GOOD, SAMPLED),
        (f"00-{TRACE}-{SPAN}-00", NOT_SAMPLED),
        (f"00-{TRACE}-{SPAN}-ff", SAMPLED),
        (f"00-{TRACE}-{SPAN}-02", NOT_SAMPLED),
        (f"01-{TRACE}-{SPAN}-01-later", SAMPLED),
        (f"cc-{TRACE}-{SPAN}-01", SAMPLED),
        (f"ff-{TRACE}-{SPAN}-01", None),
        (f"00-{TRACE}-{SPAN}-01-more", None),
        (f"cc-{TRACE}-{SPAN}-01.more", None),
        (f"00-{'0' * 32}-{SPAN}-01", None),
        (f"00-{TRACE}-{'0' * 16}-01", None),
        (GOOD.upper(), None),
        (f"00-{TRACE[:-1]}-{SPAN}-01", None),
        (f"00-{TRACE[:-1]}g-{SPAN}-01", None),
        (GOOD + "\n", None),
        (" " + GOOD, None),
        (GOOD + "\x00", None),
        ("", None),
        ("00", None),
        ("00-" * 5000, None),
        ("٠٠" + GOOD[2:], None),
    ],
)
def test_traceparent(text: str, context: TraceContext | None) -> None:
    """What is exactly as W3C has it counts, and nothing else."""
    assert parse_traceparent(text.encode()) == context


@pytest.mark.parametrize(
    ("text", "context"),
    [
        (f"{TRACE}-{SPAN}-1", SAMPLED),
        (f"{TRACE}-{SPAN}-d-{SPAN}", SAMPLED),
        (f"{TRACE}-{SPAN}-0", NOT_SAMPLED),
        (f"{TRACE[16:]}-{SPAN}-1", TraceContext("0" * 16 + TRACE[16:], SPAN, True)),
        (f"{TRACE}-{SPAN}", None),
        (f"{TRACE[:20]}-{SPAN}-1", None),
        ("0", None),
        ("1", None),
        (f"{'0' * 16}-{SPAN}-1", None),
        (f"{TRACE}-{SPAN}-1-x", None),
    ],
)
def test_b3(text: str, context: TraceContext | None) -> None:
    """The single header; one that leaves it open whether the trace is recorded is as none."""
    assert parse_b3(text.encode()) == context


def test_headers() -> None:
    """The last of a name counts, traceparent before b3, and what is no context hides none."""
    b3: Any = (b"b3", f"{TRACE}-{'1' * 16}-1".encode())

    assert context_in([b3, (b"traceparent", GOOD.encode())]) == SAMPLED
    assert context_in([(b"traceparent", b"junk"), b3]) == TraceContext(TRACE, "1" * 16, True)
    assert context_in([(b"traceparent", GOOD.encode()), (b"traceparent", b"junk")]) is None
    assert context_in([(b"traceparent", None), (b"TRACEPARENT", GOOD.encode()), (b"\x80", b"")]) is None


def test_trace_context_in_a_long_header_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[int] = []
    monkeypatch.setattr(trace_sink, "parse_traceparent", lambda value: parsed.append(len(value)))
    monkeypatch.setattr(trace_sink, "parse_b3", lambda value: parsed.append(len(value)))
    assert context_in([(b"traceparent", b"0" * (1 << 20)), (b"b3", b"a" * (MAX_HEADER_LENGTH + 1))]) is None
    assert parsed == [0, 0]


def test_a_part_of_all_traces() -> None:
    """The digits that are random decide, so the same traces are chosen everywhere; 1 is all."""
    ids = [f"{number * 0x9E3779B97F4A7C15 % 2**128:032x}" for number in range(1, 4001)]

    assert all(is_chosen(one, 1.0) for one in (*ids, "0" * 31 + "1"))
    assert 0.08 < sum(is_chosen(one, 0.1) for one in ids) / len(ids) < 0.12
    assert {one for one in ids if is_chosen(one, 0.1)} <= {one for one in ids if is_chosen(one, 0.3)}
    assert is_chosen("0" * 18 + "f" * 14, 1e-9)
