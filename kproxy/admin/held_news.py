"""News of held frames, for those who look: each process numbers its own, and is asked for the latest.

What a viewer missed for too long is told anew as a whole.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from pydantic import Field

from kproxy.core.holding.held import HeldFrame
from kproxy.rules.running import HowGone

from .held_frames import HeldFrames
from .held_models import HeldShown
from .models import Shown

MOST_NEWS = 2000
"""News that a process remembers; who has missed more is told all that is held."""


class GoneShown(Shown):
    """Frame that is held no more."""

    id: str
    how: HowGone
    who: str


class HeldNewsShown(Shown):
    """News of one process, up to this number. `whole`: `added` is all that it holds."""

    number: int
    whole: bool = False
    added: list[HeldShown] = Field(default_factory=list)
    changed: list[HeldShown] = Field(default_factory=list)
    gone: list[GoneShown] = Field(default_factory=list)


class HeldNews:
    """News of the frames that this process holds."""

    def __init__(self, frames: HeldFrames) -> None:
        self.frames = frames
        self.number = 0
        self.latest: deque[tuple[int, str, str | GoneShown]] = deque(maxlen=MOST_NEWS)
        frames.desk.tell.append(self.told)

    def told(self, what: str, held: HeldFrame, how: HowGone | None, who: str) -> None:
        """Note what has become of a frame."""
        self.number += 1
        self.latest.append((self.number, what, GoneShown(id=held.id, how=how, who=who) if how is not None else held.id))

    def since(self, number: int | None) -> HeldNewsShown:
        """Return the news since this number; None: all that is held."""
        if number == self.number:
            return HeldNewsShown(number=number)
        first = self.latest[0][0] if self.latest else self.number + 1
        if number is None or not first - 1 <= number <= self.number:
            return HeldNewsShown(number=self.number, whole=True, added=self.frames.show_all().held)
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
        return HeldNewsShown(number=self.number, added=self.shown(added), changed=self.shown(changed), gone=gone)

    def shown(self, ids: Iterable[str]) -> list[HeldShown]:
        held = self.frames.desk.held
        return [self.frames.show(held[one]) for one in ids if one in held]
