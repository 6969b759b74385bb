"""Bytes of a held frame as they may be shown, made in a thread as those of kept exchanges are."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass
from typing import Any, Literal

from kproxy.core.holding.held import HeldFrame
from kproxy.observe.exchange import ObservedExchange
from kproxy.observe.filter.judge import SessionWho, whole_frame
from kproxy.rules.bodies import carries_records
from kproxy.view.frame_steps import AT_ONCE, MOST_STEPS, show_frame
from kproxy.view.shown_records import show_records

MOST_DATA = 1 << 20
"""Bytes of a frame that are shown."""


@dataclass(frozen=True, slots=True)
class HeldBytes:
    """Bytes of a held frame, without their sizes: `frame` in the client's names, None where not all of it is here;
    `broker` as the broker sent it, None where that is the same. `records`: whether users' records may be shown;
    `first`: number of the first step that is told."""

    seen: ObservedExchange
    at: Literal["request", "response"]
    frame: bytes | None
    broker: bytes | None
    records: bool
    first: int = 0

    def shown(self) -> dict[str, Any]:
        """Return `frame`, `broker` and `records` for JSON. Takes a second for a frame of a megabyte."""
        records: list[dict[str, Any]] = []
        if self.frame is not None and carries_records(self.seen.key, self.at):
            kept = whole_frame(self.frame, self.seen.key, self.seen.version, self.at, 0.0)
            if self.at == "request":
                self.seen.request = kept
            else:
                self.seen.response, self.seen.outcome = kept, "answered"
            records = show_records(self.seen, records=self.records) if not kept.withheld else []
        return {
            "frame": self.side(self.frame, "client"),
            "broker": self.side(self.broker, "broker"),
            "records": records,
        }

    def side(self, frame: bytes | None, side: str) -> dict[str, Any] | None:
        """Return the frame on one side of kproxy."""
        if frame is None:
            return None
        kept = whole_frame(frame, self.seen.key, self.seen.version, self.at, 0.0)
        most = min(self.first + AT_ONCE + 1, MOST_STEPS)
        shown = show_frame(self.seen, self.at, kept, records=self.records, most=most)
        told = shown.shown(side, self.first)
        if len(shown.data) > MOST_DATA:
            told |= {"kept": MOST_DATA, "form": "head", "data": b64encode(shown.data[:MOST_DATA]).decode()}
        return told


def bytes_of(held: HeldFrame, frame: bytes | None, records: bool, first: int) -> HeldBytes:
    """Return what is to be shown of a held frame, with this one in its place, from step number `first` on."""
    exchange, session = held.evaluation.exchange, held.session
    seen = ObservedExchange(SessionWho(session), 0, exchange.api.key, exchange.version, exchange.correlation_id,
                            exchange.client_id, None, acks=exchange.acks, depth="full")  # fmt: skip
    came = held.came() if held.at == "response" else None
    broker = came[4:] if came is not None and came[4:] != frame else None
    at: Literal["request", "response"] = "request" if held.at == "request" else "response"
    return HeldBytes(seen, at, frame, broker, records, first)
