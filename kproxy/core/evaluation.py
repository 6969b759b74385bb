"""Evaluations: the decisions of the live rules about one frame."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kproxy.rules.decision import AfterDrop, How

if TYPE_CHECKING:
    from kproxy.rules.running import Running

    from .evaluated_exchange import EvaluatedExchange

Change = Callable[[bytes], bytes]


class Pass:
    """Evaluation about a request to which no rule applies: there is nothing to remember."""


PASS: Final = Pass()


class Watched(NamedTuple):
    """Evaluation of a request to which no rule applies, but whose answer may mention what some forbid; afterwards
    the note of its entry. `request` has its size in front; `rewrite` is what the name rewrites left."""

    request: bytes
    came: float
    rewrite: dict[str, Any] | None = None


class Evaluation:
    """Evaluation about one frame, kept by its lane until the frame has gone or been dealt with.

    until       when it may go on, None: at once
    held_by     rules that hold it until they release it
    close       the connection is closed in the frame's place
    drop        the frame goes nowhere, and then
    swallow     nothing more goes anywhere on this connection
    frame       what goes on in its place, without the size; None: the frame as it came
    answer      kproxy's own answer, without the size; the request goes nowhere
    changes     made to the bytes that leave, size in front; `then` closes the connection behind them
    repeat, swap  of responses: leaves so many times more; leaves after the next one
    throttle    seconds for which the client is not read after the response (for acks=0: now)
    hint        throttle_time_ms of the response in seconds, where it is patched in place
    acted       rules that did something, to be counted as applied when it has gone out
    whole       of a response: it was judged with all of it at hand
    asked       of a request: rules whose triggers were asked; `drawn` says what those have said that were asked before
    waiting     of a request: the rules that match all that begin like it, and whose triggers decide each time
    """

    __slots__ = ("acted", "answer", "asked", "changes", "close", "close_after", "drawn", "drop", "exchange", "frame",
                 "held_by", "hint", "repeat", "swallow", "swap", "then", "throttle", "until", "waiting",
                 "whole")  # fmt: skip

    def __init__(self, exchange: EvaluatedExchange) -> None:
        self.exchange = exchange
        self.until: float | None = None
        self.held_by: list[Running] = []
        self.close: How | None = None
        self.close_after: How | None = None
        self.drop: AfterDrop | None = None
        self.swallow = False
        self.frame: bytes | None = None
        self.answer: bytes | None = None
        self.changes: list[Change] = []
        self.then: How | None = None
        self.repeat = 0
        self.swap = False
        self.throttle = 0.0
        self.hint = 0.0
        self.acted: list[Running] = []
        self.whole = False
        self.waiting: tuple[Running, ...] = ()
        self.asked: list[Running] = []
        self.drawn: dict[Running, bool] = {}

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
        new = [running for running in self.acted if running not in counted]
        counted.update(new)
        return new

    def delay(self, seconds: float, since: float) -> None:
        """Let the frame wait so many seconds more; delays of several rules add."""
        self.until = (since if self.until is None else self.until) + seconds
