"""Entries of a queue found by their ids, without going through the queue each time.

Strategy. The queues of what is in flight are appended to and taken from where every cycle counts, so nobody tells the
index of it. When it is asked, it looks what is new at the queue's end, back to the last entry that it knows, and how
much has left at the front; so each entry costs it a moment once, however often it is asked.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

QueueEntry = tuple[Any, ...]


class IdIndex:
    """Index of a queue that grows at its end only and shrinks at its front only, by what `id_of` says of an entry
    (None: it is not to be found). Whoever replaces or removes an entry elsewhere makes another index."""

    __slots__ = ("first", "id_of", "ids", "last", "numbers", "queue")

    def __init__(self, queue: deque[Any], id_of: Callable[[QueueEntry], int | None]) -> None:
        self.queue, self.id_of = queue, id_of
        self.ids: deque[int | None] = deque()  # of the entries that are known, in order
        self.numbers: dict[int, deque[int]] = {}  # by id, the numbers of its entries, the first one first
        self.first = 0  # number of the entry at the front
        self.last: QueueEntry | None = None

    def count(self, wanted: int) -> int:
        """Return how many entries have this id."""
        self.follow()
        return len(self.numbers.get(wanted, ()))

    def place(self, wanted: int, older: int) -> int:
        """Return the index of the entry with this id that has `older` ones with it before it, or of the last with it if
        there are not so many; -1 if none has it."""
        self.follow()
        found = self.numbers.get(wanted)
        return -1 if found is None else found[min(older, len(found) - 1)] - self.first

    def follow(self) -> None:
        """Take note of what has come and gone since the last time."""
        new: list[QueueEntry] = []
        for entry in reversed(self.queue):
            if entry is self.last:
                break
            new.append(entry)
        else:  # all that was known has left
            self.first += len(self.ids)
            self.ids.clear()
            self.numbers.clear()
        for _ in range(len(self.ids) + len(new) - len(self.queue)):
            gone = self.ids.popleft()
            self.first += 1
            if gone is not None:
                numbers = self.numbers[gone]
                numbers.popleft()
                if not numbers:
                    del self.numbers[gone]
        number = self.first + len(self.ids)
        for entry in reversed(new):
            came = self.id_of(entry)
            self.ids.append(came)
            if came is not None:
                self.numbers.setdefault(came, deque()).append(number)
            number += 1
        self.last = self.queue[-1] if self.queue else None
