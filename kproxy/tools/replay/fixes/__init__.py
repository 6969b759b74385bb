"""Fixes: what a recorded request says about its cluster and moment, turned into what another cluster understands.

A fix is one file. It changes requests before they are sent (`request`), in the order of FIXES, and learns from
responses (`answer`) what the target calls the thing that the recorded cluster called by another name or number.
`OutgoingRequest` is the request on its way.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from kproxy.protocol import Message
from kproxy.tools.replay.recording import RecordedExchange


@dataclass(slots=True, eq=False)
class OutgoingRequest:
    """Recorded request on its way to the target.

    `message` is what will be sent, to be changed; `link` is the number of the connection that it goes over; `notes` are
    things that the report should say about it.
    """

    exchange: RecordedExchange
    message: Message
    link: int
    notes: list[str] = field(default_factory=list)


class Fix(Protocol):
    """Fix of one kind of value in requests."""

    requests: frozenset[int]
    """Keys of the APIs whose requests it changes."""
    answers: frozenset[int]
    """Keys of the APIs whose answers it learns from."""

    def request(self, request: OutgoingRequest) -> None:
        """Change the body of the request's message in place."""
        ...

    def answer(self, request: OutgoingRequest, recorded: Message | None, now: Message) -> None:
        """Learn from the target's response. `recorded` is the recorded response, None if that is not known."""
        ...
