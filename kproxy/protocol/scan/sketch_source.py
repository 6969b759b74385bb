"""Generators that sketch one kind of frame while it comes in chunks, and the code that makes them.

Strategy: as in `tail.py`, a position that may lie beyond the bytes that have come. Beside it stands `m`, the first byte
that was not kept yet: bytes from `m` to the position are kept when a chunk ends, or when something is to be left out;
leaving out is to move both. What crosses the border of two chunks is put together in `out`, the bytes kept so far.

The generator is given a chunk as (buf, its start, its end) whenever it yields how many bytes it will pass over in what
comes, 0 or less if it will look; they may be left out as the chunk (nothing, minus their number, 0). It never ends by
itself: what comes after the last field is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from struct import Struct as Form

from kproxy.protocol.breath import breathe
from kproxy.protocol.codec.compiled import Misfit, SourceCode, form
from kproxy.protocol.codec.structs import header_version
from kproxy.protocol.primitives import MAX_LENGTH, Buffer, Chunk
from kproxy.protocol.records.digest import KEPT, KEPT_OF_OTHERS, LENGTH, whole_entry
from kproxy.protocol.records.entry import BATCH, LENGTH_AT, MAGIC_AT, OVERHEAD
from kproxy.protocol.table import layout
from kproxy.protocol.table.layout import FIXED, Slot, Struct

from .head import MAX_HEADER_TAGS
from .walk_source import CLASSIC, slot_width, width

ChunkState = tuple[Buffer, int, int, int]
"""(buf, position, end, m)."""
SketchSteps = Generator[int, Chunk, None]
Sketch = Callable[[bytearray, Buffer, int, int], SketchSteps]


def more(out: bytearray, buf: Buffer, p: int, end: int, m: int) -> Generator[int, Chunk, ChunkState]:
    """Keep what is to be kept of this chunk, and go on to the next."""
    if m < end:
        out += buf[m:end]
        m = end
    beyond, left_out = p - end, m - end
    buf, p, end = yield left_out
    return buf, p + beyond, end, p + left_out


def gather(out: bytearray, size: int, buf: Buffer, p: int, end: int, m: int) -> Generator[int, Chunk, ChunkState]:
    """Go `size` bytes on; they stand at the end of `out` then, one after the other."""
    p += size
    while p > end:
        buf, p, end, m = yield from more(out, buf, p, end, m)
    out += buf[m:p]
    return buf, p, end, p


def far_varint(
    out: bytearray, first: int, buf: Buffer, p: int, end: int, m: int
) -> Generator[int, Chunk, tuple[int, Buffer, int, int, int]]:
    """Read the rest of a varint that goes on after the byte `first`. Raises Misfit if it is too long."""
    value = first & 0x7F
    for shift in range(7, 35, 7):
        while p >= end:
            buf, p, end, m = yield from more(out, buf, p, end, m)
        byte = buf[p]
        p += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
    else:
        raise Misfit("a varint goes on after 5 bytes")
    if value > MAX_LENGTH:
        raise Misfit(f"a length of {value}")
    return value, buf, p, end, m


def far_number(
    out: bytearray, number: Form, buf: Buffer, p: int, end: int, m: int
) -> Generator[int, Chunk, tuple[int, Buffer, int, int, int]]:
    """Read a number of fixed width that does not lie in this chunk as a whole."""
    buf, p, end, m = yield from gather(out, number.size, buf, p, end, m)
    (value,) = number.unpack_from(out, len(out) - number.size)
    return value, buf, p, end, m


def records(out: bytearray, size: int, buf: Buffer, p: int, end: int, m: int) -> Generator[int, Chunk, ChunkState]:
    """Go over a `records` field of `size` bytes, and keep of it what `protocol/records/digest.py` says."""
    while size > MAGIC_AT:
        breathe()
        if end - p >= BATCH.size:
            here, at, have = buf, p, 0
        else:
            buf, p, end, m = yield from gather(out, KEPT_OF_OTHERS, buf, p, end, m)
            here, at, have = out, len(out) - KEPT_OF_OTHERS, KEPT_OF_OTHERS
        magic = here[at + MAGIC_AT]
        (length,) = LENGTH.unpack_from(here, at + LENGTH_AT)
        whole = whole_entry(magic, length, size)
        kept, all_of_it = (KEPT[magic], OVERHEAD + length) if whole else (KEPT_OF_OTHERS, size)
        if have:
            buf, p, end, m = yield from gather(out, kept - have, buf, p, end, m)
        else:
            p += kept
            out += buf[m:p]
        p += all_of_it - kept
        m = p
        size -= all_of_it
    if m < p:
        out += buf[m:p]
    return buf, p + size, end, p + size


class SketchSourceWriter:
    """Writer of the generator `sketch(out, buf, p, end)`."""

    def __init__(self) -> None:
        self.put = SourceCode()
        self.put.names.update(Misfit=Misfit, more=more, far_varint=far_varint, far_number=far_number, records=records)
        self.put.names.update(breathe=breathe)
        self.behind = 0

    def move(self) -> None:
        if self.behind:
            self.put(f"p += {self.behind}")
        self.behind = 0

    def varint(self) -> None:
        """Write the lines that read a varint into `n`."""
        self.move()
        with self.put.block("while p >= end:"):
            self.put("buf, p, end, m = yield from more(out, buf, p, end, m)")
        self.put("n = buf[p]")
        self.put("p += 1")
        with self.put.block("if n > 127:"):
            self.put("n, buf, p, end, m = yield from far_varint(out, n, buf, p, end, m)")

    def number(self, code: str) -> None:
        """Write the lines that read INT16 or INT32 into `n`; -1 is null, and nothing lies below."""
        self.move()
        size = form(code).size
        name = self.put.refer(form(code), "F")
        with self.put.block(f"if end - p >= {size}:"):
            self.put(f"n, = {name}.unpack_from(buf, p)")
            self.put(f"p += {size}")
        with self.put.block("else:"):
            self.put(f"n, buf, p, end, m = yield from far_number(out, {name}, buf, p, end, m)")
        with self.put.block("if n < -1:"):
            self.put("raise Misfit(f'a length of {n}')")

    def length(self, slot: Slot) -> None:
        """Write the lines that read a length or a count into `n`; -1 is null."""
        if slot.compact:
            self.varint()
            self.put("n -= 1")
        else:
            self.number("i" if slot.array else CLASSIC[slot.type][0])

    def struct(self, struct: Struct, most_tags: int | None = None) -> None:
        """Write the lines that pass a struct; `most_tags` limits its tagged fields (None: no limit)."""
        assert not any(slot.type == "records" for tagged in struct.tagged for slot in inside(tagged))
        for slot in struct.slots:
            self.slot(slot)
        if struct.flexible:
            self.varint()
            if most_tags is not None:
                with self.put.block(f"if n > {most_tags}:"):
                    self.put(f"raise Misfit(f'{{n}} header tags, expected at most {most_tags}')")
            with self.put.block("for _ in range(n):"):
                self.put("breathe()")
                self.varint()
                self.varint()
                self.put("p += n")

    def slot(self, slot: Slot) -> None:
        size = slot_width(slot)
        if slot.array:
            self.array(slot)
        elif size is not None:
            self.behind += size
        elif slot.struct is not None:
            assert not slot.nullable, "no message with records has a nullable struct outside of its tags"
            self.struct(slot.struct)
        else:
            self.length(slot)
            with self.put.block("if n > 0:"):
                if slot.type == "records":
                    self.put("buf, p, end, m = yield from records(out, n, buf, p, end, m)")
                else:
                    self.put("p += n")

    def array(self, slot: Slot) -> None:
        """Write the lines that pass an array of numbers or of structs; no message with records has one of strings."""
        self.length(slot)
        size = FIXED[slot.type][1] if slot.struct is None else width(slot.struct)
        if size is not None:  # in a loop, a false count would cost time without needing bytes
            with self.put.block("if n > 0:"):
                self.put(f"p += n * {size}")
            return
        assert slot.struct is not None
        with self.put.block("for _ in range(n):"):
            self.put("breathe()")
            self.struct(slot.struct)
            self.move()


def inside(slot: Slot) -> list[Slot]:
    return [slot, *(slot.struct.everywhere() if slot.struct is not None else ())]


def make_sketch(key: int, version: int, direction: str, label: str) -> Sketch:
    """Return the generator `sketch(out, buf, p, end)` of a frame, its header first. Raises KeyError as `layout.body`
    does."""
    maker = SketchSourceWriter()
    put = maker.put
    with put.block("def sketch(out, buf, p, end):"):
        put("m = p")
        maker.struct(layout.header(direction, header_version(key, version, direction)), MAX_HEADER_TAGS)
        maker.struct(layout.body(key, version, direction))
        maker.move()
        with put.block("while True:"):
            with put.block("if p < end:"):
                put("p = end")
            put("buf, p, end, m = yield from more(out, buf, p, end, m)")
    sketch: Sketch = put.build("sketch", f"{label} sketch")
    return sketch
