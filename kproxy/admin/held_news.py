"""News of held frames, for those who look: each process numbers its own, and is asked for the latest.

What a viewer missed for too long is told anew as a whole.
"""

from __future__ import annotations

from collections import deque

from pydantic import Field

from kproxy.rules.rule_set import HowGone
from kproxy.session.holding.held import HeldFrame

from .held_frames import HeldFrames, first_of
from .models import Shown

MOST_NEWS = 2000
"""News that a process remembers; who has missed more is told all that is held."""


class GoneShown(Shown):
    """Frame that is held no more."""

    id: str
    how: HowGone
    who: str


HeldRow = tuple[str, str, str]
"""Since when a frame is held, its id, and the frame as JSON."""


class HeldNewsShown(Shown):
    """News of one process, up to this number. `whole`: `added` is all that it holds."""

    number: int
    whole: bool = False
    added: list[HeldRow] = Field(default_factory=list)
    changed: list[HeldRow] = Field(default_factory=list)
    gone: list[GoneShown] = Field(default_factory=list)


class HeldNews:
    """News of the frames that this process holds."""

    def __init__(self, frames: HeldFrames) -> None:
        self.frames = frames
        self.number = 0
        self.latest: deque[tuple[int, str, str | GoneShown]] = deque(maxlen=MOST_NEWS)
        frames.desk.tell.append(self.told)

    def told(self, what: str, held: HeldFrame, how: HowGone | None, who: str) -> None:
        """Note a change of a frame. A frame that another rule still holds goes on under the id of that hold."""
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
        """Return the news since this number; None: all that is held."""
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
