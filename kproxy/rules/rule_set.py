"""Rule sets: all rules in file order, which of them hold for one connection, and the gate: who may connect at all.

The gate decides by the rules `allow_from`, before there is a session, or TLS. Of the rules that hold for a connection
any may let it in; one for which none holds comes in. A rule that observes counts where it would have kept a client out,
beside all the others, and changes nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from kproxy.base.unheld import unheld
from kproxy.rules.kinds.advertise import Advertise, AdvertiseRule
from kproxy.rules.kinds.allow_from import AllowFrom
from kproxy.rules.kinds.base.name_rule import NameRule
from kproxy.rules.kinds.base.rule import LiveRule, Rule
from kproxy.rules.kinds.client_rack import ClientRack
from kproxy.rules.kinds.limit_versions import LimitVersions, VersionLimits
from kproxy.rules.names.composed import NameMaps
from kproxy.rules.running import Running

from .exchange import Facts

CACHED_BINDINGS = 256
"""Combinations of matching rules that are kept ready; each holds the name caches of its Names."""


@dataclass(frozen=True, slots=True)
class BoundRules:
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
    live: tuple[Running, ...] = ()
    key: str = ""


class RuleSet:
    """Rules in file order. `origins` tells where each comes from (`file:line:column`); `id` is the same for the same
    rules in the same order, whatever files they come from. Immutable; `live` are the live rules at work.

    `running` are the live rules that are at work already; those that are not among them start at time 0 with seed 0,
    which is what a test or an explanation wants (a proxy has them from its `RuleStore`).
    """

    def __init__(
        self, rules: Sequence[Rule] = (), origins: Sequence[str] = (), running: Iterable[Running] = ()
    ) -> None:
        self.rules = tuple(rules)
        self.origins = tuple(origins)
        self.id = content_id(self.rules)
        given = {one.name: one for one in running}
        self._live = {
            index: given.get(rule.name) or Running(rule, "", 0, 0.0)
            for index, rule in enumerate(self.rules)
            if isinstance(rule, LiveRule)
        }
        self.live = tuple(self._live.values())
        self.gate = Gate(self.live)
        self._selective = tuple(index for index, rule in enumerate(self.rules) if not rule.is_unconditional)
        self._bound = lru_cache(CACHED_BINDINGS)(unheld(self._bind))
        self._constant = None if self._selective else self._bound(frozenset())

    def __len__(self) -> int:
        return len(self.rules)

    def bind(self, facts: Facts) -> BoundRules:
        """Return the rules that hold for a connection, decided once when it opens; its live rules anew with each rule
        set."""
        return self._constant or self._bound(
            frozenset(index for index in self._selective if not self.rules[index].holds(facts))
        )

    def _bind(self, without: frozenset[int]) -> BoundRules:
        indexes = [index for index in range(len(self.rules)) if index not in without]
        rules = [self.rules[index] for index in indexes if index not in self._live]
        limits = tuple(rule.limit for rule in rules if isinstance(rule, LimitVersions))
        return BoundRules(
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
    """Refusal of a client that may not come in. `rules`: those of which any would have had to let it in."""

    client_address: str
    rules: tuple[Running, ...]

    @property
    def how(self) -> Literal["rst", "fin"]:
        """Return the way in which its connection ends: as the first rule says."""
        return _model(self.rules[0]).how

    @property
    def closes(self) -> bool:
        """Return True if a connection that is open already ends, too."""
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

    def __init__(self, live: Iterable[Running]) -> None:
        self.rules = tuple(one for one in live if isinstance(one.rule, AllowFrom))

    def __bool__(self) -> bool:
        return bool(self.rules)

    def ask(self, facts: Facts) -> Barred | None:
        """Return why a client that connects may not come in, None if it may; count what the rules did."""
        holding = [rule for rule in self.rules if rule.rule.holds(facts)]
        barred = self.evaluate(facts, holding)
        unknown = not any(_model(rule).lets_in(facts.client_address) for rule in holding)
        for rule in holding:
            rule.count(fired=unknown if rule.observes else barred is not None)
            if barred is not None and not rule.observes:
                rule.was_applied()
        return barred

    def look(self, facts: Facts) -> Barred | None:
        """Return the same, of a connection that is open, without counting it."""
        return self.evaluate(facts, [one for one in self.rules if one.rule.holds(facts)])

    @staticmethod
    def evaluate(facts: Facts, holding: Iterable[Running]) -> Barred | None:
        deciding = tuple(one for one in holding if not one.observes)
        if not deciding or any(_model(one).lets_in(facts.client_address) for one in deciding):
            return None
        return Barred(facts.client_address, deciding)


def _model(running: Running) -> AllowFrom:
    assert isinstance(running.rule, AllowFrom)
    return running.rule
