"""Policy of one capture: the bytes that it keeps of a frame.

Strategy: a capture keeps the beginning of a frame, and the packet has the frame's length. An observer removes
credentials before a capture sees the frame. If it has withheld a body, only the header is written. If it has
overwritten config values, they are overwritten again here. So one defect alone shows no credential.

A sketch is not a beginning: it lacks the inside of record batches in the middle of the frame. So the file marks each
sketch, and only kproxy can read the fields that follow the first batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from struct import pack
from typing import Literal, NamedTuple

from kproxy.base.errors import DecodeError
from kproxy.protocol.codec.structs import header_version
from kproxy.protocol.framing import known_body_start
from kproxy.protocol.scan.sketch import Sketcher, decode_sketch, sketch
from kproxy.record.exchange import Depth, Form, Frame, ObservedExchange
from kproxy.record.observer.credentials import CONFIG_VALUES, REQUEST, RESPONSE, take_out
from kproxy.record.observer.response_errors import is_known

Payload = Literal["none", "head", "sketch", "full"]
CaptureSide = Literal["client", "broker", "both"]
"""Side of the proxy whose frames are captured or read."""
HEAD = 512
"""Bytes of `head`: enough for the topics of most requests, and for the names of most groups."""
LONGEST_HEADER = 1024
"""Bytes that are kept of a header; client ids may be longer, and are not."""


DEPTHS = {"none": Depth.COUNT, "head": Depth.FULL, "sketch": Depth.SKETCH, "full": Depth.FULL}
"""Amount of frames that an observer has to keep, by payload."""


class KeptBytes(NamedTuple):
    """Bytes of a frame that a capture keeps, without its length field; the frame's beginning unless it is a sketch."""

    data: bytes
    sketch: bool


@dataclass(frozen=True, slots=True)
class Policy:
    """Policy of a capture.

    `payload`: none, only headers; head, this many bytes from the header on; sketch, all fields, of record batches their
    headers; full, all that the observer keeps.
    """

    payload: Payload = "head"
    head: int = HEAD

    @property
    def depth(self) -> Depth:
        """Return how much of a frame an observer has to keep for this policy."""
        return DEPTHS[self.payload]

    def most(self, frame: Frame) -> int:
        """Return the number of bytes of the frame that are kept at most."""
        if self.payload in ("sketch", "full"):
            return max(len(frame.data), len(frame.sketch), LONGEST_HEADER)
        return LONGEST_HEADER if self.payload == "none" else max(self.head, LONGEST_HEADER)

    def written(self, seen: ObservedExchange, frame: Frame, *, response: bool) -> KeptBytes:
        """Return the bytes behind the frame's length field that go into the file, and what they are."""
        direction = RESPONSE if response else REQUEST
        if self.payload != "sketch" or frame.withheld or frame.form is Form.NONE:
            return KeptBytes(self.kept(seen, frame, response=response), False)
        if is_known(seen.key, seen.version):
            if sketch(seen.key, seen.version, direction) is None:  # it has no field for records
                return KeptBytes(frame.data, False)
            data = sketched(seen, frame, direction)
            if data is not None:
                return KeptBytes(data, len(data) < frame.size - 4)
        return KeptBytes(frame.data[: min(header_end(seen, frame.data, response=response), LONGEST_HEADER)], False)

    def kept(self, seen: ObservedExchange, frame: Frame, *, response: bool) -> bytes:
        """Return the bytes of the file that follow the frame's length field."""
        if not frame.data or frame.form is Form.NONE:
            return known_header(seen, response=response)[: min(frame.size - 4, LONGEST_HEADER)]
        end = self.head if self.payload == "head" else len(frame.data)
        direction = RESPONSE if response else REQUEST
        if frame.withheld == CONFIG_VALUES and frame.form is Form.WHOLE and self.payload != "none":
            return take_out(frame.data, seen.key, seen.version, direction)[0][:end]
        if self.payload == "none" or frame.withheld or frame.form is Form.SKETCH:
            end = min(header_end(seen, frame.data, response=response), LONGEST_HEADER)
        return frame.data[:end]


def known_header(seen: ObservedExchange, *, response: bool) -> bytes:
    """Return the beginning of a frame's header, made from its known fields without its bytes."""
    if response:
        return pack(">i", seen.correlation_id)
    fixed = pack(">hhi", seen.key, seen.version, seen.correlation_id)
    if seen.client_id is None:
        return fixed
    name = seen.client_id.encode()
    return fixed + pack(">h", len(name)) + name


def header_end(seen: ObservedExchange, data: bytes, *, response: bool) -> int:
    """Return the offset at which the body begins; if unknown, the end of the fixed part."""
    direction = "response" if response else "request"
    form = version_of_header(seen.key, seen.version, direction)
    for candidate in range(form, -1, -1):  # without tags that cannot be read, then without a client id
        end = known_body_start(data, 0, len(data), candidate, direction)
        if end is not None:
            return end
    return len(data)


def sketched(seen: ObservedExchange, frame: Frame, direction: str) -> bytes | None:
    """Return the sketch of a frame with records; None if it is not all there, or its structure cannot be followed to
    its end, so that anything may be in it."""
    data = frame.sketch or frame.data
    if frame.form is Form.WHOLE:
        sketcher = Sketcher(seen.key, seen.version, direction)
        sketcher.feed(frame.data, 0, len(frame.data))
        data = sketcher.data()
    elif frame.form is not Form.SKETCH and not frame.sketch:
        return None
    try:
        decode_sketch(data, seen.key, seen.version, direction, sketched=True)
    except DecodeError:
        return None
    return data


@cache
def version_of_header(key: int, version: int, direction: str) -> int:
    """Return the header's version; for APIs that the table lacks 0, which has no field that could be misread."""
    try:
        return header_version(key, version, direction)
    except DecodeError:
        return 0
