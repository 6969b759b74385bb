"""Broadcast of one question to all workers at the same time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

import trio

from .channel import Channel, Question, Unanswered

A = TypeVar("A")


class Member(Protocol):
    """Worker that can be asked; `channel` is None while no process is in its place, `ready` once it takes
    connections."""

    @property
    def index(self) -> int: ...
    @property
    def channel(self) -> Channel | None: ...
    @property
    def ready(self) -> bool: ...


class Crew(Protocol):
    """Pool of workers that can be asked."""

    @property
    def members(self) -> Sequence[Member]: ...

    def restart(self, member: Any, reason: str) -> object:
        """End the worker's process at once; another is started."""


async def ask_all(crew: Crew, question: Question[A], patience: float) -> list[tuple[Member, A | Unanswered]]:
    """Return the answers of the workers that are ready, or why there is none, in their order. A worker that ends
    meanwhile is left out."""
    answers: list[tuple[Member, A | Unanswered]] = []

    async def one(member: Member, channel: Channel) -> None:
        said: A | Unanswered
        try:
            said = await channel.ask(question, patience)
        except Unanswered as error:
            said = error
        if member.channel is channel and not channel.closed:  # closed: its process has ended, or is about to
            answers.append((member, said))

    async with trio.open_nursery() as nursery:
        for member in crew.members:
            if member.ready and member.channel is not None:
                nursery.start_soon(one, member, member.channel)
    return sorted(answers, key=lambda each: each[0].index)
