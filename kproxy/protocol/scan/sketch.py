"""Sketches: frames without the inside of their record batches, and the numbers that batch headers tell.

    body = decode_sketch(frame, 0, 12, "request")     # as decode_request, but records are a RecordsDigest
    sketcher = Sketcher(1, 17, "response")            # for a frame that comes in chunks: keeps all but records' insides

Strategy: the compiled decoder of a layout (`protocol/codec/decoder.py`), in which a `records` field is a call of
`read_digest`. What a sketched field holds is said in `protocol/records/digest.py`; a Sketcher makes it.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from kproxy.base.errors import DecodeError
from kproxy.protocol.codec.compiled import FAILURES, Misfit
from kproxy.protocol.codec.decoder import DecoderWriter, make_decoder
from kproxy.protocol.codec.message import UNSUPPORTED_VERSION
from kproxy.protocol.codec.structs import header_version
from kproxy.protocol.codec.trace import diagnosis
from kproxy.protocol.primitives import Buffer
from kproxy.protocol.records.digest import RecordHeaders, RecordsDigest, read_digest, read_headers
from kproxy.protocol.table import layout, schema
from kproxy.protocol.table.api_keys import API_VERSIONS
from kproxy.protocol.table.layout import Slot

from .head import body_start
from .sketch_source import Sketch, SketchSteps, make_sketch

ANY = 1 << 31
"""Bytes: more than a frame has."""
MOST_SKETCH = 256 * 1024
"""Bytes of a sketch. They are decoded in one go at the end of the frame, at 20 to 50 MB/s; nobody else is served in the
meantime. A Fetch response of 2,000 partitions fits."""


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
    """Sketcher of one frame. `failed`: why there is no sketch, empty as long as all is well; what comes then is passed
    over.

    `unseen`: how many of the bytes that come next are of no concern to it; `pass_over` takes them in place of `feed`.
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
"""Readers of a `records` field, by whether it is sketched, and whether each header is wanted."""


class SketchDecoderWriter(DecoderWriter):
    """Writer of decoders in which a `records` field is read by its headers."""

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
    """Return the body of a frame (without its length field), in which records are a RecordsDigest or None; with
    `headers` they are RecordHeaders or None.

    `direction`: request or response; the header is passed over, and so are bytes behind the last field, which real
    clients send. `sketched`: the frame came from a Sketcher. Raises DecodeError, and nothing else, for any bytes.
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
    """Return the error that says what is wrong with a frame, and where."""
    api = f"{schema.load(key).name} {direction}"
    if not p:
        return DecodeError(f"{len(data)} bytes", api=api, version=version, path="header", expected="a whole header")
    if sketched:  # offsets in a sketch would say nothing
        return DecodeError("its sketch cannot be read", api=api, version=version)
    return diagnosis(layout.body(key, version, direction), data, p, api, version)
