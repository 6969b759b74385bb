"""Details of one exchange: its event, both frames on both sides of kproxy, what changed between them, its records.

All but the event is made in turns with others' work, since it may take a second.
"""

from __future__ import annotations

from typing import Any, Literal

from kproxy.record.captures.capture_sink import frames_differ
from kproxy.record.exchange import Frame, ObservedExchange
from kproxy.record.filter.view import ViewedEvent

from .changes import changes
from .frame_steps import show_frame
from .shown_records import show_records

FrameDirection = Literal["request", "response"]
FrameSide = Literal["client", "broker"]


def detail_of(
    name: str, event: ViewedEvent, seen: ObservedExchange, behind: ObservedExchange | None, *,
    source: str = "live", first: int = 0, records: bool = True, again_of: str = "",
) -> dict[str, Any]:  # fmt: skip
    """Return the details of an exchange with this id. `event`: the data of its event; `behind`: as the broker saw it,
    None where that is the same; `first`: number of the first step of each frame that is told; `records`: whether users'
    records may be shown; `again_of`: id of the exchange whose request was sent again as this one."""
    return {
        "id": name,
        "source": source,
        "again_of": again_of or None,
        "event": dict(event),
        "request": both(seen, behind, "request", first, records),
        "response": both(seen, behind, "response", first, records),
        "records": show_records(seen, records=records),
    }


def both(
    seen: ObservedExchange, behind: ObservedExchange | None, direction: FrameDirection, first: int, records: bool
) -> dict[str, Any] | None:
    """Return a frame on both sides, and the fields in which they differ; None where there is no frame."""
    front, back = frame_of(seen, direction), None if behind is None else frame_of(behind, direction)
    if behind is None or not frames_differ(front, back):
        back = None
    if front is None and back is None:
        return None
    ours = None if front is None else show_frame(seen, direction, front, records=records)
    theirs = None if back is None or behind is None else show_frame(behind, direction, back, records=records)
    return {
        "client": None if ours is None else ours.shown("client", first),
        "broker": None if theirs is None else theirs.shown("broker", first),
        "changed": [] if ours is None or theirs is None else changes(ours.steps, theirs.steps, ours.data, theirs.data),
    }


def frame_of(seen: ObservedExchange, direction: FrameDirection) -> Frame | None:
    return seen.request if direction == "request" else seen.response


def frame_bytes(
    seen: ObservedExchange,
    behind: ObservedExchange | None,
    direction: FrameDirection,
    side: FrameSide,
    *,
    records: bool,
) -> bytes | None:
    """Return what was kept of one frame and may be shown, with the length field in front if it is whole; None where
    there is none. A broker's frame that is the same as the client's is the client's."""
    found = behind if side == "broker" and behind is not None else seen
    frame = frame_of(found, direction)
    if frame is None:
        return None
    shown = show_frame(found, direction, frame, records=records)
    length = len(shown.data).to_bytes(4, "big") if shown.form == "whole" else b""
    return length + shown.data
