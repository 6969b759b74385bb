"""Requests in flight, in order (promise 2).

An entry is a tuple (correlation id, step, time, note): `time` is when the request's header was read, `note` the state
that the request's rewrite keeps for the response's. Two steps of their own mark entries without a client's request.
`ANSWER` is a response made by kproxy that waits for its turn (note: the bytes). `OWN` is a request made by kproxy
(note: callback for the response's frame).
"""

from __future__ import annotations

from collections import deque
from typing import Any

from kproxy.protocol.pairing import IdIndex

from .plan import WHOLE, Step

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
        self.release_last()
        return ready

    def release_last(self) -> None:
        """Release the last indexed entry, if nothing is in flight: it may hold a long response."""
        if not self.fifo:
            self.index = None
