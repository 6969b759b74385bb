"""Broadcast of one question to all workers at the same time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

import trio

from .channel import Channel, Question, Unanswered

A = TypeVar("A")


class Recipient(Protocol):
    """Worker that can be asked; `channel` is None while no process is in its place, `ready` once it takes
    connections."""

    @property
    def index(self) -> int: ...
    @property
    def channel(self) -> Channel | None: ...
    @property
    def ready(self) -> bool: ...


class Recipients(Protocol):
    """Pool of workers that can be asked."""

    @property
    def workers(self) -> Sequence[Recipient]: ...

    def restart(self, worker: Any, reason: str) -> object:
        """End the worker's process at once; another is started."""


async def ask_all(pool: Recipients, question: Question[A], patience: float) -> list[tuple[Recipient, A | Unanswered]]:
    """Return the answers of the workers that are ready, or why there is none, in their order. A worker that ends
    meanwhile is left out."""
    answers: list[tuple[Recipient, A | Unanswered]] = []

    async def ask_one(worker: Recipient, channel: Channel) -> None:
        answer: A | Unanswered
        try:
            answer = await channel.ask(question, patience)
        except Unanswered as error:
            answer = error
        if worker.channel is channel and not channel.closed:  # closed: its process has ended, or is about to
            answers.append((worker, answer))

    async with trio.open_nursery() as nursery:
        for worker in pool.workers:
            if worker.ready and worker.channel is not None:
                nursery.start_soon(ask_one, worker, worker.channel)
    return sorted(answers, key=lambda each: each[0].index)
