"""All rules in file order, and what of them holds for one connection."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from kproxy.rules.all_names import Names
from kproxy.rules.facts import Facts
from kproxy.rules.kinds.advertise import Advertise, AdvertiseRule
from kproxy.rules.kinds.base import Rule
from kproxy.rules.kinds.limit_versions import LimitVersions
from kproxy.rules.kinds.name_rule import NameRule
from kproxy.rules.version_limits import VersionLimits

CACHED_BINDINGS = 256
"""Combinations of matching rules that are kept ready; each holds the name caches of its Names."""


@dataclass(frozen=True, slots=True)
class Bound:
    """What one connection keeps until it closes: the names of the rules that match it, and what they come to.

    `names`, `advertise` and `versions` are None when no rule says anything about them. Connections that match the same
    rules share one object.
    """

    rules: tuple[str, ...] = ()
    names: Names | None = None
    advertise: Advertise | None = None
    versions: VersionLimits | None = None


class RuleSet:
    """Rules in file order. `origins` tells where each comes from (`file:line:column`); `id` is the same for the same
    rules in the same order, whatever files they come from."""

    def __init__(self, rules: Sequence[Rule] = (), origins: Sequence[str] = ()) -> None:
        self.rules = tuple(rules)
        self.origins = tuple(origins)
        content = "\n".join(rule.model_dump_json(by_alias=True) for rule in self.rules)
        self.id = hashlib.sha256(content.encode()).hexdigest()[:12]
        self._bound = lru_cache(CACHED_BINDINGS)(self._bind)
        self._constant = self._bound(self._indexes(None)) if all(rule.is_unconditional for rule in self.rules) else None

    def __len__(self) -> int:
        return len(self.rules)

    def bind(self, facts: Facts) -> Bound:
        """What holds for a connection, decided once when it opens."""
        return self._constant or self._bound(self._indexes(facts))

    def _indexes(self, facts: Facts | None) -> tuple[int, ...]:
        return tuple(index for index, rule in enumerate(self.rules) if facts is None or rule.holds(facts))

    def _bind(self, indexes: tuple[int, ...]) -> Bound:
        rules = [self.rules[index] for index in indexes]
        limits = tuple(rule.limit for rule in rules if isinstance(rule, LimitVersions))
        return Bound(
            rules=tuple(rule.name for rule in rules),
            names=Names.of(layer for rule in rules if isinstance(rule, NameRule) for layer in rule.layers()),
            advertise=next((rule for rule in rules if isinstance(rule, AdvertiseRule)), None),
            versions=VersionLimits(limits) if limits else None,
        )
