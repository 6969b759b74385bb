"""One question to all workers at the same time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

import trio

from .channel import Channel, Question, Unanswered

A = TypeVar("A")


class Member(Protocol):
    """A worker's place; `channel` is None while no process is in it, `ready` once it takes connections."""

    @property
    def index(self) -> int: ...
    @property
    def channel(self) -> Channel | None: ...
    @property
    def ready(self) -> bool: ...


class Crew(Protocol):
    """All workers."""

    @property
    def members(self) -> Sequence[Member]: ...

    def restart(self, member: Any, reason: str) -> object:
        """End its process at once; another is started."""


async def ask_all(crew: Crew, question: Question[A], patience: float) -> list[tuple[Member, A | Unanswered]]:
    """What those that are ready say, or why they say nothing; in their order. Who ends meanwhile is left out."""
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
