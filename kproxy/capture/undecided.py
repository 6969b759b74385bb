"""Connections that began before the capture did, at ports that nobody has named: which side is the server?

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

Key = tuple[int, bytes, int, bytes, int]


class Kept(NamedTuple):
    """A segment with the packet it came in."""

    segment: Segment
    packet: Packet


@dataclass(slots=True)
class Supposed:
    """`key`: with the supposed client first; None as long as nothing like a request was met."""

    key: Key | None = None
    correlation_id: bytes = b""
    kept: list[Kept] = field(default_factory=list)


class Undecided:
    """`never`: how many were forgotten."""

    def __init__(self) -> None:
        self.by_pair: dict[Key, Supposed] = {}
        self.never = 0

    def __len__(self) -> int:
        return len(self.by_pair) + self.never

    def meet(self, there: Key, back: Key, kept: Kept) -> tuple[Key, list[Kept]] | None:
        """A segment on the way `there`; once it is decided, the key with the client first, and all that was kept."""
        pair = min(there, back)
        found = self.by_pair.get(pair)
        if found is None:
            found = self.by_pair[pair] = Supposed()
            if len(self.by_pair) > MOST:
                del self.by_pair[next(iter(self.by_pair))]
                self.never += 1
        data = kept.segment.data
        if found.key == back and data[4:8] == found.correlation_id:
            del self.by_pair[pair]
            return back, [*found.kept, kept]
        if begins_request(data) and len(data) >= 12:
            found.key, found.correlation_id, found.kept = there, data[8:12], [kept]
        elif found.key == there:
            found.kept.append(kept)
            if len(found.kept) > MOST_SEGMENTS:
                found.key, found.kept = None, []
        return None

    def forget(self, there: Key, back: Key) -> None:
        """It is decided otherwise."""
        self.by_pair.pop(min(there, back), None)
