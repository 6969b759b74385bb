"""Encoding of the requests and responses that a test file describes into frames."""

from __future__ import annotations

from typing import Any

from kproxy.errors import EncodeError
from kproxy.rules.document.source import Source, Where
from kproxy.testing.dialogue import sized
from kproxy.wire import Message, encode
from kproxy.wire.table import schema

from .model import SentAnswer, SentRequest
from .values import Reader

CORRELATION = slice(4, 8)
"""Position of the correlation id in a request without its length in front."""


def request(source: Source, sent: SentRequest, at: Where, correlation: int) -> bytes:
    """Return the request as a frame with its length. Raises EncodeError for a value that does not fit."""
    if sent.hex is not None:
        return from_hex(sent.hex, correlation)
    body = Reader(source).body(sent.key, sent.number, "request", sent.body, at)
    header = {"request_api_key": sent.key, "request_api_version": sent.number, "correlation_id": correlation}
    return framed(sent.key, sent.number, header | {"client_id": sent.client_id}, body)


def from_hex(text: str, correlation: int) -> bytes:
    """Return a frame that was captured, with the correlation id that it has in this dialogue. Raises EncodeError for a
    frame that is too short."""
    frame = bytearray.fromhex(text)
    if len(frame) >= 4 and int.from_bytes(frame[:4], "big") == len(frame) - 4:
        del frame[:4]
    if len(frame) < 10:
        raise EncodeError(f"a request has at least 10 bytes, found {len(frame)}")
    frame[CORRELATION] = correlation.to_bytes(4, "big")
    return sized(bytes(frame))


def answer(source: Source, answered: SentAnswer, at: Where, key: int, version: int, correlation: int) -> bytes:
    """Return the response as a frame with its length. Raises EncodeError for a value that does not fit."""
    body = Reader(source).body(key, version, "response", answered.body, at)
    return framed(key, version, {"correlation_id": correlation}, body)


def framed(key: int, version: int, header: dict[str, Any], body: dict[str, Any]) -> bytes:
    """Return a frame with its length; fields that are left out get their defaults."""
    return sized(encode(Message(schema.load(key), version, header, body)))
