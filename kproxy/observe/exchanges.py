"""Exchanges that are not over, and how responses find theirs."""

from __future__ import annotations

from collections import deque
from typing import Any

from .frames import Arriving
from .rows import Asked
from .seen import Seen
from .wanted import Wanted

MOST_OPEN = 2000
"""Requests that may be open at a time; kproxy itself lets a client have `max_in_flight` (1,000) and what came with them
in one read. More in a capture are requests whose responses are missing there."""


class Open:
    """Exchange of one connection that is under way. `seen` is None where only the number of frames is wanted."""

    __slots__ = ("arriving", "asked", "correlation", "kept", "seen", "wanted")
    answer = None
    """An Open has no template for its response; a class attribute, so that the loop need not ask which it has."""

    def __init__(self, correlation: int, wanted: Wanted, seen: Seen | None) -> None:
        self.correlation, self.wanted, self.seen = correlation, wanted, seen
        self.arriving: Arriving | None = None  # the request, as long as it is not whole
        self.kept = 0  # bytes of the watcher's `room` that it has
        self.asked: list[Asked] | None = None  # the request's rows, if they are known already


Entry = tuple[Any, ...]
"""(correlation id, Open or template of the request, time, size, records); the last two mean something only beside a
template, where nothing else was kept of the request."""


class Exchanges(deque[Any]):
    """Queue of the open exchanges of one connection, the oldest first."""

    def find(self, correlation: int) -> Any:
        """Take out and return the oldest entry with this correlation id; None if there is none."""
        if not self:
            return None
        if self[0][0] == correlation:
            return self.popleft()
        for at, entry in enumerate(self):
            if entry[0] == correlation:
                del self[at]
                return entry
        return None

    def place(self, correlation: int, older: int) -> int:
        """Return the index of the entry with this id that has `older` ones with it before it, -1 if none has the id.

        The newest one with this id counts if there are not so many.
        """
        found = -1
        for at, entry in enumerate(self):
            if entry[0] == correlation:
                found = at
                if not older:
                    break
                older -= 1
        return found


def add_wait(seen: Seen, seconds: float, *, response: bool, by_rule: bool) -> None:
    """Add `seconds` for which a frame of the exchange was held, to its rule waits or to its other waits."""
    request, answer = seen.rule_wait if by_rule else seen.other_wait
    both = (request, answer + seconds) if response else (request + seconds, answer)
    if by_rule:
        seen.rule_wait = both
    else:
        seen.other_wait = both
