"""Desk of all frames that rules hold in this process, within bounds, and for a minute of how those went."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from kproxy.rules.rule_set import HowGone

from .held import MOST_BYTES

if TYPE_CHECKING:
    from .held import HeldFrame, TellHeld

KNOWN = 60.0
"""Seconds for which it is known how a frame went."""
MOST_KNOWN = 1000
"""Frames of which that is known at a time."""

JudgeFilter = Callable[[str, Any, Any, bytes, bytes | None, float], bool]
"""Says whether a filter, by its text, holds for a session's exchange with this request and response, both without their
sizes; the response is None before it has come. The last argument is the time, monotonic."""


class GoneFrame(NamedTuple):
    """Frame that was held, how it went, who wanted that (empty: nobody), and when, monotonic."""

    id: str
    how: HowGone
    who: str
    when: float


class HoldingDesk:
    """Frames that are held in this process, by id, and those of the last minute that are no more.

    `clock` gives monotonic seconds, `judge` asks filters; both are set by who runs the process. `tell` are told of
    frames that come, change and go, and must return soon and raise nothing.
    """

    clock: Callable[[], float] = staticmethod(lambda: 0.0)

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self.use_limit(most_bytes)
        self.held: dict[str, HeldFrame] = {}
        self.gone: OrderedDict[str, GoneFrame] = OrderedDict()
        self.bytes = 0
        self.passed_over = 0
        self.tell: list[TellHeld] = []
        self.judge: JudgeFilter = lambda wanted, session, exchange, request, response, now: True

    def use_limit(self, most_bytes: int) -> None:
        """Set the bytes that held frames may have together from now on."""
        self.most_bytes = min(most_bytes, MOST_BYTES)

    def enter(self, held: HeldFrame) -> None:
        self.held[held.id] = held
        self.bytes += held.size if held.by_intercept else 0
        held.running.held.append(held)
        for tell in self.tell:
            tell("added", held, None, "")

    def changed(self, held: HeldFrame) -> None:
        for tell in self.tell:
            tell("changed", held, None, "")

    def left(self, held: HeldFrame, how: HowGone, who: str) -> None:
        if self.held.pop(held.id, None) is None:
            return
        self.bytes -= held.size if held.by_intercept else 0
        now = self.clock()
        self.gone[held.id] = GoneFrame(held.id, how, who, now)
        self.forget(now)
        for tell in self.tell:
            tell("gone", held, how, who)

    def forget(self, now: float) -> None:
        """Forget frames that went too long ago, or too many frames ago."""
        while self.gone and (len(self.gone) > MOST_KNOWN or next(iter(self.gone.values())).when < now - KNOWN):
            self.gone.popitem(last=False)
