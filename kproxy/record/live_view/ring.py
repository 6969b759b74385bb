"""Ring of the exchanges that a process keeps for those who look, and for who comes a little later.

Each exchange has a number, by which it is asked for, and a place, which is a new one each time that something of it
changes: who has seen all places up to one goes on behind it. Both count from a first number on and never repeat.
"""

from __future__ import annotations

from collections.abc import Iterator

from kproxy.record.exchange import Frame, ObservedExchange

MOST_KEPT = 20_000
"""Exchanges of a process; a page shows them as 50 screens."""
SMALLEST = 1000
"""Bytes that an exchange counts for at least: the objects that it is made of."""


class KeptExchange:
    """Exchange that is kept. `behind`: as the broker saw it, where its bytes are others. `row`: as JSON, once it was
    made. `over`: it is answered, or known to remain without an answer; else it is under way. `again_of`: id of the
    exchange whose request was sent again as this one, empty if none was."""

    __slots__ = ("again_of", "behind", "number", "over", "place", "row", "seen", "size")

    def __init__(self, number: int, place: int, seen: ObservedExchange, over: bool) -> None:
        self.number, self.place, self.seen, self.over = number, place, seen, over
        self.behind: ObservedExchange | None = None
        self.row = b""
        self.again_of = ""
        self.size = 0


class ExchangeRing:
    """Ring of at most `most` exchanges and `most_bytes` bytes; the oldest go first. Numbers and places begin at
    `first`."""

    def __init__(self, most_bytes: int, first: int = 1, most: int = MOST_KEPT) -> None:
        self.most, self.most_bytes, self.wanted = most, most_bytes, most_bytes
        self.by_number: dict[int, KeptExchange] = {}
        self.first = self.oldest = self.next = first
        self.place = first - 1
        """Place that was given last."""
        self.gone_place = first - 1
        """The last place of those that are gone."""
        self.bytes = 0

    def __len__(self) -> int:
        return len(self.by_number)

    def use(self, most_bytes: int) -> Iterator[None]:
        """Keep at most so many bytes, one exchange less in each step until it is so. What comes meanwhile is kept."""
        self.wanted = most_bytes
        while self.wanted == most_bytes and self.bytes > most_bytes and len(self.by_number) > 1:
            self._drop_oldest()
            self.most_bytes = max(most_bytes, min(self.most_bytes, self.bytes))
            yield
        if self.wanted == most_bytes:
            self.most_bytes = most_bytes

    def add(self, seen: ObservedExchange, *, over: bool = True) -> KeptExchange:
        """Keep an exchange, and let go of the oldest ones for which there is no room any more."""
        self.place += 1
        kept = self.by_number[self.next] = KeptExchange(self.next, self.place, seen, over)
        self.next += 1
        self.measure(kept)
        return kept

    def end(self, kept: KeptExchange) -> None:
        """Note that an exchange which was under way is over; it has another place from now on."""
        self.place += 1
        kept.place, kept.over, kept.row = self.place, True, b""
        if kept.number in self.by_number:
            self.measure(kept)

    def put_behind(self, kept: KeptExchange, behind: ObservedExchange) -> None:
        """Keep what the broker saw of an exchange, which its row tells from now on."""
        kept.behind, kept.row = behind, b""
        if kept.number in self.by_number:
            self.measure(kept)

    def measure(self, kept: KeptExchange) -> None:
        """Count the bytes of an exchange that is kept, since they have changed."""
        size = SMALLEST + frames_size(kept.seen) + len(kept.row)
        if kept.behind is not None:
            size += frames_size(kept.behind)
        self.bytes += size - kept.size
        kept.size = size
        while len(self.by_number) > self.most or (self.bytes > self.most_bytes and len(self.by_number) > 1):
            self._drop_oldest()

    def put_row(self, kept: KeptExchange, row: bytes) -> None:
        if kept.number in self.by_number:
            kept.row = row
            self.measure(kept)

    def get(self, number: int) -> KeptExchange | None:
        """Return the exchange of this number; None if it is gone, or was never there."""
        return self.by_number.get(number)

    def had(self, number: int) -> bool:
        """Return True if an exchange of this number was kept, and is gone."""
        return self.first <= number < self.oldest

    def newest(self, before: int | None = None) -> Iterator[KeptExchange]:
        """Yield the exchanges with numbers below `before`, the newest first; others may come and go meanwhile."""
        last = self.next if before is None else min(before, self.next)
        for number in range(last - 1, self.oldest - 1, -1):
            kept = self.by_number.get(number)
            if kept is not None:
                yield kept

    def behind_place(self, place: int) -> tuple[list[KeptExchange], int]:
        """Return the exchanges that have changed behind this place, in order, and how many such are gone."""
        found = sorted((one for one in self.by_number.values() if one.place > place), key=lambda one: one.place)
        return found, max(0, self.gone_place - place)

    def is_place(self, place: int) -> bool:
        """Return False for a place that this ring has not given yet, as is one of a process that was here before."""
        return self.first - 1 <= place <= self.place

    def clear(self) -> None:
        while self.by_number:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        kept = self.by_number.pop(self.oldest)
        self.oldest += 1
        self.bytes -= kept.size
        self.gone_place = max(self.gone_place, kept.place)


def frames_size(seen: ObservedExchange) -> int:
    """Return the bytes that were kept of the frames of an exchange."""
    return frame_size(seen.request) + frame_size(seen.response)


def frame_size(frame: Frame | None) -> int:
    return 0 if frame is None else len(frame.data) + len(frame.sketch)
