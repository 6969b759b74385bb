"""Live rules at work: model, trigger, effect and counters of each. A rule outlives the rule set it is in: one that a
new set has unchanged goes on counting. Where several processes have the same rule, each has one of these, and they
decide together (`common`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal, Protocol

from kproxy.rules.exchange import Exchange
from kproxy.rules.kinds.base.rule import LiveRule
from kproxy.rules.shared_numbers import SharedNumbers
from kproxy.rules.trigger import Trigger

from .exchange import Turn
from .trigger import SharedTrigger

HowGone = Literal["resumed", "edited", "answered", "dropped", "closed", "timed_out", "client_left", "rule_gone"]
"""Way in which a frame went that a rule had held. closed: its connection was, by whoever it may be."""


class HeldByRule(Protocol):
    """Frame that a rule holds."""

    def let_go(self, how: HowGone = "resumed", who: str = "") -> None:
        """Let it go on; `who`: the name of whoever wants that, empty for nobody in particular."""


ACTS = object()
"""Terms of a rule that only observes, for requests on which it would act in any case."""


class Running:
    """Live rule at work, with its counters (promise 7): matched (the selectors matched), fired (the trigger fired),
    applied (the change was handed to the kernel). A rule that only observes fires where it would act. `on_count` is
    called after one of them grew.

    throttles: exchanges that it throttled. throttle_seconds: waits for a turn at a quota, and the larger of mute and
    reported throttle time after the response.
    """

    __slots__ = ("applied", "born", "counts_all", "effect", "enabled", "fired", "held", "holds", "lives", "matched",
                 "observes", "on_count", "origin", "raised", "resets", "rule", "said", "seed", "throttle_seconds",
                 "throttles", "trigger")  # fmt: skip

    def __init__(
        self, rule: LiveRule, origin: str, seed: int, began: float, common: SharedNumbers | None = None
    ) -> None:
        self.rule, self.origin = rule, origin
        own = rule.when.seed if rule.when is not None else None
        self.seed = seed if own is None else own
        self.matched = self.fired = self.applied = self.throttles = 0
        self.throttle_seconds = 0.0
        self.resets = 0  # how often they were set back
        self.born = 0  # its number among all that its store has made
        self.lives = 0  # how often it has begun
        self.enabled = True
        self.observes = rule.mode == "observe"
        self.holds = rule.when is not None and rule.when.hold is True
        self.counts_all = rule.when is not None and rule.when.counts == "all"
        self.restart(began, common)
        self.held: list[HeldByRule] = []  # by `when: {hold: true}`, or by a kind that is made for it
        self.on_count: Callable[[], None] | None = None
        self.raised, self.said = 0, ""  # how often the effect raised, and what it said last

    @property
    def name(self) -> str:
        return self.rule.name

    def count(self, *, fired: bool) -> None:
        """Count a request that matched, and perhaps fired."""
        self.matched += 1
        self.fired += fired
        if self.on_count is not None:
            self.on_count()

    def count_fired(self) -> None:
        """Count that the rule fired for a request that was counted as matched before."""
        self.fired += 1
        if self.on_count is not None:
            self.on_count()

    def was_applied(self) -> None:
        """Count a change of this rule that has gone out."""
        self.applied += 1
        if self.on_count is not None:
            self.on_count()

    def count_throttle(self, seconds: float) -> None:
        """Count an exchange that this rule throttled; seconds."""
        self.throttles += 1
        self.throttle_seconds += seconds
        if self.on_count is not None:
            self.on_count()

    @property
    def problems(self) -> int:
        """Return how often something went wrong in it."""
        return self.raised + sum(one.count for one in self.effect.problems())

    @property
    def problem(self) -> str:
        """Return what was said about the last problem; empty when all is well."""
        return "; ".join(text for text in (self.said, *(one.last for one in self.effect.problems())) if text)

    def failed(self, error: Exception) -> None:
        """Count an error that the effect raised, and remember it."""
        self.raised += 1
        self.said = f"{type(error).__name__}: {error}"

    def terms(self, exchange: Exchange) -> Any:
        """Return the terms of requests that begin like this one and may pass without an evaluation; None: none may.

        ACTS: a rule that only observes would act on each of them.
        """
        key, version = exchange.api.key, exchange.version
        if self.observes and self.effect.always_acts and not self.rule.depth("response", key, version):
            return ACTS
        try:
            return self.effect.terms(exchange)
        except Exception:  # noqa: BLE001  # as below
            return None

    def passes(self, terms: Any, size: int, now: float) -> bool:
        """Have the effect charge such a request, and return True if it decides nothing, or nothing is to be done."""
        if terms is ACTS:
            return True
        try:
            return self.effect.passes(terms, size, now)
        except Exception:  # noqa: BLE001  # it is evaluated then, where an effect that raises is named
            return False

    def turn(self, terms: Any, size: int, now: float) -> Turn | None:
        return None if terms is ACTS else self.effect.turn(terms, size, now)

    def restart(self, began: float, common: SharedNumbers | None = None) -> None:
        """Begin anew, as if the rule were new: its trigger and its effect. Counters go on."""
        self.lives += 1
        when, seed = self.rule.when, f"{self.seed}:{self.rule.name}"
        self.trigger = Trigger(when, seed, began) if common is None else SharedTrigger(when, seed, began, common)
        self.effect = self.rule.start()
        self.effect.seed = f"{seed}:draws"  # else trigger and effect would draw the same numbers
        self.effect.common = common

    def release(self, how: HowGone = "resumed") -> int:
        """Let go what is held, and return how many frames that were."""
        return sum(1 for _ in self.releasing(how))

    def releasing(self, how: HowGone = "resumed") -> Iterator[None]:
        """Let go what is held now, a frame at each step: thousands may be, and each goes on at once."""
        held, self.held = self.held, []
        for one in held:
            one.let_go(how)
            yield

    def reset(self) -> None:
        """Set all counters back to 0."""
        self.resets += 1
        self.matched = self.fired = self.applied = self.throttles = 0
        self.throttle_seconds = 0.0
