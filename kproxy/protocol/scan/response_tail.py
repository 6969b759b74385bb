"""Tails of big Fetch and ShareFetch responses: everything before them streams through; only the tail is walked.

The tail is what comes after the records and may have to change: for Fetch 16+ the top-level tag buffer, for ShareFetch
`node_endpoints` and what follows it.

Strategy. `PrefixSkipper` runs a generator made from the layout. It holds a position that may lie beyond the bytes seen
so far, so records are skipped by an addition, however long they are, and what it carries from one chunk to the next is
that one number and the counts of the loops it is in; no byte is kept. Only varints (counts, lengths, tags) are looked
at.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import cache

from kproxy.base.cooperative import yield_point, yielding_range
from kproxy.base.errors import DecodeError
from kproxy.protocol.codec.decoder import SourceCode
from kproxy.protocol.primitives import MAX_LENGTH, Buffer, Chunk
from kproxy.protocol.table import layout, schema
from kproxy.protocol.table.api_keys import FETCH, SHARE_FETCH
from kproxy.protocol.table.layout import FIXED, Slot, Struct

from .walk_source import slot_width

Skip = Generator[int, Chunk, None]


def longer(first: int, buf: Buffer, p: int, end: int) -> Generator[int, Chunk, tuple[int, Buffer, int, int]]:
    """Read the rest of a varint that goes on after the byte `first`, over chunks if need be. Raises DecodeError if it
    is too long."""
    value = first & 0x7F
    for shift in range(7, 35, 7):
        while p >= end:
            beyond = p - end
            buf, p, end = yield p
            p += beyond
        byte = buf[p]
        p += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
    else:
        raise DecodeError("varint goes on after 5 bytes", expected="at most 5 bytes")
    if value > MAX_LENGTH:
        raise DecodeError(f"length {value}", expected=f"at most {MAX_LENGTH}")
    return value, buf, p, end


class PrefixWriter:
    """Writer of the generator `skip(buf, p, end)`: it yields its position when it needs more bytes, and at the tail, as
    its last word, -1 less the position."""

    def __init__(self) -> None:
        self.put = SourceCode()
        self.put.names.update(longer=longer, yield_point=yield_point, yielding_range=yielding_range)
        self.behind = 0

    def move(self) -> None:
        if self.behind:
            self.put(f"p += {self.behind}")
        self.behind = 0

    def wait(self) -> None:
        with self.put.block("while p >= end:"):
            self.put("beyond = p - end")
            self.put("buf, p, end = yield p")
            self.put("p += beyond")

    def varint(self, name: str) -> None:
        self.move()
        self.wait()
        self.put(f"{name} = buf[p]")
        self.put("p += 1")
        with self.put.block(f"if {name} > 127:"):
            self.put(f"{name}, buf, p, end = yield from longer({name}, buf, p, end)")

    def struct(self, struct: Struct) -> None:
        for slot in struct.slots:
            self.slot(slot)
        if struct.flexible:
            self.varint("n")
            with self.put.block("for _ in yielding_range(n):"):
                self.varint("n")
                self.varint("n")
                self.put("p += n")

    def slot(self, slot: Slot) -> None:
        size = slot_width(slot)
        if slot.array:
            self.array(slot)
        elif size is not None:
            self.behind += size
        elif slot.struct is not None:
            assert not slot.nullable, "no response that is streamed has a nullable struct before its tail"
            self.struct(slot.struct)
        else:
            self.varint("n")
            self.put("p += n - 1 if n else 0")

    def array(self, slot: Slot) -> None:
        self.varint("n")
        if slot.struct is None:
            self.put(f"p += (n - 1) * {FIXED[slot.type][1]} if n else 0")
            return
        with self.put.block("for _ in range(n - 1):"):
            self.put("yield_point()")
            self.struct(slot.struct)
            self.move()


@cache
def split(key: int, version: int) -> tuple[Struct, Struct]:
    """Return the layouts before and of the tail. Raises KeyError for a message that is not streamed like this."""
    body = layout.body(key, version, "response")
    names = [slot.name for slot in body.slots]
    if key == FETCH and any(slot.name == "node_endpoints" for slot in body.tagged):
        cut = len(names)
    elif key == SHARE_FETCH:
        cut = names.index("node_endpoints")
    else:
        raise KeyError(f"{schema.load(key).name} response v{version} has no tail that matters")
    return Struct(body.slots[:cut], (), False), Struct(body.slots[cut:], body.tagged, body.flexible)


@cache
def skipper(key: int, version: int) -> Callable[[Buffer, int, int], Skip]:
    maker = PrefixWriter()
    with maker.put.block("def skip(buf, p, end):"):
        maker.struct(split(key, version)[0])
        maker.move()
        with maker.put.block("while p > end:"):
            maker.put("beyond = p - end")
            maker.put("buf, p, end = yield p")
            maker.put("p += beyond")
        maker.put("yield -1 - p")
    skip: Callable[[Buffer, int, int], Skip] = maker.put.build("skip", f"{schema.load(key).name} v{version} prefix")
    return skip


def tail_layout(key: int, version: int) -> Struct:
    """Return the layout of the tail alone, for `compile_walk`. Raises KeyError if this message is not streamed."""
    return split(key, version)[1]


class PrefixSkipper:
    """Finds the start of the tail of one response while the body arrives in chunks.

    feed() takes the body's bytes in order, from the first after the response header. If `done`, the tail begins after
    the bytes that feed() has counted. `ahead`: number of bytes after those fed that feed() need not see, such as the
    rest of some records; report skipped ones with passed().
    """

    __slots__ = ("ahead", "done", "left_out", "skip", "what")

    def __init__(self, key: int, version: int) -> None:
        self.what = (key, version)
        self.skip: Skip | None = None
        self.done = False
        self.ahead = self.left_out = 0

    def passed(self, size: int) -> None:
        """Count skipped bytes of those ahead."""
        self.left_out += size
        self.ahead -= size

    def feed(self, buf: Buffer, start: int, end: int) -> int:
        """Return how many of the bytes buf[start:end] precede the tail. Raises DecodeError for malformed bytes."""
        if self.done:
            return 0
        try:
            if self.skip is None:
                self.skip = skipper(*self.what)(buf, start, end)
                reached = next(self.skip)
            else:
                reached = self.skip.send((buf, start - self.left_out, end))
                self.left_out = 0
        except DecodeError as mistake:
            key, version = self.what
            raise DecodeError(
                mistake.problem, api=f"{schema.load(key).name} response", version=version, expected=mistake.expected
            ) from None
        if reached < 0:
            self.done = True
            self.skip = None
            return -1 - reached - start
        self.ahead = max(reached - end, 0)
        return end - start
