"""Bytes of a held frame as they may be shown, as JSON. All of it is made in turns with others' work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from kproxy.protocol.breath import rest
from kproxy.record.exchange import Frame, ObservedExchange
from kproxy.record.filter.judge import SessionWho, whole_frame
from kproxy.record.live_view.frame_steps import AT_ONCE, MOST_STEPS, show_frame
from kproxy.record.live_view.rows import encode, joined
from kproxy.record.live_view.shown_records import show_records
from kproxy.rules.bodies import carries_records
from kproxy.session.holding.held import HeldFrame

MOST_DATA = 1 << 20
"""Bytes of a frame that are shown."""


@dataclass(frozen=True, slots=True)
class HeldBytes:
    """Bytes of a held frame, without their sizes: `frame` in the client's names, `came` as they came; None where not
    all of it is here. `records`: whether users' records may be shown; `first`: number of the first step that is
    told."""

    seen: ObservedExchange
    at: Literal["request", "response"]
    frame: bytes | None
    came: bytes | None
    records: bool
    first: int = 0

    def shown(self) -> bytes:
        """Return `frame`, `broker` and `records` as what stands between the braces of a JSON object."""
        seen, parts = self.seen, []
        kept = None if self.frame is None else self.kept(self.frame)
        parts.append(b'"frame":' + self.side(kept, "client"))
        differs = self.at == "response" and self.came is not None and self.came != self.frame
        broker = self.kept(self.came) if differs and self.came is not None else None
        parts.append(b'"broker":' + self.side(broker, "broker"))
        records: list[bytes] = []
        if kept is not None and carries_records(seen.key, self.at) and not kept.withheld:
            if self.at == "request":
                seen.request = kept
            else:
                seen.response, seen.outcome = kept, "answered"
            for one in show_records(seen, records=self.records):
                rest()
                records.append(encode(one))
        parts.append(b'"records":' + joined(records))
        rest()
        return b",".join(parts)

    def kept(self, data: bytes) -> Frame:
        """Return a frame as an observer would keep it."""
        rest()
        return whole_frame(data, self.seen.key, self.seen.version, self.at, 0.0)

    def side(self, kept: Frame | None, side: str) -> bytes:
        """Return the frame on one side of kproxy."""
        if kept is None:
            return b"null"
        rest()
        most = min(self.first + AT_ONCE + 1, MOST_STEPS)
        frame = show_frame(self.seen, self.at, kept, records=self.records, most=most)
        rest()
        more: dict[str, Any] = {}
        if len(frame.data) > MOST_DATA:
            frame.data, more = frame.data[:MOST_DATA], {"form": "head"}
        told = frame.shown(side, self.first) | more
        rest()
        return encode(told)


def bytes_of(held: HeldFrame, frame: bytes | None, records: bool, first: int) -> HeldBytes:
    """Return what is to be shown of a held frame, with this one in its place, from step number `first` on."""
    exchange, session = held.evaluation.exchange, held.session
    seen = ObservedExchange(SessionWho(session), 0, exchange.api.key, exchange.version, exchange.correlation_id,
                            exchange.client_id, None, acks=exchange.acks, depth="full")  # fmt: skip
    at: Literal["request", "response"] = "request" if held.at == "request" else "response"
    return HeldBytes(seen, at, frame, held.came() if at == "response" else None, records, first)
