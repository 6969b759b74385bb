"""Sketches of frames that come in chunks: all their bytes, but not the inside of their record batches.

sketcher = Sketcher(1, 17, "response") sketcher.feed(buf, start, end) the frame's bytes in order, header first, in
chunks of any size sketcher.data() the sketch; or, if `failed` says why there is none, the first bytes of the frame
"""

from __future__ import annotations

from functools import cache

from kproxy.errors import DecodeError
from kproxy.wire.codec.decode_support import Misfit
from kproxy.wire.primitives import Buffer
from kproxy.wire.table import layout, schema

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
