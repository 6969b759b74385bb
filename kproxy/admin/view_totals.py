"""Totals that are told each second to all who look: counted once a second, however many there are."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from time import monotonic
from typing import Any, Protocol

import trio

from kproxy.record.live_view.parts import ViewTotals
from kproxy.record.live_view.ticks import tick_of, together
from kproxy.runtime.rules.keeper import RuleKeeper

from .capture_store import CaptureStore
from .member import Member
from .problem import Problem

FRESH = 0.5
"""Seconds for which totals are as good as new: they are asked for each second by each of those who look."""
MOST_RULES = 1000
"""Rules whose counters are told each second; all are to be had from /api/rules."""

RuleTotals = tuple[int, int, int, int]
"""Counters of one rule: matched, fired, applied, and how many it holds now."""


@dataclass(frozen=True, slots=True)
class SecondTotals:
    """Totals of all processes at one time, with the counters of rules, and versions of what is to be read again when
    they change."""

    at: float
    totals: ViewTotals
    rules: Mapping[str, RuleTotals] = field(default_factory=dict)
    rules_version: str = ""
    captures_version: str = ""

    @property
    def known(self) -> bool:
        """Return True if they have been counted."""
        return self.at > float("-inf")

    def tick(self, before: SecondTotals) -> dict[str, Any]:
        """Return what has happened since other totals."""
        told = tick_of(self.totals, before.totals, self.at - before.at)
        told["rules"] = {name: grown(counts, before.rules.get(name)) for name, counts in self.rules.items()}
        if self.totals.audit:
            told["audit"] = dict(
                zip(("written", "waiting", "lost", "failing", "blocked"), self.totals.audit, strict=True)
            )
        return told


def grown(counts: RuleTotals, before: RuleTotals | None) -> list[int]:
    """Return by how much a rule's counters have grown, and what it holds."""
    return [*(max(0, now - then) for now, then in zip(counts[:3], (before or counts)[:3], strict=True)), counts[3]]


class CountedBackend(Protocol):
    """Running proxy, as far as its totals are counted."""

    @property
    def keeper(self) -> RuleKeeper: ...
    @property
    def captures(self) -> CaptureStore: ...
    def ask_members(self, ask: Callable[[Member], Awaitable[ViewTotals]]) -> Awaitable[list[ViewTotals]]: ...


class TotalsKeeper:
    """Keeper of the latest totals of a backend."""

    def __init__(self, backend: CountedBackend) -> None:
        self.backend = backend
        self.counting = trio.Lock()
        self.last = SecondTotals(float("-inf"), ViewTotals())

    async def latest(self) -> SecondTotals:
        """Return totals that are at most FRESH seconds old; the same as before when a process says nothing."""
        async with self.counting:
            if monotonic() - self.last.at > FRESH:
                with suppress(Problem):
                    self.last = await self.count()
        return self.last

    async def count(self) -> SecondTotals:
        backend = self.backend
        totals = together(await backend.ask_members(lambda member: member.view_totals()))
        await backend.keeper.count()
        store = backend.keeper.store
        rules: dict[str, RuleTotals] = {}
        for name, stored in list(store.stored_rules.items())[:MOST_RULES]:
            running = stored.running
            if running is not None:
                rules[name] = running.matched, running.fired, running.applied, len(running.held)
        captures = [(one.name, one.state) for one in await backend.captures.show_all()]
        switched = [(name, stored.active) for name, stored in store.stored_rules.items()]
        return SecondTotals(
            monotonic(), totals, rules, f"{store.rule_set.id}-{digest([*switched, store.killed])}", digest(captures)
        )


def digest(things: list[Any]) -> str:
    """Return a short text that is another one when these have changed."""
    return blake2b(repr(things).encode(), digest_size=4).hexdigest()
