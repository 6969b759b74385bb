"""Evaluations: what the live rules have decided about one frame."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from kproxy.rules.decision import AfterDrop, How
from kproxy.rules.running import Running

from .evaluated_exchange import EvaluatedExchange

Change = Callable[[bytes], bytes]


class Watched(NamedTuple):
    """Note about a request to which no rule applies, but whose answer may mention what some forbid. `request` has its
    size in front; `rewrite` is what the name rewrites left."""

    request: bytes
    came: float
    rewrite: dict[str, Any] | None = None


class Evaluation:
    """Decisions about one frame, kept by its lane until the frame has gone or been dealt with.

    until       when it may go on, None: at once
    close       the connection is closed in the frame's place
    drop        the frame goes nowhere, and then
    swallow     nothing more goes anywhere on this connection
    frame       what goes on in its place, without the size; None: the frame as it came
    changes     made to the bytes that leave, size in front; `then` closes the connection behind them
    throttle    seconds for which the client is not read after the response (for acks=0: now)
    acted       rules that did something, to be counted as applied when it has gone out
    """

    until: float | None = None
    close: How | None = None
    drop: AfterDrop | None = None
    swallow = False
    frame: bytes | None = None
    then: How | None = None
    throttle = 0.0

    def __init__(self, exchange: EvaluatedExchange) -> None:
        self.exchange = exchange
        self.changes: list[Change] = []
        self.acted: list[Running] = []

    @property
    def final(self) -> bool:
        """Return True if the frame goes nowhere, so that no other rule is asked."""
        return self.close is not None or self.drop is not None or self.swallow

    def act(self, running: Running) -> None:
        """Note once that this rule did something to the frame at hand; all its decisions are taken in one go."""
        if not self.acted or self.acted[-1] is not running:
            self.acted.append(running)

    def to_count(self) -> list[Running]:
        """Return the rules that acted, and were not counted for it at this exchange's request; count them as told."""
        counted = self.exchange.counted
        if not counted:
            counted.update(self.acted)
            return self.acted
        new = [running for running in self.acted if running not in counted]
        counted.update(new)
        return new

    def delay(self, seconds: float, since: float) -> None:
        """Let the frame wait so many seconds more; delays of several rules add."""
        self.until = (since if self.until is None else self.until) + seconds


class RequestEvaluation(Evaluation):
    """Decisions about one request.

    held_by     rules that hold it until they release it
    answer      kproxy's own answer, without the size; the request goes nowhere
    close_after how the connection is closed behind the request
    candidates  numbers of the rules that can apply to all that begin like it; None: names do not tell
    asked       rules whose triggers were asked; `drawn` says what those have said that were asked before
    waiting     the rules that match all that begin like it, and whose triggers decide each time
    """

    close_after: How | None = None
    answer: bytes | None = None
    waiting: tuple[Running, ...] = ()
    candidates: frozenset[int] | None = None

    def __init__(self, exchange: EvaluatedExchange, drawn: dict[Running, bool] | None = None) -> None:
        self.exchange, self.drawn = exchange, drawn or {}
        self.changes: list[Change] = []
        self.acted: list[Running] = []
        self.held_by: list[Running] = []
        self.asked: list[Running] = []

    @property
    def replaces(self) -> bool:
        """Return True if other bytes than those of the request leave, or none."""
        return self.frame is not None or bool(self.changes) or self.answer is not None or self.drop is not None
