"""Changes of held frames in all processes, for one viewer.

Strategy. All members are asked four times a second for what is new; a member that has nothing says so in a few bytes.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import trio

from kproxy.record.live_view.rows import encode, joined

from .backend import Backend
from .held_news import GoneShown, HeldNewsShown
from .member import Member
from .problem import Problem

PAUSE = 0.25
"""Seconds between two questions; so late is a frame shown at most."""


class HeldFollower:
    """Follower of the news of one member: how far it has come, and what it has been told to be held there."""

    def __init__(self) -> None:
        self.process: object | None = None
        self.number: int | None = None
        self.here: set[str] = set()

    def begins(self, member: Member) -> None:
        """Forget how far it has come if another process is in the member's place."""
        if member.process is not self.process:
            self.process, self.number = member.process, None

    def take(self, news: HeldNewsShown) -> dict[str, list[Any]]:
        """Return what a viewer is to be told of this news."""
        gone = list(news.gone)
        here = {name for _, name, _ in news.added}
        if news.whole:  # what is not there any more went with its process, or too long ago
            gone += [GoneShown(id=one, how="closed", who="") for one in sorted(self.here - here)]
            self.here = here
        else:
            self.here = (self.here | here) - {one.id for one in gone}
        self.number = news.number
        return {"added": news.added, "changed": news.changed, "gone": gone}


async def held_changes(backend: Backend) -> AsyncGenerator[bytes, None]:
    """Yield what is held now, if anything is, then what becomes of it, as JSON: `added`, `changed` and `gone`."""
    followers = {member.index: HeldFollower() for member in backend.members}

    async def ask(member: Member) -> tuple[int, HeldNewsShown]:
        return member.index, await member.held_news(followers[member.index].number)

    while True:
        for member in backend.members:
            followers[member.index].begins(member)
        told: dict[str, list[bytes]] = {"added": [], "changed": [], "gone": []}
        try:
            answers = await backend.ask_members(ask)
        except Problem:  # one that says nothing is asked again
            answers = []
        for index, news in answers:
            taken = followers[index].take(news)
            for name in ("added", "changed"):
                told[name] += [row.encode() for _, _, row in taken[name]]
            told["gone"] += [encode({"id": one.id, "how": one.how, "who": one.who}) for one in taken["gone"]]
        if any(told.values()):
            yield b"{" + b",".join(f'"{name}":'.encode() + joined(rows) for name, rows in told.items()) + b"}"
        await trio.sleep(PAUSE)
