"""Changes of held frames for viewers.

Each process numbers its changes, and every viewer polls all processes four times a second. A viewer that missed too
many changes receives the whole list again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any

import trio
from pydantic import Field

from kproxy.record.live_view.rows import encode, joined
from kproxy.rules.rule_set import HowGone
from kproxy.session.held_frames import HeldFrame

from .held_frames import HeldFrames, first_of
from .models import Shown
from .problem import Problem

if TYPE_CHECKING:
    from .backend import Backend
    from .worker_api import Member

MOST_NEWS = 2000  # Changes that a process remembers; viewers that missed more receive the whole list


class GoneShown(Shown):
    """Frame that is held no more."""

    id: str
    how: HowGone
    who: str


HeldRow = tuple[str, str, str]  # Since when a frame is held, its id, and the frame as JSON


class HeldNewsShown(Shown):
    """News of one process, up to this number. `whole`: `added` is all that it holds."""

    number: int
    whole: bool = False
    added: list[HeldRow] = Field(default_factory=list)
    changed: list[HeldRow] = Field(default_factory=list)
    gone: list[GoneShown] = Field(default_factory=list)


class HeldNews:
    def __init__(self, frames: HeldFrames) -> None:
        self.frames = frames
        self.number = 0
        self.latest: deque[tuple[int, str, str | GoneShown]] = deque(maxlen=MOST_NEWS)
        frames.desk.tell.append(self.on_change)

    def on_change(self, what: str, held: HeldFrame, how: HowGone | None, who: str) -> None:
        """Record a change. A frame that another rule still holds continues with the id of that hold."""
        first = first_of(held)
        if how is not None:
            self.note("gone", GoneShown(id=held.id, how=how, who=who))
            if first is not held:
                self.note("added", first.id)
        else:
            self.note(what if first is held else "changed", first.id)

    def note(self, what: str, one: str | GoneShown) -> None:
        self.number += 1
        self.latest.append((self.number, what, one))

    async def since(self, number: int | None) -> HeldNewsShown:
        """Return changes after this number; None: all held frames."""
        latest = self.number
        if number == latest:
            return HeldNewsShown(number=latest)
        first = self.latest[0][0] if self.latest else self.number + 1
        if number is None or not first - 1 <= number <= latest:
            return HeldNewsShown(number=latest, whole=True, added=(await self.frames.show_all()).rows)
        added: dict[str, None] = {}
        changed: dict[str, None] = {}
        gone: list[GoneShown] = []
        for at, what, one in self.latest:
            if at <= number:
                continue
            if isinstance(one, GoneShown):
                added.pop(one.id, None)
                changed.pop(one.id, None)
                gone.append(one)
            elif what == "added":
                added[one] = None
            elif one not in added:
                changed[one] = None
        held = self.frames.desk.held
        new = await self.frames.rows([held[one] for one in added if one in held])
        others = await self.frames.rows([held[one] for one in changed if one in held])
        return HeldNewsShown(number=latest, added=new, changed=others, gone=gone)


PAUSE = 0.25  # Seconds between two questions; so late is a frame shown at most


class HeldFollower:
    """Position of one viewer in one member's changes, and the ids that it was sent."""

    def __init__(self) -> None:
        self.process: object | None = None
        self.number: int | None = None
        self.here: set[str] = set()

    def begins(self, member: Member) -> None:
        """Reset the position if another process took the member's place."""
        if member.process is not self.process:
            self.process, self.number = member.process, None

    def take(self, news: HeldNewsShown) -> dict[str, list[Any]]:
        """Return the changes to send to the viewer."""
        gone = list(news.gone)
        here = {name for _, name, _ in news.added}
        if news.whole:  # missing ids ended with their process, or too long ago
            gone += [GoneShown(id=one, how="closed", who="") for one in sorted(self.here - here)]
            self.here = here
        else:
            self.here = (self.here | here) - {one.id for one in gone}
        self.number = news.number
        return {"added": news.added, "changed": news.changed, "gone": gone}


async def held_changes(backend: Backend) -> AsyncGenerator[bytes, None]:
    """Yield the held frames, if any, and then their changes as JSON: `added`, `changed` and `gone`."""
    followers = {member.index: HeldFollower() for member in backend.members}

    async def ask(member: Member) -> tuple[int, HeldNewsShown]:
        return member.index, await member.held_news(followers[member.index].number)

    while True:
        for member in backend.members:
            followers[member.index].begins(member)
        told: dict[str, list[bytes]] = {"added": [], "changed": [], "gone": []}
        try:
            answers = await backend.ask_members(ask)
        except Problem:  # a member that does not respond is asked again
            answers = []
        for index, news in answers:
            taken = followers[index].take(news)
            for name in ("added", "changed"):
                told[name] += [row.encode() for _, _, row in taken[name]]
            told["gone"] += [encode({"id": one.id, "how": one.how, "who": one.who}) for one in taken["gone"]]
        if any(told.values()):
            yield b"{" + b",".join(f'"{name}":'.encode() + joined(rows) for name, rows in told.items()) + b"}"
        await trio.sleep(PAUSE)
