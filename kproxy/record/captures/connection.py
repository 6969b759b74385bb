"""TCP connections in a capture: from their segments to their exchanges, once it is known which side is the server.

Of a connection that began before the capture did, at unknown ports, that takes more than a segment: the beginning of a
response can look like an old request. The client is who sends what looks like a request and then gets an answer with
its correlation id. What the supposed client sends is kept until then, within bounds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from kproxy.record.exchange import ObservedExchange

from .captured_connection import NOTHING, CapturedConnection, Note
from .exchanges import ExchangePairing, begins_request
from .framing import Framer
from .packet_file import Packet
from .segments import FIN, RST, Segment
from .tcp import WHOLE, StreamDirection

BOTH = 3


class TcpConnection:
    """TCP connection of a capture that is being read.

    `client`: its packed address and port. `begun_before`: its beginning is not in the capture. `last`: time of the last
    segment. Of both directions, the client's comes first.
    """

    __slots__ = (
        "client", "directions", "ended", "exchanges", "fins", "framers", "gap_from", "gap_to", "initial", "last",
        "takers", "who",
    )  # fmt: skip

    def __init__(
        self, who: CapturedConnection, client: tuple[bytes, int], take: Callable[[ObservedExchange], None], *,
        most: int, own: bool, begun_before: bool,
    ) -> None:  # fmt: skip
        self.who, self.client = who, client
        who.older = begun_before
        self.exchanges = ExchangePairing(who, take, own=own)
        self.framers = (
            Framer(begins_request, most, lost=begun_before),
            Framer(self.exchanges.begins_response, most, lost=begun_before),
        )
        self.directions = (StreamDirection(), StreamDirection())
        self.takers = (self.exchanges.request, self.exchanges.response)
        self.initial: list[int | None] = [None, None]
        self.fins: list[int | None] = [None, None]
        """Sequence numbers behind the last bytes, as the ends of both directions have them."""
        self.ended = 0
        self.last = who.opened
        self.gap_from: float | None = None
        self.gap_to: float | None = None
        """Seconds since 1970 of the first and the last piece with missing bytes."""

    def begin(self, side: int, sequence: int) -> bool:
        """Take a SYN of this side; False if it is not this connection's, because the ports are used again."""
        initial = self.initial[side]
        if initial is None and self.directions[side].next < 0:
            self.initial[side] = sequence
            self.directions[side].begin(sequence)
            return True
        return initial == sequence

    def receive(self, segment: Segment, time: float, note: Note) -> bool:
        """Take a segment, and return True if the connection is over now.

        `note`: the note at the packet, about the frame that ends in it.
        """
        self.last = time
        side = 0 if (segment.source, segment.source_port) == self.client else 1
        direction = self.directions[side]
        if segment.size:
            framer, take = self.framers[side], self.takers[side]
            for piece in direction.receive(segment.sequence, segment.data, segment.size, time):
                if piece.missing:
                    self.gap_from, self.gap_to = min(piece.time, self.gap_from or piece.time), time
                frames = framer.receive(piece)
                for cut in frames:
                    take(cut, note if note and cut is frames[-1] else NOTHING)
        if segment.flags & RST:
            return True
        if segment.flags & FIN:
            self.fins[side] = (segment.sequence + segment.size) % WHOLE
        fin = self.fins[side]
        if fin is not None and direction.next in (fin, -1):
            self.ended |= 1 << side
        return self.ended == BOTH

    @property
    def damaged(self) -> bool:
        """Return True if frames of the connection may be missing between those that were read."""
        lost = any(direction.gaps for direction in self.directions) or any(one.lost_places for one in self.framers)
        return lost or bool(self.exchanges.unread)

    def finish(self, time: float | None) -> None:
        """Take what waited for missing bytes without them: the connection or the capture (`time` None) is over."""
        for side, direction in enumerate(self.directions):
            for piece in direction.give_up():
                if piece.missing:
                    self.gap_from, self.gap_to = min(piece.time, self.gap_from or piece.time), self.last
                for cut in self.framers[side].receive(piece):
                    self.takers[side](cut, NOTHING)
        self.exchanges.end()
        self.who.over = time


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
