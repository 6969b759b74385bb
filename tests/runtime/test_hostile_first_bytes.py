"""Hostile first bytes of a connection: PROXY headers and ClientHellos of the greatest length, whole and cut.

The tests count executed lines, not time. Each byte that arrives may cause one more call of the parser.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kproxy.base.errors import InputError
from kproxy.runtime.io import sniff
from kproxy.runtime.listeners import sni_port
from tests.support.line_count import LineCount

MOST_LINES = 100_000
"""Lines of one call, some ten milliseconds."""


def hello(extensions: bytes) -> bytes:
    """Return a ClientHello with these extensions, in one record."""
    body = bytes(34) + b"\0" + b"\0\2\0\0" + b"\1\0" + len(extensions).to_bytes(2, "big") + extensions
    message = b"\x01" + len(body).to_bytes(3, "big") + body
    return b"\x16\x03\x01" + len(message).to_bytes(2, "big") + message


def records(message: bytes, size: int) -> bytes:
    parts = [message[at : at + size] for at in range(0, len(message), size)]
    return b"".join(b"\x16\x03\x01" + len(part).to_bytes(2, "big") + part for part in parts)


def proxy(values: bytes) -> bytes:
    """Return a PROXY header of version 2 over TCP4 with these values after the addresses."""
    return sniff.FIXED.pack(sniff.SIGNATURE, 0x21, 0x11, 12 + len(values)) + bytes(12) + values


ROOM = sniff.LONGEST - 28
NAME = b"\xff" * 16_000
WRONG_NAME = b"\0\0" + (len(NAME) + 5).to_bytes(2, "big") + b"\0\0\0" + len(NAME).to_bytes(2, "big") + NAME
CASES: dict[str, tuple[Callable[[bytes], Any], bytes]] = {
    "proxy values": (sniff.parse, proxy(b"\x04\0\0" * (ROOM // 3))),
    "proxy checksums": (sniff.parse, proxy(b"\x03\0\4abcd" * (ROOM // 7))),
    "proxy too long": (sniff.parse, proxy(bytes(60_000))),
    "proxy line": (sniff.parse, b"PROXY TCP4 " + b"1" * 10_000),
    "hello extensions": (sni_port.parse, hello(b"\0\7\0\0" * 4080)),
    "hello records": (sni_port.parse, records(hello(b"\0\7\0\0" * 4000)[5:], 1)),
    "hello long records": (sni_port.parse, records(hello(b"\0\7\0\0" * 4000)[5:], 300)),
    "hello wrong name": (sni_port.parse, hello(WRONG_NAME)),
}


def outcome(parse: Callable[[bytes], Any], data: bytes) -> Any:
    """Return the result of the parser, or the text of its error."""
    try:
        return parse(data)
    except InputError as error:
        return str(error)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("part", [1.0, 0.99, 0.5])
def test_hostile_first_bytes_take_few_lines(name: str, part: float) -> None:
    parse, data = CASES[name]
    with LineCount() as count:
        found = outcome(parse, data[: int(len(data) * part)])
    assert count.total <= MOST_LINES
    assert not isinstance(found, str) or 0 < len(found) <= 2000


@pytest.mark.parametrize("name", CASES)
def test_hostile_first_bytes_at_the_limit_are_not_awaited(name: str) -> None:
    parse, data = CASES[name]
    assert outcome(parse, (data + bytes(sni_port.LONGEST))[: sni_port.LONGEST]) is not None
