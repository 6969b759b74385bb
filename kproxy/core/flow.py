"""Flow control of a session: which of its sides is read, and the reasons why one is not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from .commands import CLIENT, Command, Pause, Resume
from .timers import Timers

NO_REASONS: Final[frozenset[str]] = frozenset()


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
        """Read nothing from this side until the reason is gone."""
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
