"""Bodies of every API and version, read in every way there is: all ways agree.

- decoding gives a value or a DecodeError within the frame; the slow reader says the same and ends at the same byte
- walks accept what the decoder accepts, end where it ends, and find nothing outside; a refusal says where
- a value that was read can be written, and what was written is read as the same value
- edits of nothing change no byte; edits of names and elements leave a frame that is read to its end
- the check for endpoints says "nothing there" only of what can be read, and has no such tag
- sketches accept what decoders accept
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import cache
from random import Random
from typing import Any

from kproxy.base.errors import DecodeError, EncodeError
from kproxy.protocol import decode_request, decode_response
from kproxy.protocol.codec import structs as codec
from kproxy.protocol.codec.trace import trace
from kproxy.protocol.edit import Edits
from kproxy.protocol.scan.sketch import decode_sketch
from kproxy.protocol.scan.walk import Walk, compile_walk, has_no_endpoints, write_string
from kproxy.protocol.scan.walk_source import tags_path
from kproxy.protocol.table import layout, schema
from kproxy.protocol.table.layout import Struct
from tests.lab.fuzz.feed import Feed
from tests.support.random_values import random_struct

KEYS = sorted(schema.paths())
DIRECTIONS = ("request", "response")
JUDGED = {(0, version) for version in range(10, 14)} | {(1, version) for version in range(16, 19)}


def check(data: bytes) -> None:
    """One input: api, version, direction, edits, body."""
    feed = Feed(data)
    key = feed.pick(KEYS)
    version, direction = feed.pick(list(schema.load(key).versions)), feed.pick(DIRECTIONS)
    choices, body = Feed(feed.piece()), feed.rest()
    struct = layout.body(key, version, direction)
    end = decoded(struct, body)
    for walk in walks(key, version, direction):
        walked(walk, body, end, choices)
    public(key, version, direction, body, end)


def decoded(struct: Struct, body: bytes) -> int | None:
    """Where the struct ends; None if it cannot be read."""
    try:
        value, end = codec.decode(struct, body)
    except DecodeError as error:
        assert 0 <= error.offset <= len(body)
        assert error.problem != "cannot be read", "the slow reader found nothing wrong"
        return None
    assert 0 <= end <= len(body)
    assert [0, *(step.end for step in trace(struct, body))][-1] == end
    try:
        written = codec.encode(struct, value)
    except EncodeError as error:
        assert "null" in str(error) or "None" in str(error), error  # readers take null everywhere, writers do not
        return end
    again, length = codec.decode(struct, written)
    assert length == len(written)
    assert codec.encode(struct, again) == written  # not the values: a NaN is not itself
    return end


@cache
def walks(key: int, version: int, direction: str) -> tuple[Walk, ...]:
    struct = layout.body(key, version, direction)
    names = [slot.path for slot in struct.everywhere() if slot.kind]
    return tuple(compile_walk(struct, frozenset(paths)) for paths in ((), names, everything(struct)))


def everything(struct: Struct, path: str = "") -> Iterator[str]:
    """Every path that can be wanted of a layout."""
    if struct.flexible:
        yield tags_path(path)
    for slot in struct.all_slots:
        yield slot.path
        if slot.struct is not None:
            yield from everything(slot.struct, slot.path)


def walked(walk: Walk, body: bytes, end: int | None, choices: Feed) -> None:
    hits: list[tuple[int, int, int]] = []
    try:
        after = walk.run(b"\x9e\x9e" + body + b"\xff" * 30, 2, 2 + len(body), hits) - 2
    except DecodeError as error:
        assert end is None
        assert "do not follow" not in str(error)
        assert 0 <= error.offset <= len(body)
        return
    assert 0 <= after <= len(body)
    assert end in (None, after)
    assert all(2 <= start <= stop <= after + 2 for _, start, stop in hits)
    if end is not None:
        edited(walk, body, end, choices)


def edited(walk: Walk, body: bytes, end: int, choices: Feed) -> None:
    hits: list[tuple[int, int, int]] = []
    walk.run(body, 0, end, hits)
    edits = Edits(body, 0, end, walk, hits)
    assert b"".join(edits.pieces()) == body[:end]
    changes = {choices.byte() for _ in range(3)} if choices else set()
    for number, (mark, start, stop) in enumerate(hits):
        slot, what = walk.marks[mark].slot, walk.marks[mark].what
        if number not in changes or slot is None or what != "value" or slot.array or slot.type != "string":
            continue
        edits.replace(start, stop, write_string(b"n" * (choices.byte() * 2), slot.compact))
    if edits:
        made = b"".join(edits.pieces())
        assert codec.decode(walk.struct, made)[1] == len(made)


def public(key: int, version: int, direction: str, body: bytes, end: int | None) -> None:
    """Frames with a header."""
    flexible = schema.load(key).header_version(direction, version)
    if direction == "request":
        head = key.to_bytes(2, "big") + version.to_bytes(2, "big") + b"\0\0\0\7"
        frame = head + (b"", b"\xff\xff", b"\xff\xff\0")[flexible] + body
    else:
        frame = b"\0\0\0\7" + (b"", b"\0")[flexible] + body
    readable = False
    with contextlib.suppress(DecodeError):
        found = decode_request(frame) if direction == "request" else decode_response(frame, key, version)
        readable = True
        assert found.api.key == key
    if key != 18:  # whose answer may be in the form of version 0
        assert readable == (end == len(body))
    sketch: Any = None
    with contextlib.suppress(DecodeError):
        sketch = decode_sketch(frame, key, version, direction)
    if key != 18:
        assert (sketch is not None) == (end is not None)
    if direction == "response" and (key, version) in JUDGED:
        sized = len(frame).to_bytes(4, "big") + frame
        wanted = frozenset(slot.path for slot in layout.body(key, version, direction).everywhere()
                           if slot.path in ("node_endpoints[].host", "node_endpoints[].port"))  # fmt: skip
        if has_no_endpoints(key, version, wanted)(sized, 0, len(sized)):
            assert readable
            assert not found.body["node_endpoints"]


def seeds() -> Iterator[bytes]:
    """One value for each API and direction, the newest version."""
    for at, key in enumerate(KEYS):
        versions = list(schema.load(key).versions)
        for way, direction in enumerate(DIRECTIONS):
            struct = layout.body(key, versions[-1], direction)
            value = min((codec.encode(struct, random_struct(struct, Random(n))) for n in range(5)), key=len)
            yield bytes((at, len(versions) - 1, way, 2, 1, 3)) + value


WORDS = [b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\xff\xff\xff\xff\x07", b"\x01\x00\x01\x00"]
