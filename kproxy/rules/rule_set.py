"""Active live rules (model, trigger, effect, counters), and the rule set with the gate for new connections.

A rule that is unchanged in a new rule set keeps its counters. If several processes have the rule, they share numbers
(`common`).

The gate evaluates `allow_from` before TLS and session. A connection is refused if such rules match it and none of them
allows its address.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, Protocol

from kproxy.base.bounded_map import unheld
from kproxy.rules.content.edits import RecordCounts
from kproxy.rules.exchange import Exchange
from kproxy.rules.kinds.advertise import Advertise, AdvertiseRule
from kproxy.rules.kinds.allow_from import AllowFrom
from kproxy.rules.kinds.base.name_rule import NameRule
from kproxy.rules.kinds.base.rule import LiveRule, Rule
from kproxy.rules.kinds.client_rack import ClientRack
from kproxy.rules.kinds.limit_versions import LimitVersions, VersionLimits
from kproxy.rules.names.composed import NameMaps
from kproxy.rules.shared_numbers import SharedNumbers
from kproxy.rules.trigger import Trigger

from .exchange import Facts
from .trigger import SharedTrigger

if TYPE_CHECKING:
    from .bucket import QuotaTurn

HowGone = Literal["resumed", "edited", "answered", "dropped", "closed", "timed_out", "client_left", "rule_gone"]
"""How a held frame left. closed: its connection was closed by any side."""


class HeldByRule(Protocol):
    """Frame that a rule holds."""

    def let_go(self, how: HowGone = "resumed", who: str = "") -> None:
        """End the hold. who: name of the user, or empty."""


ACTS = object()
"""Terms of a dry-run rule, for requests that it would always act on."""


class ActiveRule:
    """Live rule at work, with its counters (promise 7): matched (the selectors matched), fired (the trigger fired),
    applied (the change was handed to the kernel). A rule in dry-run mode fires where it would act. `on_count` is
    called after one of them grew.

    records: counts of records. throttles: exchanges that it throttled. throttle_seconds: waits for a turn at a quota.
    After the response, it adds the larger of mute and reported throttle time.
    """

    __slots__ = ("applied", "born", "counts_all", "dry_run", "effect", "enabled", "fired", "held", "holds", "lives",
                 "matched", "on_count", "origin", "raised", "records", "resets", "rule", "said", "seed",
                 "throttle_seconds", "throttles", "trigger")  # fmt: skip

    def __init__(
        self, rule: LiveRule, origin: str, seed: int, began: float, common: SharedNumbers | None = None
    ) -> None:
        self.rule, self.origin = rule, origin
        own = rule.when.seed if rule.when is not None else None
        self.seed = seed if own is None else own
        self.matched = self.fired = self.applied = self.throttles = 0
        self.throttle_seconds = 0.0
        self.records = RecordCounts()
        self.resets = 0  # how often they were set back
        self.born = 0  # its number among all that its store has made
        self.lives = 0  # how often it has begun
        self.enabled = True
        self.dry_run = rule.mode == "dry_run"
        self.holds = rule.when is not None and rule.when.hold is True
        self.counts_all = rule.when is not None and rule.when.count == "all"
        self.restart(began, common)
        self.held: list[HeldByRule] = []  # by `when: {hold: true}`, or by a kind that is made for it
        self.on_count: Callable[[], None] | None = None
        self.raised, self.said = 0, ""  # number of errors that the effect raised, and the last text

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
        return self.raised + sum(one.count for one in self.effect.problems())

    @property
    def problem(self) -> str:
        """Return the last problem, or an empty text."""
        return "; ".join(text for text in (self.said, *(one.last for one in self.effect.problems())) if text)

    def failed(self, error: Exception) -> None:
        """Count an error that the effect raised, and remember it."""
        self.raised += 1
        self.said = f"{type(error).__name__}: {error}"

    def terms(self, exchange: Exchange) -> Any:
        """Return the terms of requests that begin like this one and may pass without an evaluation; None: none may.

        ACTS: a rule in dry-run mode would act on each of them.
        """
        key, version = exchange.api.key, exchange.version
        if self.dry_run and self.effect.always_acts and not self.rule.depth("response", key, version):
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

    def turn(self, terms: Any, size: int, now: float) -> QuotaTurn | None:
        return None if terms is ACTS else self.effect.turn(terms, size, now)

    def restart(self, began: float, common: SharedNumbers | None = None) -> None:
        """Restart trigger and effect. Counters stay."""
        self.lives += 1
        when, seed = self.rule.when, f"{self.seed}:{self.rule.name}"
        self.trigger = Trigger(when, seed, began) if common is None else SharedTrigger(when, seed, began, common)
        self.effect = self.rule.start()
        self.effect.seed = f"{seed}:draws"  # else trigger and effect would draw the same numbers
        self.effect.common = common
        self.effect.records = self.records

    def resume(self, how: HowGone = "resumed") -> int:
        """Resume all held frames; return their number."""
        return sum(1 for _ in self.resuming(how))

    def resuming(self, how: HowGone = "resumed") -> Iterator[None]:
        """Resume the frames held now, one at each step: there may be thousands, and each continues at once."""
        held, self.held = self.held, []
        for one in held:
            one.let_go(how)
            yield

    def reset(self) -> None:
        self.resets += 1
        self.matched = self.fired = self.applied = self.throttles = 0
        self.throttle_seconds = 0.0
        self.records = self.effect.records = RecordCounts()


CACHED_BINDINGS = 256
"""Combinations of matching rules that are kept ready; each holds the name caches of its Names."""


@dataclass(frozen=True, slots=True)
class MatchingRules:
    """Rules that match one connection when it opens. Connections that match the same rules share one object.

    `rules` and `kinds` are names and kinds of the rules that stay until the connection closes. `names`, `advertise`,
    `versions` and `rack` are their combined result; None without such a rule. `live` are the matching live rules in
    file order, which change while the connection is open. `key` depends on the content of `rules` alone.
    """

    rules: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    names: NameMaps | None = None
    advertise: Advertise | None = None
    versions: VersionLimits | None = None
    rack: str | None = None
    live: tuple[ActiveRule, ...] = ()
    key: str = ""


class RuleSet:
    """Rules in file order; immutable. origins: `file:line:column` of each rule. id: equal for equal rules in equal
    order. live: active live rules.

    running: live rules that are already active. Others start at time 0 with seed 0, for tests and explanations. A proxy
    passes them from its `RuleStore`.
    """

    def __init__(
        self, rules: Sequence[Rule] = (), origins: Sequence[str] = (), running: Iterable[ActiveRule] = ()
    ) -> None:
        self.rules = tuple(rules)
        self.origins = tuple(origins)
        self.id = content_id(self.rules)
        given = {one.name: one for one in running}
        self._live = {
            index: given.get(rule.name) or ActiveRule(rule, "", 0, 0.0)
            for index, rule in enumerate(self.rules)
            if isinstance(rule, LiveRule)
        }
        self.live = tuple(self._live.values())
        self.gate = Gate(self.live)
        self._selective = tuple(index for index, rule in enumerate(self.rules) if not rule.is_unconditional)
        self._bound = lru_cache(CACHED_BINDINGS)(unheld(self.bind_without))
        self._constant = None if self._selective else self._bound(frozenset())

    def __len__(self) -> int:
        return len(self.rules)

    def bind(self, facts: Facts) -> MatchingRules:
        """Return the rules that match a connection, decided when it opens. Live rules are selected again with each rule
        set."""
        return self._constant or self._bound(
            frozenset(index for index in self._selective if not self.rules[index].holds(facts))
        )

    def bind_without(self, without: frozenset[int]) -> MatchingRules:
        """Return the rules for a connection, except those at these indexes."""
        indexes = [index for index in range(len(self.rules)) if index not in without]
        rules = [self.rules[index] for index in indexes if index not in self._live]
        limits = tuple(rule.limit for rule in rules if isinstance(rule, LimitVersions))
        return MatchingRules(
            rules=tuple(rule.name for rule in rules),
            kinds=tuple(rule.kind for rule in rules),
            names=NameMaps.of(layer for rule in rules if isinstance(rule, NameRule) for layer in rule.layers()),
            advertise=next((rule for rule in rules if isinstance(rule, AdvertiseRule)), None),
            versions=VersionLimits(limits) if limits else None,
            rack=next((rule.rack for rule in rules if isinstance(rule, ClientRack)), None),
            live=tuple(self._live[index] for index in indexes if index in self._live),
            key=content_id(rules) if rules else "",
        )


def content_id(rules: Iterable[Rule]) -> str:
    """Return 12 hexadecimal digits that change when a rule does, or their order."""
    content = "\n".join(rule.content for rule in rules)
    return hashlib.sha256(content.encode()).hexdigest()[:12]


SHOWN = 3
"""Rules named in the reason; of more there is a number."""


@dataclass(frozen=True, slots=True)
class Barred:
    """Refusal of a client. rules: at least one of them would have to allow it."""

    client_address: str
    rules: tuple[ActiveRule, ...]

    @property
    def close_with(self) -> Literal["rst", "fin"]:
        """Return how the connection is closed, by the first rule."""
        return _model(self.rules[0]).close_with

    @property
    def closes(self) -> bool:
        """Return True if open connections are also closed."""
        return any(_model(one).existing == "close" for one in self.rules)

    @property
    def why(self) -> str:
        """Return the reason for the log, with the names of some rules."""
        names = ", ".join(f'"{one.name}"' for one in self.rules[:SHOWN])
        more = f" and {len(self.rules) - SHOWN} more" if len(self.rules) > SHOWN else ""
        return f"{self.client_address} is in none of the networks of {names}{more}"


class Gate:
    """Gate of a rule set: its rules `allow_from`."""

    __slots__ = ("rules",)

    def __init__(self, live: Iterable[ActiveRule]) -> None:
        self.rules = tuple(one for one in live if isinstance(one.rule, AllowFrom))

    def __bool__(self) -> bool:
        return bool(self.rules)

    def ask(self, facts: Facts) -> Barred | None:
        """Return why a client that connects may not come in, None if it may; count what the rules did."""
        holding = [rule for rule in self.rules if rule.rule.holds(facts)]
        barred = self.evaluate(facts, holding)
        unknown = not any(_model(rule).lets_in(facts.client_address) for rule in holding)
        for rule in holding:
            rule.count(fired=unknown if rule.dry_run else barred is not None)
            if barred is not None and not rule.dry_run:
                rule.was_applied()
        return barred

    def check_quietly(self, facts: Facts) -> Barred | None:
        """Return the same, of a connection that is open, without counting it."""
        return self.evaluate(facts, [one for one in self.rules if one.rule.holds(facts)])

    @staticmethod
    def evaluate(facts: Facts, holding: Iterable[ActiveRule]) -> Barred | None:
        deciding = tuple(one for one in holding if not one.dry_run)
        if not deciding or any(_model(one).lets_in(facts.client_address) for one in deciding):
            return None
        return Barred(facts.client_address, deciding)


def _model(running: ActiveRule) -> AllowFrom:
    assert isinstance(running.rule, AllowFrom)
    return running.rule
