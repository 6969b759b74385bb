"""Entries of a queue found by their ids, without going through the queue each time.

Strategy. Appending to and removing from the queues in flight is a hot path, so the index is not notified. On a lookup
it reads the new entries at the queue's end, back to the last known entry, and counts the removals at the front. Each
entry is indexed once.

Requests in flight, in order (promise 2).

An entry is a tuple (correlation id, step, time, note): `time` is when the request's header was read, `note` the state
that the request's rewrite keeps for the response's. Two steps of their own mark entries without a client's request.
`ANSWER` is a response made by kproxy that waits for its turn (note: the bytes). `OWN` is a request made by kproxy
(note: callback for the response's frame).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable
from typing import Any

from .plan import WHOLE, Step

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


FifoEntry = tuple[int, Step, float, Any]

ANSWER = Step(-1, -1, "kproxy-answer")
OWN = Step(-1, -1, "kproxy-request")
ANSWER.response = OWN.response = WHOLE  # the response lane handles them
ANSWERED, ASKED = -1, -2
"""Placeholders of these two among API keys."""

REMEMBERED = 1024
"""acks=0 Produce requests whose unrequested response is still recognised. librdkafka's mock answers them, real brokers
do not; none of them answers more than a thousand frames late."""


def clients_id(entry: FifoEntry) -> int | None:
    """Return the correlation id of a client's request; None for a request of kproxy's own."""
    return None if entry[1] is OWN else entry[0]


class InFlight:
    """Requests of one connection that await responses: the FIFO, and the correlation ids of recently forwarded acks=0
    requests, which have no entry in it."""

    __slots__ = ("fifo", "index", "noted", "unanswered")

    def __init__(self) -> None:
        self.fifo: deque[FifoEntry] = deque()
        self.index: IdIndex | None = None  # made at the first lookup by id
        self.unanswered: deque[int] | None = None  # made with the first one
        self.noted = 0  # acks=0 requests so far

    def count(self, correlation: int) -> int:
        """Return how many requests of the client with this id are unanswered."""
        if self.index is None:
            self.index = IdIndex(clients_id)
        return self.index.count(self.fifo, correlation)

    def note_unanswered(self, correlation: int) -> None:
        """Note that an acks=0 request with this correlation id was forwarded."""
        if self.unanswered is None:
            self.unanswered = deque(maxlen=REMEMBERED)
        self.unanswered.append(correlation)
        self.noted += 1

    def newest(self) -> tuple[FifoEntry | None, int]:
        """Return a value that changes with each forwarded request."""
        return (self.fifo[-1] if self.fifo else None), self.noted

    def is_unanswered(self, correlation: int) -> bool:
        """Return True if this id belongs to a recent acks=0 request."""
        return self.unanswered is not None and correlation in self.unanswered

    def forget_unanswered(self, correlation: int) -> None:
        """Remove an acks=0 request that has been answered although it requested no response."""
        assert self.unanswered is not None
        self.unanswered.remove(correlation)

    def take_answers(self) -> list[bytes]:
        """Take the answers of kproxy's own that are at the head of the FIFO now, and return them."""
        ready = []
        while self.fifo and self.fifo[0][1] is ANSWER:
            ready.append(self.fifo.popleft()[3])
        self.rest()
        return ready

    def rest(self) -> None:
        """Release the last indexed entry, if nothing is in flight: it may hold a long response."""
        if not self.fifo:
            self.index = None
