"""Details of one exchange: its event, its frames on both sides of kproxy, their differences, its records.

All parts but the event yield to other work, since they may take a second. `saved_exchange` returns the exchange as a
capture that `kproxy show`, Wireshark and the view can open.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from io import BytesIO
from typing import Any, Literal

from kproxy.base.cooperative import yielding
from kproxy.record.captures.policy import Policy
from kproxy.record.captures.redact import Redaction
from kproxy.record.captures.running_captures import frames_differ, host_port
from kproxy.record.captures.writer import CaptureEndpoint, CaptureWriter, ToWallTime
from kproxy.record.exchange import Frame, ObservedExchange
from kproxy.record.filters import ViewedEvent
from kproxy.rules.bodies import carries_records
from kproxy.rules.content.schemas import SchemaCache

from .frame_steps import show_frame, show_records

StepSpan = tuple[int, int]
"""First byte and the one behind the last."""
MOST_CHANGES = 1000
"""Fields reported as changed; beyond that the frames are different."""


def changes(
    client: Iterable[list[Any]], broker: Iterable[list[Any]], ours_data: bytes = b"", theirs_data: bytes = b""
) -> list[dict[str, Any]]:
    """Return the fields whose values differ between the steps of two frames, or that only one has. They are in the
    order of their paths, each with its place in both frames; None if it is missing. With the bytes of both frames, byte
    values are compared by content, otherwise by length."""
    ours, theirs = values(client, ours_data), values(broker, theirs_data)
    found: list[dict[str, Any]] = []
    for path in yielding((*ours, *(path for path in theirs if path not in ours))):
        mine, other = ours.get(path), theirs.get(path)
        if mine is None or other is None or mine[1] != other[1]:
            found.append({"path": path, "client": mine and list(mine[0]), "broker": other and list(other[0])})
            if len(found) == MOST_CHANGES:
                break
    return found


def values(steps: Iterable[list[Any]], data: bytes = b"") -> dict[str, tuple[StepSpan, Any]]:
    """Return place and value of each step that has one of its own, by path; names above fields have none."""
    return {
        step[3] if step[4] == "value" else f"{step[3]} ({step[4]})": ((step[0], step[1]), value_in(step, data))
        for step in yielding(steps)
    }


def value_in(step: list[Any], data: bytes) -> Any:
    """Return the value of a step; of bytes in the frame these bytes themselves, with their length before them."""
    value = step[6]
    if not isinstance(value, dict) or "bytes" not in value or "packed" in value:
        return value
    return value, data[step[0] : step[1]]


FrameDirection = Literal["request", "response"]
FrameSide = Literal["client", "broker"]


def detail_of(
    name: str, event: ViewedEvent, seen: ObservedExchange, behind: ObservedExchange | None, *,
    source: str = "live", first: int = 0, records: bool = True, cache: SchemaCache | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Return the details of an exchange with this id. `event`: the data of its event. `behind`: the broker side; None
    if it is the same. `first`: number of the first reported step of each frame. `records`: users' records may be shown.
    `cache`: as for `show_records`. The caller sets `again_of`, the id of the exchange whose request was resent."""
    return {
        "id": name,
        "source": source,
        "again_of": None,
        "event": dict(event),
        "request": both(seen, behind, "request", first, records),
        "response": both(seen, behind, "response", first, records),
        "records": show_records(seen, records=records, cache=cache),
    }


def both(
    seen: ObservedExchange, behind: ObservedExchange | None, direction: FrameDirection, first: int, records: bool
) -> dict[str, Any] | None:
    """Return a frame on both sides, and the fields that differ; None without a frame."""
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
    """Return the kept bytes of one frame that may be shown, after the length field if it is whole; None without a
    frame. A broker's frame that is the same as the client's is the client's."""
    found = behind if side == "broker" and behind is not None else seen
    frame = frame_of(found, direction)
    if frame is None:
        return None
    shown = show_frame(found, direction, frame, records=records)
    length = len(shown.data).to_bytes(4, "big") if shown.form == "whole" else b""
    return length + shown.data


def saved_exchange(
    seen: ObservedExchange, behind: ObservedExchange | None, server: CaptureEndpoint, wall: ToWallTime, *, records: bool
) -> bytes:
    """Return a pcapng file with an exchange, and its broker side if that differs. `server`: the address at kproxy that
    its client was connected to; `records`: whether users' records may be in it."""
    file = BytesIO()
    writer = CaptureWriter(file, Policy("full"), wall=wall, about={"side": "both"})
    writer.write(shown(seen, records), server)
    if behind is not None:
        writer.write_broker(shown(behind, records), host_port(behind.who.broker))
    last = max((frame.last for frame in (seen.request, seen.response) if frame is not None), default=0.0)
    writer.closed(seen.who, last)
    writer.finish(last, "asked")
    return file.getvalue()


def shown(seen: ObservedExchange, records: bool) -> ObservedExchange:
    """Return an exchange as it may leave, without records where those are not to be shown."""
    if records:
        return seen
    return replace(seen, request=without(seen, "request"), response=without(seen, "response"), _bodies=[None, None])


def without(seen: ObservedExchange, direction: str) -> Frame | None:
    frame = seen.request if direction == "request" else seen.response
    if frame is None or not carries_records(seen.key, direction):
        return frame
    return Redaction().frame(seen, frame, direction)
