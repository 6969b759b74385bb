"""Frames cut out of a byte stream, and their heads: body start, Produce's acks, the only topic.

A frame is a signed 32-bit length and that many bytes. `Splitter` checks a length as soon as its four bytes are there,
so a bad length never makes a buffer grow.

Head readers take a frame whose bytes before `end` have arrived, and return None if they need more. They raise
DecodeError for a header with more tags, or longer tags, than `after_tags` accepts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from struct import Struct
from typing import Any

from kproxy.base.errors import DecodeError
from kproxy.protocol.primitives import MAX_STRING, Buffer
from kproxy.protocol.table import layout, schema
from kproxy.protocol.table.api_keys import PRODUCE
from kproxy.protocol.table.layout import FIXED

MAX_FRAME = 104857600
"""Bytes; default of the broker's socket.request.max.bytes, and the limit of its Fetch responses."""
REQUEST_HEADER = 8
"""Bytes of the smallest request header: api key, version, correlation id."""
RESPONSE_HEADER = 4
"""Bytes of the smallest response header: the correlation id. Raw SASL tokens have no header, and may be empty: 0."""
REQUEST_BEGINS = Struct(">iIi")
"""First fields of every request: size, API key << 16 | version, correlation id."""
REQUEST_HEAD = Struct(REQUEST_BEGINS.format + "h")
"""The same, and the length of the client id, -1 for null, which all have but those of ControlledShutdown 0."""
RESPONSE_BEGINS = Struct(">ii")
"""First fields of every response: size, correlation id."""
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
    return len(frame).to_bytes(4, "big") + frame


Spans = Callable[[Buffer, int, int], list[tuple[int, int]] | None]

SHORT = Struct(">h").unpack_from
FIXED_HEAD = REQUEST_HEADER + 2
"""Bytes of a request up to its client id, whose length is included."""
# Kafka defines no header tags (KIP-482). The limits leave room for a fork's own, and bound the work before the body.
MAX_HEADER_TAGS = 32
MAX_HEADER_TAG_BYTES = 4096  # of the tag buffer, its count included
MAX_REQUEST_HEADER = FIXED_HEAD + MAX_STRING + MAX_HEADER_TAG_BYTES  # bytes, without the frame's size
MAX_RESPONSE_HEADER = RESPONSE_HEADER + MAX_HEADER_TAG_BYTES  # bytes, without the frame's size
MAX_ACKS_HEAD = MAX_REQUEST_HEADER + 5 + MAX_STRING + 2  # bytes of a Produce up to its acks, after the transactional id

AcksReader = Callable[[Buffer, int, int, int], int | None]


