"""Frames cut out of a byte stream, and their heads: body start, Produce's acks, the only topic.

A frame is a signed 32-bit length and that many bytes. `FrameCutter` checks a length as soon as its four bytes are
received, so an invalid length never makes a buffer grow.

Head readers take a frame whose bytes before `end` have arrived, and return None if they need more. They raise
DecodeError for a header with more tags, or longer tags, than `after_tags` accepts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from struct import Struct
from typing import Any, NamedTuple

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


LENGTH = 4
"""Bytes of a frame's length field."""


class CutFrame(NamedTuple):
    """Frame of a stream. `size`: bytes with the length field; `data`: the kept bytes after that field. `first`, `last`:
    times of its first and last byte."""

    size: int
    data: bytes
    first: float
    last: float

    @property
    def whole(self) -> bool:
        return len(self.data) == self.size - LENGTH


class FrameCutter:
    """Cutter of a stream into frames; the stream may come in pieces of any size.

    `smallest`, `largest`: valid lengths in bytes. `keep`: bytes that are kept of a frame; the others are only counted.
    `gaps`: test if a piece begins with a frame, which finds a frame after missing bytes or an invalid length. None: the
    stream has no gaps, and all bytes after an invalid length are discarded. Missing bytes within a frame only shorten
    its kept bytes, because the length gives the position of the next frame.

    `lost`: the position of the next frame is unknown; `lost_places` counts how often that happened. `invalid`: the last
    invalid length, in bytes.
    """

    __slots__ = (
        "body", "complete", "first", "gaps", "invalid", "keep", "largest", "left", "lost", "lost_places", "prefix",
        "received", "size", "smallest",
    )  # fmt: skip

    def __init__(
        self, smallest: int = RESPONSE_HEADER, largest: int = MAX_FRAME, *, keep: int = MAX_FRAME,
        gaps: Callable[[bytes], bool] | None = None, lost: bool = False,
    ) -> None:  # fmt: skip
        self.smallest, self.largest, self.keep, self.gaps, self.lost = smallest, largest, keep, gaps, lost
        self.lost_places = self.invalid = 0
        self.received = 0  # bytes so far; without gaps, those before the invalid length
        self.prefix = b""  # of a length field that is not complete
        self.left = 0  # bytes of the current frame that have not been received
        self.size = 0
        self.body = bytearray()
        self.complete = False  # no byte of the current frame is missing so far
        self.first = 0.0

    def receive(self, data: bytes, missing: int = 0, time: float = 0.0) -> list[CutFrame]:
        """Return the frames that end in the next piece of the stream. `missing`: lost bytes after `data`."""
        self.received += len(data)
        length = len(data) - LENGTH
        plain = not (self.left or self.lost or missing or self.prefix) and self.smallest <= length <= self.keep
        if plain and length == int.from_bytes(data[:LENGTH], "big") and length <= self.largest:  # most pieces
            return [CutFrame(LENGTH + length, data[LENGTH:], time, time)]
        if self.lost:
            if self.gaps is None:
                self.received -= len(data)
                return []
            if not self.gaps(data):
                return []
            self.lost = False
        frames: list[CutFrame] = []
        pos = self._go_on(data, time, frames) if self.left else 0
        end = len(data)
        while pos < end and not self.lost:
            if self.prefix or end - pos < LENGTH:
                pos = self._take_length(data, pos, time, frames)
                continue
            size = int.from_bytes(data[pos : pos + LENGTH], "big", signed=True)
            after = pos + LENGTH + size
            if self.smallest <= size <= self.keep and after <= end and size <= self.largest:
                frames.append(CutFrame(LENGTH + size, data[pos + LENGTH : after], time, time))
                pos = after
            else:
                pos = self._begin(size, data, pos + LENGTH, time, time, frames)
        if missing:
            self._miss(missing, time, frames)
        return frames

    def frames(self, data: bytes) -> Iterator[bytes]:
        """Yield the kept bytes of the frames that end in the next piece. Raises DecodeError at an invalid length, after
        the frames before it."""
        for frame in self.receive(data):
            yield frame.data
        if self.lost:
            expected = f"{self.smallest} to {self.largest}"
            raise DecodeError(f"frame length {self.invalid}", offset=self.received, expected=expected)

    @property
    def pending(self) -> int:
        """Return the number of received bytes of the frame that is not complete."""
        return self.size - self.left if self.left else len(self.prefix)

    @property
    def offset(self) -> int:
        """Return the position in the stream of the first byte that is not in a complete frame."""
        return self.received - self.pending

    def finish(self) -> None:
        """Check the end of the stream. Raises DecodeError if it ends within a frame."""
        if self.pending:
            raise DecodeError(
                f"stream ends after {self.pending} bytes of a frame",
                offset=self.offset,
                expected=f"{self.size} bytes" if self.left else "4 bytes of length and more",
            )

    def _take_length(self, data: bytes, pos: int, time: float, frames: list[CutFrame]) -> int:
        """Take the next bytes of a length field that comes in several pieces; return the position after them."""
        if not self.prefix:
            self.first = time
        take = LENGTH - len(self.prefix)
        self.prefix += data[pos : pos + take]
        if len(self.prefix) < LENGTH:
            return len(data)
        size = int.from_bytes(self.prefix, "big", signed=True)
        self.prefix = b""
        return self._begin(size, data, pos + take, self.first, time, frames)

    def _begin(self, size: int, data: bytes, pos: int, first: float, time: float, frames: list[CutFrame]) -> int:
        if not self.smallest <= size <= self.largest:
            self.invalid = size
            self._lose()
            if self.gaps is None:
                self.received += pos - LENGTH - len(data)
            return len(data)
        self.size, self.left, self.first, self.complete = size + LENGTH, size, first, True
        self.body = bytearray()
        if size:
            return self._go_on(data, time, frames, pos)
        frames.append(CutFrame(LENGTH, b"", first, time))
        return pos

    def _go_on(self, data: bytes, time: float, frames: list[CutFrame], pos: int = 0) -> int:
        """Take the next bytes of the current frame; return the position after them."""
        take = min(self.left, len(data) - pos)
        if self.complete:
            room = self.keep - len(self.body)
            self.body += data[pos : pos + min(take, room)]
            self.complete = take <= room
        self.left -= take
        if not self.left:
            self._end(time, frames)
        return pos + take

    def _end(self, time: float, frames: list[CutFrame]) -> None:
        frames.append(CutFrame(self.size, bytes(self.body), self.first, time))
        self.body = bytearray()

    def _miss(self, missing: int, time: float, frames: list[CutFrame]) -> None:
        """Count lost bytes: within a frame they shorten its kept bytes, after its end they hide the next frame."""
        self.received += missing
        if self.lost:
            return
        self.complete = False
        if self.left:
            taken = min(self.left, missing)
            self.left -= taken
            missing -= taken
            if not self.left:
                self._end(time, frames)
        if missing:
            self._lose()

    def _lose(self) -> None:
        self.lost = True
        self.lost_places += 1
        self.prefix = b""
        self.left = 0


def split(data: bytes, smallest: int = RESPONSE_HEADER, largest: int = MAX_FRAME) -> Iterator[bytes]:
    """Yield the frames of a whole stream. Raises DecodeError if it ends inside one."""
    cutter = FrameCutter(smallest, largest)
    yield from cutter.frames(data)
    cutter.finish()


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
                assert not form.endswith("x"), "strings precede fields of fixed size"
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
