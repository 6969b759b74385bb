"""Decides how much of a frame is kept, and makes the `Frame` of an exchange from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kproxy.wire.scan.sketch import MOST_SKETCH, Sketcher
from kproxy.wire.table.api_keys import SASL_HANDSHAKE

from .credentials import REQUEST, RESPONSE, header_end, take_out
from .error_places import is_long_list
from .exchanges import Open
from .frames import SIZE_BYTES, Arriving
from .seen import Depth, Form, Frame
from .wanted import HEAD_KEPT, RECORDS, SMALL

if TYPE_CHECKING:
    from .watcher import Watcher

DIRECTIONS = (REQUEST, RESPONSE)
CUT_SECRET = "config values in a frame that is too long to be looked at as a whole"


def keep(watcher: Watcher, frame: Arriving, found: Open, which: int) -> None:
    """Settle a frame whose header is here: decide how much of it is kept. `which`: 0 a request, 1 a response."""
    wanted = found.wanted
    depth, direction, total = wanted.depths[which], DIRECTIONS[which], frame.total
    if wanted.key == SASL_HANDSHAKE:  # read in any case: it decides if raw tokens follow
        depth = max(depth, Depth.SKETCH)
    if depth < Depth.SKETCH or (wanted.nested and is_long_list(wanted.key, total - SIZE_BYTES)):
        frame.settle(0)
        return
    if wanted.secret[which]:
        frame.secret = wanted.secret[which]
        head = header_end(frame.data[SIZE_BYTES:], wanted.key, wanted.version, direction)
        frame.settle(SIZE_BYTES + head)
        return
    most = SIZE_BYTES + watcher.most
    sketch = (wanted.key, direction) in RECORDS and total > (SMALL if depth == Depth.SKETCH else most)
    kept = min(total, most)
    if sketch and depth == Depth.SKETCH:
        kept = 0
    if wanted.values[which] and total > most:
        frame.secret = CUT_SECRET
        frame.settle(SIZE_BYTES + header_end(frame.data[SIZE_BYTES:], wanted.key, wanted.version, direction))
        return
    if not watcher.reserve(found, kept + (min(total, MOST_SKETCH) if sketch else 0)):
        kept, sketch = min(total, HEAD_KEPT), False
        if wanted.values[which] and kept < total:
            frame.secret = CUT_SECRET
            kept = SIZE_BYTES + header_end(frame.data[SIZE_BYTES:], wanted.key, wanted.version, direction)
    frame.settle(kept, Sketcher(wanted.key, wanted.version, direction) if sketch else None)


def frame_of(frame: Arriving, found: Open, which: int, now: float) -> Frame:
    """Return the `Frame` of an exchange from what was kept of a frame, whole or cut; `now`: when its last byte came."""
    made = Frame(frame.total, frame.first, now)
    wanted = found.wanted
    if wanted.depths[which] < Depth.SKETCH:
        return made
    data = bytes(memoryview(frame.data)[SIZE_BYTES:])
    sketcher, whole = frame.sketcher, frame.whole
    if frame.secret:
        made.data, made.form, made.withheld = data, Form.HEAD, frame.secret
    elif not whole and wanted.values[which]:
        made.data = data[: header_end(data, wanted.key, wanted.version, DIRECTIONS[which])]
        made.form, made.withheld = Form.HEAD, CUT_SECRET
    elif len(frame.data) == frame.total:
        made.data, made.withheld = take_out(data, wanted.key, wanted.version, DIRECTIONS[which])
        made.form = Form.WHOLE if len(made.data) == len(data) else Form.HEAD
    elif sketcher is None:
        made.data, made.form = data, Form.HEAD
    elif data:  # the first bytes and a sketch were wanted
        made.data, made.form = data, Form.HEAD
        if whole and not sketcher.failed:
            made.sketch = sketcher.data()
    else:
        made.data = sketcher.data()
        made.form = Form.SKETCH if whole and not sketcher.failed else Form.HEAD
    if sketcher is not None and sketcher.failed and found.seen is not None:
        found.seen.unread = sketcher.failed
    return made
