"""Candidate rules in a worker: parsed once, with a plan for each kind of connection, shared by its rehearsals.

Strategy. All rules together are rehearsed once, which gives what the live ones do; without live rules there is nothing
to learn from it. Rules that bind when a connection opens (names, addresses, versions) leave no trace of which of them
changed a frame, so each is rehearsed alone as well, and changed what differs then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from kproxy.rules.document.store import RuleStore
from kproxy.rules.exchange import Facts
from kproxy.rules.kinds.base.rule import LiveRule
from kproxy.rules.rule_set import RuleSet, Running
from kproxy.rules.values.source import Source
from kproxy.session.counters import Tallies
from kproxy.session.plan import Bound, Plan
from kproxy.session.shared import Shared
from kproxy.tools.rehearse.offline_filters import judged

from .exchange import Opaque, PackedExchange, RecordedClient
from .rehearsal import Rehearsal, RehearsalFinding

RuleTexts = Sequence[tuple[str, str]]
"""(name, content) of rule files, in their order."""


@dataclass(frozen=True, slots=True)
class CandidateCounts:
    """Counts of one rule in a worker. `approximate`: one proxy for all connections would have counted otherwise."""

    rule: str
    kind: str
    matched: int
    fired: int
    applied: int
    approximate: bool


class Variant:
    """Rule set that is rehearsed. `rule`: the only rule in it; empty: it has all of them. `records`: whether filters of
    its rules may ask about records."""

    def __init__(self, rules: RuleSet, rule: str = "", *, records: bool = True) -> None:
        self.rules, self.rule, self.records = rules, rule, records
        self.plans: dict[tuple[str, tuple[Running, ...]], tuple[Plan, Opaque]] = {}
        self.shared: dict[str, Shared] = {}
        self.tallies = Tallies()

    def plan(self, facts: Facts) -> tuple[Plan, Opaque]:
        """Return the plan of a connection, and which of its exchanges that cannot be about."""
        bound = self.rules.bind(facts)
        planned = self.plans.get((bound.key, bound.live))
        if planned is None:
            plan = Plan(Bound.of(bound, advertise=bound.advertise is not None, hide=False), bound.live, self.tallies)
            planned = self.plans[bound.key, bound.live] = plan, Opaque([plan])
        return planned

    def rehearsal(self, caller: RecordedClient, number: int, topics: Mapping[UUID, str]) -> Rehearsal:
        plan, opaque = self.plan(caller.facts)
        shared = self.shared.setdefault(caller.facts.cluster, judged(records=self.records))
        return Rehearsal(plan, shared, caller, number, topics, opaque)


class Candidate:
    """Candidate rules of one capture, as texts or made from them already.

    `began`: time of the first exchange, from which triggers such as `after` count. `records`: whether filters may ask
    about records. Raises DocumentError.
    """

    def __init__(
        self, given: RuleTexts | RuleSet, began: float, topics: Mapping[UUID, str] | None = None, seed: int = 0, *,
        records: bool = True,
    ) -> None:  # fmt: skip
        rules = given if isinstance(given, RuleSet) else rules_of(given, began, seed)
        self.topics = topics or {}
        self.all = Variant(rules, records=records)
        alone = [rule for rule in rules.rules if not isinstance(rule, LiveRule)]
        self.variants = [Variant(RuleSet([rule]), rule.name) for rule in alone]
        if rules.live:
            self.variants.insert(0, self.all)
        self.opaques: dict[tuple[int, ...], Opaque] = {}
        self.now = began
        for running in rules.live:
            running.effect.clock = self.time
        self.number = 0

    def time(self) -> float:
        """Return the recording's time, as the rules' clock."""
        return self.now

    def opaque(self, facts: Facts) -> Opaque:
        """Return which exchanges of a connection no rule can be about."""
        plans = [variant.plan(facts)[0] for variant in self.variants]
        return self.opaques.setdefault(tuple(map(id, plans)), Opaque(plans))

    def findings(
        self, caller: RecordedClient, exchanges: Iterable[PackedExchange]
    ) -> Iterator[tuple[str, RehearsalFinding]]:
        """Yield (rule, finding) of one connection; an empty rule: of all rules together, where live ones fired."""
        self.number += 1
        rehearsals = [(one.rule, one.rehearsal(caller, self.number, self.topics)) for one in self.variants]
        for recorded in exchanges:
            self.now = recorded.request_time
            for rule, rehearsal in rehearsals:
                rehearsal.exchange(recorded)
                if rehearsal.findings:
                    yield from taken_findings(rule, rehearsal)
        for rule, rehearsal in rehearsals:
            rehearsal.end()
            yield from taken_findings(rule, rehearsal)

    def counted(self) -> list[CandidateCounts]:
        return [
            CandidateCounts(
                running.name,
                running.rule.kind,
                running.matched,
                running.fired,
                running.applied,
                counts_together(running),
            )
            for running in self.all.rules.live
        ]


def rules_of(texts: RuleTexts, began: float, seed: int) -> RuleSet:
    """Return the rules of these texts, in force since `began`. Raises DocumentError."""
    store = RuleStore(seed)
    store.replace_files([Source(name, text) for name, text in texts], began)
    return store.rule_set


def taken_findings(rule: str, rehearsal: Rehearsal) -> Iterator[tuple[str, RehearsalFinding]]:
    findings, rehearsal.findings = rehearsal.findings, []
    for finding in findings:
        if rule or finding.rules:
            yield rule, finding


def counts_together(running: Running) -> bool:
    """Return True if a rule counts over all connections.

    Workers that have some of the connections each cannot do so exactly.
    """
    when = running.rule.when
    counts = when is not None and any(
        getattr(when, name, None) is not None for name in ("nth", "first", "every", "times", "once", "probability")
    )
    together = counts and when is not None and when.count_per != "connection"
    return together or running.rule.kind in ("quota", "bandwidth")
