"""Words for how deep kproxy looks at frames: not at all, at their headers, at some places, or at all fields."""

from __future__ import annotations

from kproxy.core.step import HEAD, LIVE, STOP, STREAM, WHOLE, Step
from kproxy.rules.depth import Depth

OPAQUE = "opaque: passes as it streams in"
WHOLE_TEXT = "walk: held until it is whole, and gone through for names and addresses"
LIVE_DEPTHS = {
    Depth.HEADER: "head: its header is read, the rest streams on",
    Depth.BODY: "full: held until it is whole, and decoded",
}
PLAIN = {
    HEAD: "head: acks is read, the rest streams on",
    WHOLE: WHOLE_TEXT,
    STREAM: "walk: streams on when it is long, its end is gone through for addresses",
}


def sides(step: Step) -> tuple[str, str]:
    """Return in words how deep a plan's step looks at the request and at its response."""
    return side(step, "request"), side(step, "response")


def side(step: Step, direction: str) -> str:
    if step.request == STOP:
        return f"stopped: the connection is closed, {step.stop}" if direction == "request" else "there is none"
    if getattr(step, direction) == LIVE and step.program is not None:
        depth: Depth = getattr(step.program, direction)
        plain = side(step.plain, direction)
        if depth == Depth.NOTHING or (depth == Depth.HEADER and plain.startswith("walk")):
            return plain
        if direction == "response":
            return f"{LIVE_DEPTHS[depth]}, if a rule has fired for the request; else {plain}"
        return LIVE_DEPTHS[depth]
    if step.api == "ApiVersions" and direction == "response":
        return "full: held until it is whole, and cut to what may be used"
    return PLAIN.get(getattr(step, direction) or 0, OPAQUE)
