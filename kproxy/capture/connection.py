"""TCP connection in a capture: from its segments to its exchanges."""

from __future__ import annotations

from collections.abc import Callable

from kproxy.observe.exchange import ObservedExchange

from .captured_connection import CapturedConnection
from .exchanges import ExchangePairing, begins_request
from .framing import Framer
from .notes import NOTHING, Note
from .segments import FIN, RST, Segment
from .tcp import WHOLE, StreamDirection

BOTH = 3


class TcpConnection:
    """TCP connection of a capture that is being read.

    `client`: its packed address and port. `begun_before`: its beginning is not in the capture. `last`: time of the last
    segment. Of both directions, the client's comes first.
    """

    __slots__ = ("client", "directions", "ended", "exchanges", "fins", "framers", "initial", "last", "takers", "who")

    def __init__(
        self, who: CapturedConnection, client: tuple[bytes, int], take: Callable[[ObservedExchange], None], *,
        most: int, own: bool, begun_before: bool,
    ) -> None:  # fmt: skip
        self.who, self.client = who, client
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

    def finish(self, time: float | None) -> None:
        """Take what waited for missing bytes without them: the connection or the capture (`time` None) is over."""
        for side, direction in enumerate(self.directions):
            for piece in direction.give_up():
                for cut in self.framers[side].receive(piece):
                    self.takers[side](cut, NOTHING)
        self.exchanges.end()
        self.who.over = time
