"""Frames from what a test says is sent."""

from __future__ import annotations

from kproxy.errors import EncodeError
from kproxy.rules.source import Source, Where
from kproxy.testing import dialogue

from .model import Answered, Sent
from .values import Reader

CORRELATION = slice(4, 8)
"""Where a request without its length has its correlation id."""


def request(source: Source, sent: Sent, at: Where, correlation: int) -> bytes:
    """The frame with its length. Raises EncodeError for a value that does not fit."""
    if sent.hex is not None:
        return from_hex(sent.hex, correlation)
    body = Reader(source).body(sent.key, sent.number, "request", sent.body, at)
    return dialogue.request(sent.key, sent.number, correlation, sent.client_id, **body)


def from_hex(text: str, correlation: int) -> bytes:
    """A frame that was captured, with the correlation id that it has in this dialogue."""
    frame = bytearray.fromhex(text)
    if len(frame) >= 4 and int.from_bytes(frame[:4], "big") == len(frame) - 4:
        del frame[:4]
    if len(frame) < 10:
        raise EncodeError(f"a request has at least 10 bytes, found {len(frame)}")
    frame[CORRELATION] = correlation.to_bytes(4, "big")
    return dialogue.sized(bytes(frame))


def answer(source: Source, answered: Answered, at: Where, key: int, version: int, correlation: int) -> bytes:
    """The frame with its length. Raises EncodeError for a value that does not fit."""
    body = Reader(source).body(key, version, "response", answered.body, at)
    return dialogue.response(key, version, correlation, **body)
