"""Sketches: frames without the content of their record batches, made while a frame arrives in chunks.

    body = decode_sketch(frame, 0, 12, "request")     # as decode_request, but records are a RecordsDigest
    sketcher = Sketcher(1, 17, "response")            # for a frame in chunks

Strategy: a compiled generator holds a position that may exceed the received bytes (as in `response_tail.py`), and `m`,
the first byte not kept yet. Bytes from `m` to the position are kept at the end of a chunk and before an omission; an
omission moves both. Values across two chunks are joined in `out`, the bytes kept so far.

The generator yields the number of next bytes that it will skip, 0 or less if it needs them, and receives a chunk as
(buf, start, end), or a skip as (b"", -number, 0). It never ends: bytes after the last field are kept. `decode_sketch`
is the compiled decoder with `records` read by `read_digest` (`protocol/records/entry.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import cache
from struct import Struct as Form
from typing import Any

from kproxy.base.cooperative import yield_point
from kproxy.base.errors import DecodeError
from kproxy.protocol.codec.decoder import FAILURES, DecoderWriter, Misfit, SourceCode, form, make_decoder
from kproxy.protocol.codec.message import UNSUPPORTED_VERSION
from kproxy.protocol.codec.structs import header_version
from kproxy.protocol.codec.trace import diagnosis
from kproxy.protocol.framing import MAX_HEADER_TAGS, body_start
from kproxy.protocol.primitives import MAX_LENGTH, Buffer, Chunk
from kproxy.protocol.records.entry import (
    BATCH,
    KEPT,
    KEPT_OF_OTHERS,
    LENGTH,
    LENGTH_AT,
    MAGIC_AT,
    OVERHEAD,
    RecordHeaders,
    RecordsDigest,
    read_digest,
    read_headers,
    whole_entry,
)
from kproxy.protocol.table import layout, schema
from kproxy.protocol.table.api_keys import API_VERSIONS
from kproxy.protocol.table.layout import FIXED, Slot, Struct

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
    """Advance by `size` bytes, which are then contiguous at the end of `out`."""
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
    """Pass a `records` field of `size` bytes, and keep the bytes listed in `protocol/records/entry.py`."""
    while size > MAGIC_AT:
        yield_point()
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
        self.put.names.update(yield_point=yield_point)
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
                self.put("yield_point()")
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
            self.put("yield_point()")
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


ANY = 1 << 31
"""Bytes: more than a frame has."""
MOST_SKETCH = 256 * 1024
"""Maximum bytes of a sketch. They are decoded at the end of the frame without a yield, at 20 to 50 MB/s. A Fetch
response of 2,000 partitions fits."""


@cache
def sketch(key: int, version: int, direction: str) -> Sketch | None:
    """Return the generator that sketches these frames; None if they are kept as they are: no records in them, or
    nothing known of them."""
    try:
        body = layout.body(key, version, direction)
    except KeyError:
        return None
    if not any(slot.type == "records" for slot in body.everywhere()):
        return None
    return make_sketch(key, version, direction, f"{schema.load(key).name} {direction} v{version}")


class Sketcher:
    """Sketcher of one frame. `failed`: reason for a missing sketch, empty otherwise; later bytes are ignored.

    `unseen`: number of next bytes that it does not need; pass them to `pass_over` instead of `feed`.
    """

    __slots__ = ("_kept", "_make", "_steps", "failed", "most", "unseen")

    def __init__(self, key: int, version: int, direction: str, *, most: int = MOST_SKETCH) -> None:
        """Begin with nothing. `direction`: request or response. `most`: bytes that are kept."""
        self.most = most
        self.failed = ""
        self._kept = bytearray()
        self._make = sketch(key, version, direction)
        self._steps: SketchSteps | None = None
        self.unseen = 0

    def feed(self, buf: Buffer, start: int, end: int) -> None:
        """Take the next bytes of the frame, buf[start:end]. Raises nothing."""
        if self.failed or start >= end:
            return
        kept = self._kept
        if self._make is None:
            kept += buf[start : min(end, start + self.most + 1 - len(kept))]
        else:
            try:
                if self._steps is None:
                    self._steps = self._make(kept, buf, start, end)
                    self.unseen = next(self._steps)
                else:
                    self.unseen = self._steps.send((buf, start, end))
            except (Misfit, DecodeError) as mistake:
                self._fail(f"its structure cannot be followed: {mistake}")
        if len(kept) > self.most:
            self._fail(f"more than {self.most} bytes would have to be kept")

    def pass_over(self, size: int) -> None:
        """Pass over the next bytes of the frame, at most `unseen`."""
        if self._steps is not None:
            self.unseen = self._steps.send((b"", -size, 0))

    def _fail(self, why: str) -> None:
        self.failed, self._steps, self.unseen = why, None, ANY

    def data(self) -> bytes:
        """Return the bytes that were kept, at most `most`."""
        return bytes(self._kept[: self.most])


__all__ = ["MOST_SKETCH", "RecordHeaders", "RecordsDigest", "Sketcher", "decode_sketch"]


def whole_field(buf: bytes, p: int, size: int, end: int) -> tuple[RecordsDigest, int]:
    if size > end - p:
        raise Misfit
    return read_digest(buf, p, size)


def sketched_field(buf: bytes, p: int, size: int, end: int) -> tuple[RecordsDigest, int]:
    return read_digest(buf, p, size, sketched=True)


def whole_headers(buf: bytes, p: int, size: int, end: int) -> tuple[RecordHeaders, int]:
    if size > end - p:
        raise Misfit
    return read_headers(buf, p, size)


def sketched_headers(buf: bytes, p: int, size: int, end: int) -> tuple[RecordHeaders, int]:
    return read_headers(buf, p, size, sketched=True)


FIELD_READERS = {
    (False, False): whole_field,
    (True, False): sketched_field,
    (False, True): whole_headers,
    (True, True): sketched_headers,
}
"""Readers of a `records` field, by (sketched, headers)."""


class SketchDecoderWriter(DecoderWriter):
    def __init__(self, sketched: bool, headers: bool) -> None:
        super().__init__()
        self.put.names["read_field"] = FIELD_READERS[sketched, headers]

    def sized(self, slot: Slot, count: str) -> str:
        if slot.type != "records":
            return super().sized(slot, count)
        put, variable = self.put, self.put.fresh()
        name = count or self.compact("long_length")
        size = name if count else f"{name} - 1"
        with put.block(f"if {size} >= 0:"):
            put(f"{variable}, p = read_field(buf, p, {size}, end)")
        with put.block("else:"):
            self.null(size)
            put(f"{variable} = None")
        return variable


@cache
def decoder(key: int, version: int, direction: str, sketched: bool, headers: bool) -> Any:
    """Return `decode(buf: bytes, p, end) -> (dict, position)` of this body. Raises KeyError as `layout.body` does."""
    label = f"{schema.load(key).name} {direction} v{version} sketch"
    return make_decoder(layout.body(key, version, direction), label, SketchDecoderWriter(sketched, headers))


def decode_sketch(
    frame: Buffer, key: int, version: int, direction: str, *, sketched: bool = False, headers: bool = False
) -> dict[str, Any]:
    """Return the body of a frame (without its size), with a RecordsDigest or None for records.

    `headers`: they are RecordHeaders or None. `direction`: request or response. `sketched`: the frame is a Sketcher's.
    The header and bytes after the last field are ignored. Raises only DecodeError.
    """
    data = frame if type(frame) is bytes else bytes(frame)
    if direction == "response" and key == API_VERSIONS and data[4:6] == UNSUPPORTED_VERSION:
        try:  # KIP-511: a broker that lacks the version answers in the form of version 0
            return read_body(data, key, version, direction, sketched, headers)
        except DecodeError:
            version = 0
    return read_body(data, key, version, direction, sketched, headers)


def read_body(data: bytes, key: int, version: int, direction: str, sketched: bool, headers: bool) -> dict[str, Any]:
    try:
        decode = decoder(key, version, direction, sketched, headers)
    except KeyError as mistake:
        raise DecodeError(str(mistake.args[0])) from None
    p = body_start(data, 0, len(data), header_version(key, version, direction), direction) or 0
    try:
        if not p:
            raise Misfit
        body: dict[str, Any] = decode(data, p, len(data))[0]
    except FAILURES:
        raise explain(data, p, key, version, direction, sketched) from None
    return body


def explain(data: bytes, p: int, key: int, version: int, direction: str, sketched: bool) -> DecodeError:
    api = f"{schema.load(key).name} {direction}"
    if not p:
        return DecodeError(f"{len(data)} bytes", api=api, version=version, path="header", expected="a whole header")
    if sketched:  # offsets in a sketch have no meaning
        return DecodeError("its sketch cannot be read", api=api, version=version)
    return diagnosis(layout.body(key, version, direction), data, p, api, version)
