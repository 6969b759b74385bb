"""What a recorded request says about the cluster and the moment that it was recorded on, said to another cluster.

A fix is one file. It changes requests before they are sent (`request`), in the order of FIXES, and learns from answers
(`answer`) what the target calls the thing that the recorded cluster called by another name or number. `Asked` is the
request on its way.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from kproxy.wire import Message

from ..recording import Exchange


@dataclass(slots=True, eq=False)
class Asked:
    """A recorded request on its way to the target. `message` is what will be sent, to be changed; `link` is the number
    of the connection that it goes over; `notes` are things that the report should say about it."""

    exchange: Exchange
    message: Message
    link: int
    notes: list[str] = field(default_factory=list)


class Fix(Protocol):
    """One kind of change."""

    requests: frozenset[int]
    """Keys of the APIs whose requests it changes."""
    answers: frozenset[int]
    """Keys of the APIs whose answers it learns from."""

    def request(self, asked: Asked) -> None:
        """Change `asked.message.body` in place."""
        ...

    def answer(self, asked: Asked, recorded: Message | None, now: Message) -> None:
        """The target has answered. `recorded` is what was answered in the recording, None if that is not known."""
        ...
