"""Member of a pool in another process, a worker, asked over its channel."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import trio
import trio.lowlevel

from kproxy.admin.member import Member, MemberGone, RecycleChoice
from kproxy.admin.models import ConnectionShown, TopologyShown
from kproxy.admin.problem import Problem
from kproxy.process.workers.broadcast import Recipient, Recipients
from kproxy.process.workers.channel import Channel, Unanswered

from .messages import BeginTail, EndTail, NextLines, Operate

PATIENCE = 5.0
"""Seconds for an answer of a worker: an operator waits that long."""


class ChannelMember:
    """Worker of a pool as a member. `models`: held while models are made of an answer, one at a time for all members,
    since a large one takes milliseconds."""

    def __init__(self, worker: Recipient, models: trio.Lock) -> None:
        self.worker, self.models = worker, models

    @property
    def index(self) -> int:
        return self.worker.index

    @property
    def process(self) -> Channel | None:
        return self.worker.channel if self.worker.ready else None

    async def connections(self) -> Iterator[ConnectionShown]:
        rows = await self.ask("connections")
        return (ConnectionShown(**row) for row in rows)

    async def close_connection(self, number: str, reset: bool) -> ConnectionShown:
        return ConnectionShown(**await self.ask("close_connection", number, reset))

    async def recycle_connection(self, number: str) -> ConnectionShown:
        return ConnectionShown(**await self.ask("recycle_connection", number))

    async def recycle_connections(self, which: RecycleChoice) -> int:
        count: int = await self.ask("recycle_connections", which)
        return count

    async def topology(self) -> TopologyShown:
        shown = await self.ask("topology")
        async with self.models:
            await trio.lowlevel.checkpoint()
            return TopologyShown(**shown)

    def tail(self, number: int, text: str) -> ChannelTail:
        assert self.worker.channel is not None, "only a process that is there is listened to"
        return ChannelTail(self.worker, self.worker.channel, number, text)

    async def ask(self, name: str, *arguments: Any) -> Any:
        """Return the JSON of the worker's answer. Raises the Problem that it is."""
        channel = self.worker.channel
        if channel is None:
            raise MemberGone(500, "internal", f"worker {self.index} is not running")
        try:
            answer = await channel.ask(Operate(name, list(arguments)), PATIENCE)
        except Unanswered as error:
            raise unanswered(self.worker, channel, error) from None
        if answer.code:
            raise Problem(answer.status, answer.code, answer.message)
        return answer.shown


class ChannelTail:
    """Lines of one worker for one listener."""

    def __init__(self, worker: Recipient, channel: Channel, number: int, text: str) -> None:
        self.worker, self.channel, self.number, self.text = worker, channel, number, text
        self.dropped = 0

    async def begin(self) -> None:
        try:
            await self.channel.ask(BeginTail(self.number, self.text), PATIENCE)
        except Unanswered as error:
            raise unanswered(self.worker, self.channel, error) from None

    async def next(self) -> bytes:
        try:
            lines = await self.channel.ask(NextLines(self.number), math.inf)
        except Unanswered as error:
            raise MemberGone(500, "internal", f"worker {self.worker.index}: {error}") from None
        self.dropped = lines.dropped
        return lines.text

    def end(self) -> None:
        self.channel.tell(EndTail(self.number))


def unanswered(worker: Recipient, channel: Channel, error: Unanswered) -> Problem:
    """Return the problem of a worker that has not answered: its process has ended, or says nothing."""
    gone = worker.channel is not channel or channel.closed  # closed: it has ended, or is about to
    return (MemberGone if gone else Problem)(500, "internal", f"worker {worker.index}: {error}")


def members_of(pool: Recipients) -> Sequence[Member]:
    """Return the workers of a pool as members."""
    models = trio.Lock()
    return [ChannelMember(worker, models) for worker in pool.workers]
