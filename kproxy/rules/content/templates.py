"""Templates of header values: text with names in braces, such as `{principal}`.

`{{` and `}}` are braces. A template of one message and partition is filled once; only `{traceparent}` differs for each
record (W3C Trace Context, version 00).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from os import urandom
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kproxy.rules.bodies import PartitionBody
    from kproxy.rules.exchange import Exchange

NAMES = (
    "principal", "client_id", "client_address", "listener", "cluster", "topic", "partition", "now", "now_ms",
    "traceparent",
)  # fmt: skip
TRACEPARENT = "traceparent"
LONGEST = 1000
"""Characters of a template."""
TOKEN = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  # written with a Z
RANDOM_BYTES = 24
RANDOM_DIGITS, MOST_RANDOM = 14, 1 << 56
"""Hex digits at the end of a trace id that are random (W3C Trace Context Level 2): by them all agree who is sampled."""


class Template:
    """Text with names in braces. Raises ValueError for an unknown name and for a single brace."""

    __slots__ = ("names", "pieces", "text")

    def __init__(self, text: str) -> None:
        if len(text) > LONGEST:
            raise ValueError(f"expected a template of at most {LONGEST} characters, got {len(text)}")
        self.text = text
        self.pieces: list[tuple[str, str | None]] = []  # texts, each with the name that follows it
        before, position = "", 0
        for found in TOKEN.finditer(text):
            token, name = found[0], found[1]
            before += text[position : found.start()]
            position = found.end()
            if token in ("{{", "}}"):
                before += token[0]
            elif name in NAMES:
                self.pieces.append((before, name))
                before = ""
            elif name is None:
                raise ValueError(f'expected {{name}}, or {{{{ and }}}} for braces, got "{token}" in "{text}"')
            else:
                raise ValueError(f"expected one of {', '.join(NAMES)}, got {{{name}}}")
        self.pieces.append((before + text[position:], None))
        self.names = frozenset(name for _, name in self.pieces if name is not None)

    def fill(self, value: Callable[[str], str | None]) -> tuple[bytes, bool]:
        """Return the text with the values of all names, and True if each value is known. An unknown value is empty."""
        parts, known = [], True
        for before, name in self.pieces:
            parts.append(before)
            if name is not None:
                found = value(name)
                known &= found is not None
                parts.append(found or "")
        return "".join(parts).encode("utf-8", "surrogateescape"), known


def template_values(exchange: Exchange, place: PartitionBody, now: float) -> dict[str, str | None]:
    """Return the values of all names but `traceparent` for a partition; None: unknown. `now`: monotonic seconds."""
    facts, seconds = exchange.connection.facts, exchange.connection.unix_time(now)
    return {
        "principal": exchange.principal,
        "client_id": exchange.client_id,
        "client_address": facts.client_address,
        "listener": facts.listener,
        "cluster": facts.cluster,
        "topic": place.entity.topic,
        "partition": str(place.entity.partition),
        "now": time_text(seconds),
        "now_ms": str(int(seconds * 1000)),
    }


def time_text(seconds: float) -> str:
    """Return a Unix time as ISO 8601 in UTC with milliseconds."""
    return (EPOCH + timedelta(milliseconds=int(seconds * 1000))).isoformat(timespec="milliseconds") + "Z"


def is_chosen(trace_id: str, fraction: float) -> bool:
    """Return True if a trace is among this fraction of all: the same for all who ask by the same rule."""
    return int(trace_id[-RANDOM_DIGITS:], 16) >= (1 - fraction) * MOST_RANDOM


def new_traceparent(sample: float = 1.0) -> bytes:
    """Return a `traceparent` with a new trace id and a new parent id. `sample`: fraction with the flag `sampled`."""
    while True:
        digits = urandom(RANDOM_BYTES).hex()
        trace, parent = digits[:32], digits[32:]
        if trace.strip("0") and parent.strip("0"):  # zeros are invalid
            return f"00-{trace}-{parent}-{'01' if sample >= 1 or is_chosen(trace, sample) else '00'}".encode()
