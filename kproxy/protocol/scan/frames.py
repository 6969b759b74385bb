"""Frames cut out of a byte stream: a signed 32-bit length, then that many bytes.

Strategy: bytes come in pieces of any size; `maybe_frame` gives the next whole frame, or None when more bytes are
needed. A length is judged as soon as its four bytes are there, so a bad one never makes anything grow.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from kproxy.base.errors import DecodeError
from kproxy.protocol.primitives import Buffer

MAX_FRAME = 104857600
"""Bytes; the broker's default for socket.request.max.bytes, which it also sets for what it answers to fetches."""
REQUEST_HEADER = 8
"""Bytes of the smallest request header: api key, version, correlation id."""
RESPONSE_HEADER = 4
"""Bytes of the smallest response header: the correlation id. Raw SASL tokens have no header, and may be empty: 0."""
REQUEST_BEGINS = Struct(">iIi")
"""Size, API key << 16 | version, and correlation id, with which every request begins."""
REQUEST_HEAD = Struct(REQUEST_BEGINS.format + "h")
"""The same, and the length of the client id, -1 for null, which all have but those of ControlledShutdown 0."""
RESPONSE_BEGINS = Struct(">ii")
"""Size and correlation id, with which every response begins."""
CORRELATION_ID_ENDS = 4 + RESPONSE_HEADER
"""Bytes from the first of a response's size to the end of its correlation id."""


class Splitter:
    """Splitter of a stream into frames. `smallest` and `largest` are the lengths allowed, in bytes."""

    def __init__(self, smallest: int = RESPONSE_HEADER, largest: int = MAX_FRAME) -> None:
        self.smallest, self.largest = smallest, largest
        self.buffer = bytearray()
        self.offset = 0
        """Where in the stream `buffer` begins."""

    def receive(self, data: Buffer) -> None:
        """Take the next bytes of the stream."""
        self.buffer += data

    def maybe_frame(self) -> bytes | None:
        """Return the next frame without its length; None if it is not all here. Raises DecodeError for a bad length."""
        if len(self.buffer) < 4:
            return None
        size = int.from_bytes(self.buffer[:4], "big", signed=True)
        if not self.smallest <= size <= self.largest:
            raise DecodeError(f"frame length {size}", offset=self.offset, expected=f"{self.smallest} to {self.largest}")
        if len(self.buffer) < 4 + size:
            return None
        with memoryview(self.buffer) as view:
            frame = bytes(view[4 : 4 + size])
        del self.buffer[: 4 + size]
        self.offset += 4 + size
        return frame

    def frames(self) -> Iterator[bytes]:
        """Yield the frames that are here. Raises DecodeError at a bad length, after the frames before it."""
        while (frame := self.maybe_frame()) is not None:
            yield frame

    def finish(self) -> None:
        """Check that the stream, which has ended, did not end in the middle of a frame. Raises DecodeError if it
        did."""
        if self.buffer:
            size = int.from_bytes(self.buffer[:4], "big") if len(self.buffer) >= 4 else 0
            raise DecodeError(
                f"stream ends after {len(self.buffer)} bytes of a frame",
                offset=self.offset,
                expected=f"{4 + size} bytes" if size else "4 bytes of length and more",
            )


def split(data: Buffer, smallest: int = RESPONSE_HEADER, largest: int = MAX_FRAME) -> Iterator[bytes]:
    """Yield the frames of a whole stream. Raises DecodeError if it ends inside one."""
    splitter = Splitter(smallest, largest)
    splitter.receive(data)
    yield from splitter.frames()
    splitter.finish()


def framed(frame: Buffer) -> bytes:
    """Return a frame with its length in front."""
    return len(frame).to_bytes(4, "big") + frame
