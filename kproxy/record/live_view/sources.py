"""Sources of exchanges beside what passes: captures that somebody has opened in the view, read into spools.

They are few, since each takes room on the disk, and go by themselves when nobody has looked at them for an hour.
"""

from __future__ import annotations

import os
from array import array
from dataclasses import dataclass, field
from time import monotonic, time

from .reading import ReadingResult
from .spool import Spool

MOST_SOURCES = 4
"""Open at a time, those that are being sent or read included."""
IDLE = 3600.0
"""Seconds after which a source goes that nobody has looked at."""


@dataclass(eq=False)
class OpenedCapture:
    """Capture that is open in the view. `size`: bytes of the file; `opened`: seconds since 1970."""

    id: str
    name: str
    size: int
    result: ReadingResult
    spool: Spool
    opened: float = field(default_factory=time)
    looked_at: float = field(default_factory=monotonic)
    """When somebody has last looked at it, by the monotonic clock."""

    @property
    def left(self) -> float:
        """Return the seconds after which it goes if nobody looks."""
        return max(0.0, self.looked_at + IDLE - monotonic())


class OpenedCaptures:
    """Open sources by their ids, s1 and so on. `opening`: places that are taken by files that are not read yet. `stay`:
    whether they are open for good."""

    def __init__(self, most: int = MOST_SOURCES, *, stay: bool = False) -> None:
        self.most, self.stay = most, stay
        self.by_id: dict[str, OpenedCapture] = {}
        self.opening = self.count = 0
        self.looks = False  # whether somebody looks now and then whose time is over

    @property
    def full(self) -> bool:
        """Return True if there is no place for another one; those whose time is over make room."""
        self.expire()
        return len(self.by_id) + self.opening >= self.most

    def add(self, name: str, size: int, result: ReadingResult, spool: Spool) -> OpenedCapture:
        """Add a file that was read, and return the source that it is now."""
        self.count += 1
        source = OpenedCapture(f"s{self.count}", name, size, result, spool)
        self.by_id[source.id] = source
        return source

    def find(self, identifier: str) -> OpenedCapture | None:
        """Return the source of this id, and note that somebody looks at it; None if there is none."""
        self.expire()
        source = self.by_id.get(identifier)
        if source is not None:
            source.looked_at = monotonic()
        return source

    def remove(self, source: OpenedCapture) -> None:
        """Close a source; its spool is gone then."""
        self.by_id.pop(source.id, None)
        source.spool.close()

    def expire(self) -> None:
        """Close the sources that nobody has looked at for an hour."""
        if not self.stay:
            for source in [one for one in self.by_id.values() if not one.left]:
                self.remove(source)

    def close(self) -> None:
        """Close all sources, whoever looks at them."""
        for source in list(self.by_id.values()):
            self.remove(source)


def read_places(number: int, result: ReadingResult) -> array[int]:
    """Return the places of the exchanges in a spool that a reading process has written. Raises OSError, and ValueError
    where they are not all there."""
    places = array("q")
    wanted = 2 * places.itemsize * result.exchanges
    data = bytearray()
    while len(data) < wanted:
        piece = os.pread(number, min(1 << 20, wanted - len(data)), result.end + len(data))
        if not piece:
            raise ValueError(f"the spool has {len(data)} bytes of places, expected {wanted}")
        data += piece
    places.frombytes(bytes(data))
    return places
