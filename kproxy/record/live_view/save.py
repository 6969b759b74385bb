"""One exchange as a capture of its own, which `kproxy show`, Wireshark and the view can open."""

from __future__ import annotations

from dataclasses import replace
from io import BytesIO

from kproxy.record.captures.capture_sink import host_port
from kproxy.record.captures.policy import Policy
from kproxy.record.captures.redact import Redaction
from kproxy.record.captures.writer import CaptureEndpoint, CaptureWriter, ToWallTime
from kproxy.record.exchange import Frame, ObservedExchange
from kproxy.rules.bodies import carries_records


def saved_exchange(
    seen: ObservedExchange, behind: ObservedExchange | None, server: CaptureEndpoint, wall: ToWallTime, *, records: bool
) -> bytes:
    """Return a pcapng file with an exchange, and with what passed of it at the broker where that was something else.
    `server`: the address at kproxy that its client was connected to; `records`: whether users' records may be in it."""
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
