"""Flow control of a session: which of its sides is read, the reasons why one is not, and what is due later."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from itertools import count
from typing import Final

from .commands import CLIENT, Command, Pause, Resume, WakeAt

NO_REASONS: Final[frozenset[str]] = frozenset()

Call = Callable[[float], None]


class Timers:
    """Calls of one session in order of their times, and of their making where these are equal.

    `armed` are the times that the driver was asked for and that have not come: it is not asked for a later one while
    there is an earlier one, nor twice for the same.
    """

    __slots__ = ("armed", "calls", "commands", "numbers")

    def __init__(self, commands: list[Command]) -> None:
        self.commands = commands
        self.calls: list[tuple[float, int, Call]] = []
        self.numbers = count()
        self.armed: list[float] = []  # a heap

    def at(self, when: float, call: Call) -> None:
        """Have `call(now)` called at `when` (monotonic seconds) or a little later."""
        heapq.heappush(self.calls, (when, next(self.numbers), call))
        self.arm()

    def tick(self, now: float) -> None:
        """Call all functions that are due, and arm for the next one."""
        while self.armed and self.armed[0] <= now:
            heapq.heappop(self.armed)
        while self.calls and self.calls[0][0] <= now:
            heapq.heappop(self.calls)[2](now)
        self.arm()

    def cancel(self) -> None:
        self.calls.clear()

    def arm(self) -> None:
        if self.calls and not (self.armed and self.armed[0] <= self.calls[0][0]):
            heapq.heappush(self.armed, self.calls[0][0])
            self.commands.append(WakeAt(self.armed[0]))


class FlowControl:
    """Flow control of one session. `paused`: by side, the reasons for which it is not read; `incomplete_since`: when a
    frame of the client began to wait for its rest or last grew, None while there is none."""

    __slots__ = ("commands", "incomplete_since", "muted_until", "paused")

    def __init__(self, commands: list[Command]) -> None:
        self.commands = commands
        self.paused: Sequence[frozenset[str]] = (NO_REASONS, NO_REASONS)
        self.muted_until = 0.0
        self.incomplete_since: float | None = None

    def pause(self, side: int, reason: str) -> None:
        if not self.paused[side]:
            self.commands.append(Pause(side))
        self.set_reasons(side, self.paused[side] | {reason})

    def resume(self, side: int, reason: str, now: float) -> None:
        """Take the reason away; read the side again if that was the last one."""
        if reason not in self.paused[side]:
            return
        self.set_reasons(side, self.paused[side] - {reason})
        if not self.paused[side]:
            self.commands.append(Resume(side))
            if side == CLIENT and self.incomplete_since is not None:  # its time begins anew
                self.incomplete_since = now

    def set_reasons(self, side: int, reasons: frozenset[str]) -> None:
        client, broker = self.paused
        self.paused = (reasons, broker) if side == CLIENT else (client, reasons)

    def resume_all(self) -> None:
        """Read both sides again, whatever the reasons were."""
        for side, reasons in enumerate(self.paused):
            if reasons:
                self.commands.append(Resume(side))
        self.paused = (NO_REASONS, NO_REASONS)

    def mute(self, seconds: float, now: float, timers: Timers) -> None:
        """Read nothing from the client for so long (KIP-219), 0: for no longer than it is muted already."""
        if seconds > 0 and now + seconds > self.muted_until:
            self.muted_until = now + seconds
            self.pause(CLIENT, "muted")
            timers.at(self.muted_until, self.unmute)

    def release(self, now: float) -> None:
        """End the waits that kproxy imposes on the client: mutes, and the delay of a new connection."""
        self.muted_until = 0.0
        for reason in ("muted", "connecting"):
            self.resume(CLIENT, reason, now)

    def unmute(self, now: float) -> None:
        """Read the client again, unless it has been muted for longer since."""
        if now >= self.muted_until:
            self.resume(CLIENT, "muted", now)

    def delay_client(self, seconds: float, now: float, timers: Timers) -> None:
        """Read nothing from the client, which has just connected, for so many seconds."""
        self.pause(CLIENT, "connecting")
        timers.at(now + seconds, lambda then: self.resume(CLIENT, "connecting", then))

    @property
    def waiting_since(self) -> float | None:
        """Return since when a frame of the client is not whole; None while it is kproxy that does not read on."""
        return None if self.paused[CLIENT] else self.incomplete_since
