"""Requests that await responses, found by correlation id without a search through the queue.

Strategy. Appending to and removing from the queues in flight is a hot path, so the index is not notified. On a lookup
it reads the new entries at the queue's end, back to the last known entry, and counts the removals at the front. Each
entry is indexed once.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable
from typing import Any

QueueEntry = tuple[Any, ...]
MOST_TAKEN = 1000
"""Entries removed from the middle until the index is rebuilt."""


class IdIndex:
    """Index of a queue that grows only at its end and shrinks only at its front, keyed by `id_of` (None: not indexed).
    The queue is a parameter, since it may own the index. Entries elsewhere are removed by `take`; replacing one
    requires a new index, unless `last` is updated."""

    __slots__ = ("first", "id_of", "ids", "last", "numbers", "taken")

    def __init__(self, id_of: Callable[[QueueEntry], int | None]) -> None:
        self.id_of = id_of
        self.ids: deque[int | None] = deque()  # of the entries that are known, in order
        self.numbers: dict[int, deque[int]] = {}  # by id, the numbers of its entries, the first one first
        self.first = 0  # number of the entry at the front, or of one taken out before it
        self.taken: list[int] = []  # numbers from there on that were taken out, in order
        self.last: QueueEntry | None = None

    def count(self, queue: deque[Any], wanted: int) -> int:
        self.follow(queue)
        return len(self.numbers.get(wanted, ()))

    def place(self, queue: deque[Any], wanted: int, older: int) -> int:
        """Return the index of the entry with this id that follows `older` others with it, or of the last with it if
        there are fewer; -1: none."""
        self.follow(queue)
        found = self.numbers.get(wanted)
        return -1 if found is None else self.index_of(found[min(older, len(found) - 1)])

    def take(self, queue: deque[Any], wanted: int) -> QueueEntry | None:
        """Take the first entry with this id out of the queue, and return it; None if none has it."""
        self.follow(queue)
        found = self.numbers.get(wanted)
        if found is None:
            return None
        number = found.popleft()
        if not found:
            del self.numbers[wanted]
        at = self.index_of(number)
        entry: QueueEntry = queue[at]
        del queue[at], self.ids[at]
        insort(self.taken, number)
        self.last = queue[-1] if queue else None
        if len(self.taken) > MOST_TAKEN:  # an entry at the front keeps its position
            self.forget()
        return entry

    def index_of(self, number: int) -> int:
        return number - self.first - bisect_left(self.taken, number)

    def forget(self) -> None:
        """Clear the index: no indexed entry is left, or the queue is to be indexed again."""
        self.ids.clear()
        self.numbers.clear()
        self.taken.clear()
        self.first, self.last = 0, None

    def follow(self, queue: deque[Any]) -> None:
        """Index the changes since the last call."""
        new: list[QueueEntry] = []
        for entry in reversed(queue):
            if entry is self.last:
                break
            new.append(entry)
        else:
            self.forget()
        for _ in range(len(self.ids) + len(new) - len(queue)):
            self.pass_taken()
            gone = self.ids.popleft()
            self.first += 1
            if gone is not None:
                numbers = self.numbers[gone]
                numbers.popleft()
                if not numbers:
                    del self.numbers[gone]
        number = self.first + len(self.ids) + len(self.taken)
        for entry in reversed(new):
            came = self.id_of(entry)
            self.ids.append(came)
            if came is not None:
                self.numbers.setdefault(came, deque()).append(number)
            number += 1
        self.last = queue[-1] if queue else None

    def pass_taken(self) -> None:
        """Have `first` be the number of the entry at the front: those before it were taken out."""
        count = 0
        while count < len(self.taken) and self.taken[count] == self.first:
            self.first += 1
            count += 1
        del self.taken[:count]


class Pairing(deque[Any]):
    """Requests of one connection that await responses, oldest first. `id_of`: correlation id of an entry."""

    def __init__(self, id_of: Callable[[Any], int]) -> None:
        super().__init__()
        self.id_of = id_of
        self.ids: IdIndex | None = None  # made at the first search beyond the oldest entry

    def find(self, correlation: int) -> Any:
        """Remove and return the oldest entry with this id; None if missing."""
        if self and self.id_of(self[0]) == correlation:
            return self.popleft()
        return self._ids.take(self, correlation) if self else None

    def skip_to(self, correlation: int) -> list[Any] | None:
        """Remove and return the entries before the oldest one with this id. None: no entry has the id.

        For streams with gaps: brokers respond in order, so the responses to these entries are missing.
        """
        at = self.place(correlation)
        return None if at < 0 else [self.popleft() for _ in range(at)]

    def replace(self, at: int, entry: QueueEntry) -> None:
        """Replace the entry at `at` by one with the same id."""
        if self.ids is not None and self.ids.last is self[at]:
            self.ids.last = entry
        self[at] = entry

    def place(self, correlation: int, older: int = 0) -> int:
        """Return the index of the entry with this id that follows `older` others with it, -1 if none has the id.

        If fewer have this id, the newest one counts.
        """
        if not older and self and self.id_of(self[0]) == correlation:
            return 0
        return self._ids.place(self, correlation, older) if self else -1

    @property
    def _ids(self) -> IdIndex:
        if self.ids is None:
            self.ids = IdIndex(self.id_of)
        return self.ids
