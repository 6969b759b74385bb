"""A session that passes every byte and only counts frames: for tests of `net`, and to measure what it costs alone."""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from types import SimpleNamespace
from typing import Any

from kproxy.rules.rule_set import MatchingRules
from kproxy.session.commands import CloseBoth, Command, Dial, Observer
from kproxy.session.plan import Plan

LENGTH = Struct(">i").unpack_from


class FrameCount:
    """Count of the frames of one direction. `skip`: bytes of the last frame that are still to come; `part`: the first
    bytes of a length that is not whole yet."""

    __slots__ = ("frames", "kept", "part", "skip")

    def __init__(self) -> None:
        self.frames = self.skip = 0
        self.kept = None
        self.part = b""

    def take(self, view: memoryview, n: int) -> None:
        """Count the frames in the first `n` bytes of `view`."""
        pos = 0
        if self.part:
            pos = min(4 - len(self.part), n)
            self.part += bytes(view[:pos])
            if len(self.part) < 4:
                return
            self.skip = LENGTH(self.part)[0]
            self.part = b""
            self.frames += 1
        pos += self.skip
        while pos + 4 <= n:
            pos += 4 + LENGTH(view, pos)[0]
            self.frames += 1
        self.skip = max(pos - n, 0)
        if pos < n:
            self.part = bytes(view[pos:n])

    @property
    def at_boundary(self) -> bool:
        """Return True if the last frame has come whole."""
        return not self.skip and not self.part


class PassingSession:
    """A session that dials at the first bytes and takes every request to be answered by one response."""

    def __init__(self) -> None:
        self.commands: list[Command] = []
        self.owner: Any = None
        self.observer: Observer | None = None
        self.waiting_since: float | None = None
        self.requests, self.responses = FrameCount(), FrameCount()
        self.dialled = self.draining = False
        self.number = 0
        self.has_beginning = True
        self.rules = MatchingRules()
        self.identity = SimpleNamespace(client_id=None)

    @property
    def idle(self) -> bool:
        return self.requests.frames == self.responses.frames and self.between_frames

    @property
    def settled(self) -> bool:
        return self.idle

    @property
    def between_frames(self) -> bool:
        return self.requests.at_boundary and self.responses.at_boundary

    @property
    def cut_off(self) -> bool:
        return not self.requests.at_boundary

    def holding_since(self) -> tuple[int, float] | None:
        return None

    @property
    def awaited_requests(self) -> list[tuple[int, int, int]]:
        """Return an empty list: the session does not read requests, and knows none."""
        return []

    @property
    def awaited_since(self) -> float | None:
        """Return None, since the session keeps no times."""
        return None

    @property
    def awaited(self) -> int:
        return self.requests.frames - self.responses.frames

    def from_client(self, view: memoryview, n: int, now: float) -> int:
        if not self.dialled:
            self.dialled = True
            self.commands.append(Dial())
        self.requests.take(view, n)
        return n

    def from_broker(self, view: memoryview, n: int, now: float) -> int:
        self.responses.take(view, n)
        return n

    def eof(self, side: int, now: float) -> None:
        """Do nothing: the driver passes the end on by itself."""

    def nodes_ready(self, nodes: Mapping[int, tuple[str, int] | None], now: float) -> None:
        """Do nothing: the session never asks for ports of nodes."""

    def sent(self, token: int, now: float) -> None:
        """Do nothing: the session sends no bytes of its own."""

    def granted(self, now: float) -> None:
        """Do nothing: the session never waits for memory."""

    def begin(self, now: float) -> None:
        """Do nothing: no rule is about the connection."""

    def use(self, plan: Plan, now: float) -> None:
        """Do nothing: the session has no rules that could change."""

    def tick(self, now: float) -> None:
        """Do nothing: the session never asks to be woken."""

    def step_aside(self) -> tuple[Any, ...]:
        """Return nothing: no rule delays a request of the session."""
        return ()

    def released(self, now: float) -> None:
        """Do nothing: no rule holds a frame of the session."""

    def drain(self, now: float) -> None:
        if self.idle:
            self.commands.append(CloseBoth("drained", "drained"))

    def end(self, now: float) -> None:
        """Do nothing: the session keeps nothing that has to be given back."""