def short_uvarint(buf: Buffer, pos: int, end: int) -> tuple[int, int] | None:
    """Read an unsigned varint, as `primitives.read_uvarint` does, and return None if it is not all here."""
    value = 0
    for shift in range(0, 35, 7):
        if pos >= end:
            return None
        byte = buf[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
    return value, pos


def after_tags(buf: Buffer, pos: int, end: int, frame: int) -> int | None:
    """Return the position after a header's tag buffer, None if it goes on after `end`.

    Errors give the offset from `frame`, the position of the API key or of a response's correlation id.
    """
    read = short_uvarint(buf, pos, end)
    if read is None:
        return None
    start = pos
    count, pos = read
    check_tag_count(count, start - frame)
    for _ in range(count):
        tag = short_uvarint(buf, pos, end)
        size = tag and short_uvarint(buf, tag[1], end)
        pos = size[1] + size[0] if size else end + 1
        if pos > end:
            break
    if pos - start > MAX_HEADER_TAG_BYTES:
        problem, expected = f"{pos - start} bytes of header tags", f"at most {MAX_HEADER_TAG_BYTES}"
        raise DecodeError(problem, path="header", offset=start - frame, expected=expected)
    return pos if pos <= end else None


def check_tag_count(count: int, offset: int) -> None:
    """Raise DecodeError if a header has more than MAX_HEADER_TAGS tags. `offset` is that of their count."""
    if count > MAX_HEADER_TAGS:
        expected = f"at most {MAX_HEADER_TAGS}"
        raise DecodeError(f"{count} header tags", path="header", offset=offset, expected=expected)


def after_classic_string(buf: Buffer, pos: int, end: int) -> int | None:
    """Return the position after an INT16 length and its string, None if it is not all here; a length below zero is
    null."""
    if pos + 2 > end:
        return None
    length = buf[pos] << 8 | buf[pos + 1]
    pos += 2 + (length if length < 0x8000 else 0)
    return pos if pos <= end else None


def body_start(buf: Buffer, pos: int, end: int, header_version: int, direction: str) -> int | None:
    """Return where the body of the frame at buf[pos:end] starts, None if the header goes on after `end`.

    `pos` is the position after the frame's size. Raises DecodeError as `after_tags` does.

    Request headers: version 0 has no client_id, 1 has one, 2 has a tag buffer after it. The client_id of version 2
    stays a classic string (KIP-482). Response headers: 0 is the correlation id, 1 has a tag buffer after it.
    """
    if direction == "request":
        start: int | None = pos + REQUEST_HEADER
        flexible = header_version >= 2
        if header_version >= 1:
            start = after_classic_string(buf, pos + REQUEST_HEADER, end)
    else:
        start = pos + RESPONSE_HEADER
        flexible = header_version >= 1
    if start is None or start > end:
        return None
    return after_tags(buf, start, end, pos) if flexible else start


def known_body_start(buf: Buffer, pos: int, end: int, header_version: int, direction: str) -> int | None:
    """Return what `body_start` returns, and None for a header that it rejects."""
    try:
        return body_start(buf, pos, end, header_version, direction)
    except DecodeError:
        return None


def acks_after(pos: int | None, buf: Buffer, end: int) -> int | None:
    if pos is None or pos + 2 > end:
        return None
    return int.from_bytes(buf[pos : pos + 2], "big", signed=True)


@cache
def produce_acks(version: int) -> AcksReader:
    """Return the reader of `acks` of this Produce version: fn(buf, pos, end, client_id_length) → acks.

    `pos` is the position of the API key. `client_id_length` is -1 for null. The reader returns None if acks has not
    arrived, and raises DecodeError as `after_tags` does.

    Up to version 2, acks is the first field of the body. From 3 on it follows transactional_id, which is compact from
    9 on.
    """

    def old(buf: Buffer, pos: int, end: int, client_id_length: int) -> int | None:
        return acks_after(pos + 10 + max(client_id_length, 0), buf, end)

    def transactional(buf: Buffer, pos: int, end: int, client_id_length: int) -> int | None:
        return acks_after(after_classic_string(buf, pos + 10 + max(client_id_length, 0), end), buf, end)

    def flexible(buf: Buffer, pos: int, end: int, client_id_length: int) -> int | None:
        at = pos + 10 + max(client_id_length, 0)
        if at + 4 <= end and not buf[at] and not buf[at + 1]:  # no header tags, no transactional id: nearly always
            return SHORT(buf, at + 2)[0]  # type: ignore[no-any-return]
        start = after_tags(buf, at, end, pos)
        length = None if start is None else short_uvarint(buf, start, end)
        return acks_after(length[1] + max(length[0] - 1, 0), buf, end) if length else None

    return old if version < 3 else transactional if version < 9 else flexible


def acks_reader(key: int, version: int) -> AcksReader | None:
    """Return the reader of `acks` of requests of this API and version; None if it is not Produce, or not a version that
    the table has."""
    return produce_acks(version) if key == PRODUCE and version in schema.load(key).versions else None


def acks_of(frame: Buffer, version: int) -> int | None:
    """Return the acks of a Produce request, given without its size; None if the bytes do not reach it or its header is
    malformed."""
    read = acks_reader(PRODUCE, version)
    if read is None or len(frame) < FIXED_HEAD:
        return None
    try:
        return read(frame, 0, len(frame), int.from_bytes(frame[REQUEST_HEADER:FIXED_HEAD], "big", signed=True))
    except DecodeError:
        return None


@cache
def single_topic(key: int, version: int, direction: str) -> Spans:
    """Return fn(buf, pos, end) → spans of the strings before the topics, and of the only topic's name or id. None
    otherwise.

    `pos` is the start of the body. Spans of strings include their length. None if the body has several topics or none,
    or if the bytes before `end` do not suffice. For messages whose first array contains topics that begin with their
    name or id, such as Produce requests and Fetch responses.
    """
    struct = layout.body(key, version, direction)
    at = next(index for index, slot in enumerate(struct.slots) if slot.array)
    topics = struct.slots[at]
    assert topics.struct is not None
    assert topics.struct.slots[0].kind in ("topic_name", "topic_id")
    first = FIXED[topics.struct.slots[0].type][1] if topics.struct.slots[0].type in FIXED else 0
    before = [FIXED[slot.type][1] if slot.type in FIXED else 0 for slot in struct.slots[:at]]
    compact = topics.compact

    def after_string(buf: Buffer, pos: int, end: int) -> int | None:
        if not compact:
            return after_classic_string(buf, pos, end)
        read = short_uvarint(buf, pos, end)
        if read is None or read[1] + max(read[0] - 1, 0) > end:
            return None
        return read[1] + max(read[0] - 1, 0)

    def find(buf: Buffer, pos: int, end: int) -> list[tuple[int, int]] | None:
        spans = []
        for size in before:
            after = pos + size if size else after_string(buf, pos, end)
            if after is None:
                return None
            if not size:
                spans.append((pos, after))
            pos = after
        width = 1 if compact else 4
        if pos + width > end or int.from_bytes(buf[pos : pos + width], "big") != (2 if compact else 1):
            return None
        pos += width
        stop = pos + first if first else after_string(buf, pos, end)
        return None if stop is None or stop > end else [*spans, (pos, stop)]

    return find


NOT_SHORT = 0x80
"""A compact string's length from here on has a second byte (KIP-482)."""


class PlainHead:
    """Head of a frame up to its only topic, if all optional parts are absent: no header tags, null strings.

    `expected`: result of `read` for such a head, without the length of the topic's name. `front`: tags and strings.
    `count_at`: offset of the number of topics, which follows fields of fixed size.
    """

    __slots__ = ("compact", "count_at", "counts", "expected", "front", "long", "read", "size", "width")

    def __init__(self, key: int, version: int, direction: str) -> None:
        struct = layout.body(key, version, direction)
        at = next(index for index, slot in enumerate(struct.slots) if slot.array)
        topics = struct.slots[at]
        assert topics.struct is not None
        first, compact = topics.struct.slots[0], topics.compact
        self.compact = compact
        tagged = schema.load(key).header_version(direction, version) >= (2 if direction == "request" else 1)
        form, expected = (">B", [0]) if tagged else (">", [])
        self.front = b"\0" if tagged else b""
        for slot in struct.slots[:at]:
            if slot.type in FIXED:
                form += f"{FIXED[slot.type][1]}x"
            else:
                assert not form.endswith("x"), "strings stand before fields of fixed size"
                form += "B" if compact else "h"
                expected.append(0 if compact else -1)
                self.front += b"\0" if compact else b"\xff\xff"
        self.count_at = Struct(form).size
        form += "B" if compact else "i"
        self.expected = (*expected, 2 if compact else 1)
        self.long = FIXED[first.type][1] if first.type in FIXED else 0  # bytes of a topic id
        self.width, self.counts = (0, 0) if self.long else (1, 1) if compact else (2, 0)  # of the length of a name
        head = Struct(form if self.long else form + ("B" if compact else "h"))
        self.read: Callable[[Buffer, int], tuple[Any, ...]] = head.unpack_from
        self.size = head.size

    def topic(self, buf: Buffer, at: int, end: int) -> tuple[int, int] | None:
        """Return the span of the topic's name with its length, or of its id. None if the head has optional parts or
        ends after `end`."""
        after = at + self.size
        if after > end:
            return None
        if self.long:
            start, stop, marks = after, after + self.long, self.read(buf, at)
        else:
            *found, size = self.read(buf, at)
            if not 0 < size < NOT_SHORT:
                return None
            start, stop, marks = after - self.width, after + size - self.counts, (*found,)
        return (start, stop) if stop <= end and marks == self.expected else None


@cache
def plain_head(key: int, version: int, direction: str) -> PlainHead:
    return PlainHead(key, version, direction)
