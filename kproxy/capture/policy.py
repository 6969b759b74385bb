"""Policy of one capture: how much of a frame it keeps.

Strategy: always a beginning of it, so that what is there is true, and the packet says how long it was. Credentials are
never in what an observer hands out; where it says that it has withheld a body, the header alone is kept here, so that
two mistakes are needed to show one. What it put in the place of config values is not written: such a frame ends before
the first of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from struct import pack
from typing import Literal

from kproxy.errors import DecodeError
from kproxy.observe.credentials import CONFIG_VALUES, REQUEST, RESPONSE, value_spans
from kproxy.observe.exchange import Depth, Form, Frame, ObservedExchange
from kproxy.wire.codec.structs import header_version
from kproxy.wire.scan.head import body_start

Payload = Literal["none", "head", "full"]
CaptureSide = Literal["client", "broker", "both"]
"""Side of the proxy whose frames are captured, or read back."""
HEAD = 512
"""Bytes of `head`: enough for the topics of most requests, and for the names of most groups."""
LONGEST_HEADER = 1024
"""Bytes that are kept of a header; client ids may be longer, and are not."""


@dataclass(frozen=True, slots=True)
class Policy:
    """Policy of a capture.

    `payload`: none, only headers; head, so many bytes from the header on; full, all that the observer keeps.
    """

    payload: Payload = "head"
    head: int = HEAD

    @property
    def depth(self) -> Depth:
        """Return how much of a frame an observer has to keep for this policy."""
        return Depth.COUNT if self.payload == "none" else Depth.FULL

    def most(self, frame: Frame) -> int:
        """Return the number of bytes of the frame that are kept at most."""
        longest = {"none": LONGEST_HEADER, "head": max(self.head, LONGEST_HEADER), "full": len(frame.data)}
        return max(longest[self.payload], LONGEST_HEADER)

    def kept(self, seen: ObservedExchange, frame: Frame, *, response: bool) -> bytes:
        """Return the bytes behind the frame's length field that go into the file."""
        if not frame.data or frame.form is Form.NONE:
            return known_header(seen, response=response)[: min(frame.size - 4, LONGEST_HEADER)]
        end = len(frame.data) if self.payload == "full" else self.head
        if frame.withheld == CONFIG_VALUES and self.payload != "none":
            return frame.data[: min(end, first_value(seen, frame.data, response=response))]
        if self.payload == "none" or frame.withheld or frame.form is Form.SKETCH:
            end = min(header_end(seen, frame.data, response=response), LONGEST_HEADER)
        return frame.data[:end]


def known_header(seen: ObservedExchange, *, response: bool) -> bytes:
    """Return the beginning of a frame's header, made from what is known of it without its bytes."""
    if response:
        return pack(">i", seen.correlation_id)
    fixed = pack(">hhi", seen.key, seen.version, seen.correlation_id)
    if seen.client_id is None:
        return fixed
    name = seen.client_id.encode()
    return fixed + pack(">h", len(name)) + name


def header_end(seen: ObservedExchange, data: bytes, *, response: bool) -> int:
    """Return the offset at which the body begins; if it cannot be told, the end of the fixed part."""
    direction = "response" if response else "request"
    form = version_of_header(seen.key, seen.version, direction)
    for candidate in range(form, -1, -1):  # without tags that cannot be read, then without a client id
        end = body_start(data, 0, len(data), candidate, direction)
        if end is not None:
            return end
    return len(data)


def first_value(seen: ObservedExchange, data: bytes, *, response: bool) -> int:
    """Return the offset of the first withheld value; if it cannot be told, the end of the header."""
    spans = value_spans(data, seen.key, seen.version, RESPONSE if response else REQUEST)
    return spans[0][0] if spans else header_end(seen, data, response=response)


@cache
def version_of_header(key: int, version: int, direction: str) -> int:
    """Return the header's version; for APIs that the table lacks 0, which has no field that could be misread."""
    try:
        return header_version(key, version, direction)
    except DecodeError:
        return 0
