"""Payloads of OTLP metrics, written field by field, as clients push them."""

from __future__ import annotations

from collections.abc import Mapping
from struct import pack


def varint(number: int) -> bytes:
    """Return a number as protobuf writes it."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def part(number: int, content: bytes) -> bytes:
    """Return a length-delimited field."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def flag(number: int, value: int) -> bytes:
    """Return a varint field."""
    return varint(number << 3) + varint(value)


def point(value: float, attributes: Mapping[str, str] | None = None) -> bytes:
    """Return a data point: an integer, or a double."""
    field, form = (6, "<q") if isinstance(value, int) else (4, "<d")
    number = varint(field << 3 | 1) + pack(form, value)
    pairs = (attributes or {}).items()
    return number + b"".join(part(7, part(1, key.encode()) + part(2, part(1, text.encode()))) for key, text in pairs)


def gauge(name: str, *points: bytes) -> bytes:
    """Return a metric that says how things stand."""
    return part(1, name.encode()) + part(5, b"".join(part(1, one) for one in points))


def counted(name: str, *points: bytes, temporality: int = 1, monotonic: int = 1) -> bytes:
    """Return a metric that says what was counted; temporality 1: since the last time, 2: in all."""
    content = b"".join(part(1, one) for one in points) + flag(2, temporality) + flag(3, monotonic)
    return part(1, name.encode()) + part(7, content)


def metrics_data(*metrics: bytes) -> bytes:
    """Return a payload with these metrics."""
    return part(1, part(1, b"") + part(2, b"".join(part(2, one) for one in metrics)))
