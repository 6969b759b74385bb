"""Heads of frames, read before or without the rest: where the body starts, Produce's acks, the only topic.

Strategy: these read from a frame that may not be here as a whole yet. None says "more bytes, please"; nothing is ever
read at or after `end`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from struct import Struct
from typing import Any

from kproxy.wire.primitives import Buffer
from kproxy.wire.table import layout, schema
from kproxy.wire.table.api_keys import PRODUCE
from kproxy.wire.table.layout import FIXED

from .frames import REQUEST_HEADER, RESPONSE_HEADER

Spans = Callable[[Buffer, int, int], list[tuple[int, int]] | None]

SHORT = Struct(">h").unpack_from
FIXED_HEAD = REQUEST_HEADER + 2
"""Bytes of a request up to its client id, whose length ends there."""

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


def after_tags(buf: Buffer, pos: int, end: int) -> int | None:
    """Return the position after a header's tag buffer, None if it is not all here."""
    read = short_uvarint(buf, pos, end)
    if read is None:
        return None
    count, pos = read
    for _ in range(count):
        tag = short_uvarint(buf, pos, end)
        size = tag and short_uvarint(buf, tag[1], end)
        if not size:
            return None
        pos = size[1] + size[0]
    return pos if pos <= end else None


def after_classic_string(buf: Buffer, pos: int, end: int) -> int | None:
    """Return the position after an INT16 length and its string, None if it is not all here; a length below zero is
    null."""
    if pos + 2 > end:
        return None
    length = buf[pos] << 8 | buf[pos + 1]
    pos += 2 + (length if length < 0x8000 else 0)
    return pos if pos <= end else None


def body_start(buf: Buffer, pos: int, end: int, header_version: int, direction: str) -> int | None:
    """Return the position at which the body of the frame at buf[pos:end] (without its size) starts. None: the header
    goes on after `end`.

    Request headers: 0 has no client_id, 1 has one, 2 a tag buffer after it, in which the client_id stays a classic
    string (KIP-482). Response headers: 0 is the correlation id, 1 has a tag buffer after it.
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
    return after_tags(buf, start, end) if flexible else start


def acks_after(pos: int | None, buf: Buffer, end: int) -> int | None:
    if pos is None or pos + 2 > end:
        return None
    return int.from_bytes(buf[pos : pos + 2], "big", signed=True)


@cache
def produce_acks(version: int) -> AcksReader:
    """Return the reader of `acks` of this Produce version: fn(buf, pos, end, client_id_length) → acks, or None: not
    here yet.

    `pos` is the frame's first byte, `client_id_length` as on the wire (-1 null). acks stands first in the body up to
    version 2; from 3 on transactional_id is before it, compact (with a tag buffer in the header) from 9 on.
    """

    def old(buf: Buffer, pos: int, end: int, client_id_length: int) -> int | None:
        return acks_after(pos + 10 + max(client_id_length, 0), buf, end)

    def transactional(buf: Buffer, pos: int, end: int, client_id_length: int) -> int | None:
        return acks_after(after_classic_string(buf, pos + 10 + max(client_id_length, 0), end), buf, end)

    def flexible(buf: Buffer, pos: int, end: int, client_id_length: int) -> int | None:
        pos += 10 + max(client_id_length, 0)
        if pos + 4 <= end and not buf[pos] and not buf[pos + 1]:  # no header tags, no transactional id: nearly always
            return SHORT(buf, pos + 2)[0]  # type: ignore[no-any-return]
        start = after_tags(buf, pos, end)
        length = None if start is None else short_uvarint(buf, start, end)
        return acks_after(length[1] + max(length[0] - 1, 0), buf, end) if length else None

    return old if version < 3 else transactional if version < 9 else flexible


def acks_reader(key: int, version: int) -> AcksReader | None:
    """Return the reader of `acks` of requests of this API and version; None if it is not Produce, or not a version that
    the table has."""
    return produce_acks(version) if key == PRODUCE and version in schema.load(key).versions else None


def acks_of(frame: Buffer, version: int) -> int | None:
    """Return the acks of a Produce request (without its size), of which the end may lack; None where it is not
    there."""
    read = acks_reader(PRODUCE, version)
    if read is None or len(frame) < FIXED_HEAD:
        return None
    return read(frame, 0, len(frame), int.from_bytes(frame[REQUEST_HEADER:FIXED_HEAD], "big", signed=True))


@cache
def single_topic(key: int, version: int, direction: str) -> Spans:
    """Return fn(buf, pos, end) → the spans of the strings before the topics, then that of the only topic's name or id,
    if the body at `pos` is about one topic. Spans of strings include their length.

    None when it is about several or none, or when that cannot be told from the bytes before `end`. For messages whose
    first array is one of topics that begin with their name or id, such as Produce requests and Fetch responses.
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
    """Bytes from the client id, or the correlation id, to the only topic where nothing optional stands, as in most
    frames: no tags in the header, null for every string. `expected`: what `read` gives then, before the length of the
    topic's name, if it has one. `front`: the tags and strings, which stand first; `count_at`: where the number of
    topics stands, behind fields of fixed size."""

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
        """Return the span of the topic's name, length included, or id, in a plain head at `at`. None: it is none, or it
        is not all in front of `end`."""
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
