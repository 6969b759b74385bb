"""Connections that began before the capture did, at unknown ports, until it is known which side is the server.

Strategy: the beginning of a response can look like an old request, so one segment does not decide. The client is who
sends what looks like a request and then gets an answer with its correlation id. What the supposed client sends is kept
until then, within bounds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from .exchanges import begins_request
from .packet_file import Packet
from .segments import Segment

MOST = 1000
"""Pairs of addresses that are undecided; of more, the one that was met first is forgotten."""
MOST_SEGMENTS = 64
"""Kept of a supposed request; a longer one is forgotten, and the next one is waited for."""

FlowKey = tuple[int, bytes, int, bytes, int]


class KeptSegment(NamedTuple):
    """Segment that is kept, with the packet it came in."""

    segment: Segment
    packet: Packet


@dataclass(slots=True)
class SupposedClient:
    """Connection with a supposed client. `key`: with the client first; None as long as no request was met."""

    key: FlowKey | None = None
    correlation_id: bytes = b""
    kept: list[KeptSegment] = field(default_factory=list)


class UndecidedConnections:
    """Connections of a capture whose client is not known yet. `never`: how many were forgotten."""

    def __init__(self) -> None:
        self.by_pair: dict[FlowKey, SupposedClient] = {}
        self.never = 0

    def __len__(self) -> int:
        return len(self.by_pair) + self.never

    def meet(self, there: FlowKey, back: FlowKey, kept: KeptSegment) -> tuple[FlowKey, list[KeptSegment]] | None:
        """Take a segment on the way `there`.

        Once the client is known, returns the key with the client first, and all segments that were kept.
        """
        pair = min(there, back)
        supposed = self.by_pair.get(pair)
        if supposed is None:
            supposed = self.by_pair[pair] = SupposedClient()
            if len(self.by_pair) > MOST:
                del self.by_pair[next(iter(self.by_pair))]
                self.never += 1
        data = kept.segment.data
        if supposed.key == back and data[4:8] == supposed.correlation_id:
            del self.by_pair[pair]
            return back, [*supposed.kept, kept]
        if begins_request(data) and len(data) >= 12:
            supposed.key, supposed.correlation_id, supposed.kept = there, data[8:12], [kept]
        elif supposed.key == there:
            supposed.kept.append(kept)
            if len(supposed.kept) > MOST_SEGMENTS:
                supposed.key, supposed.kept = None, []
        return None

    def forget(self, there: FlowKey, back: FlowKey) -> None:
        """Forget a connection whose client has become known by a SYN."""
        self.by_pair.pop(min(there, back), None)
