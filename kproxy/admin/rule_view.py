"""Rules as the API shows them."""

from __future__ import annotations

import math
from time import monotonic

from kproxy.net.rules.keeper import Rejection, RuleKeeper
from kproxy.rules.document.scenario import Scenario
from kproxy.rules.kinds.base.live import LiveRule
from kproxy.rules.store import RuleStore
from kproxy.rules.stored_rules import StoredDocument, StoredRule

from .long_answer import LongAnswer
from .models import KilledShown, RejectionShown, RuleShown, RulesShown, ScenarioShown, TurnedShown, calendar_time
from .problem import mistake_of

MOST_NAMED = 100
"""Rules that the answer of the kill switch names, in each of its lists."""


def show_rule(store: RuleStore, name: str, now: float | None = None) -> RuleShown:
    """Return one rule with its counters. Raises NoSuchRule."""
    stored_rule = store[name]
    now = monotonic() if now is None else now
    rule, running = stored_rule.rule, stored_rule.running
    live = isinstance(rule, LiveRule)
    return RuleShown(
        name=stored_rule.name,
        kind=rule.kind,
        family=rule.family,
        fault=stored_rule.is_fault,
        origin=stored_rule.origin,
        position=stored_rule.parsed.position,
        rule=stored_rule.parsed.raw,
        enabled=store.is_enabled(name),
        in_force=stored_rule.active,
        stage=_stage_of(stored_rule),
        binds="frame" if live else "connection",
        mode=rule.mode if isinstance(rule, LiveRule) else "enforce",
        matched=running.matched if running is not None else 0 if live else None,
        fired=running.fired if running is not None else 0 if live else None,
        applied=running.applied if running is not None else 0 if live else None,
        held=len(running.held) if running is not None else 0 if live else None,
        problems=running.problems if running is not None else 0 if live else None,
        problem=(running.problem or None) if running is not None else None,
        seed=running.seed if running is not None else store.seed if live else None,
        since=calendar_time(stored_rule.since),
        ttl_left=None if stored_rule.until is None else round(max(0.0, stored_rule.until - now), 3),
        warnings=list(rule.warnings()) if isinstance(rule, LiveRule) else [],
    )


def show_rules(keeper: RuleKeeper) -> LongAnswer:
    """Return all rules, and how they came in."""
    store, loads, now = keeper.store, keeper.loads, monotonic()
    last = loads.last
    names = list(store.stored_rules)
    shown = RulesShown(
        version=store.rule_set.id,
        seed=store.seed,
        killed=store.killed,
        rules=[],
        scenarios=[
            _show_scenario(stored, stored.document.scenario, now)
            for stored in store.documents
            if stored.document.scenario is not None
        ],
        loaded=dict(loads.loaded),
        rejected=dict(loads.rejected),
        last_rejection=None if last is None else _show_rejection(last),
    )
    return LongAnswer(shown, "rules", (show_rule(store, name, now) for name in names if name in store.stored_rules))


def show_killed(store: RuleStore, before: set[str]) -> KilledShown:
    """Return the kill switch, and what has come of it; `before` are the names of rules that were in force."""
    rules = list(store.stored_rules.values())
    turned = [one for one in rules if one.is_fault and one.active is not (one.name in before)]
    left = [one for one in rules if one.active and isinstance(one.rule, LiveRule) and not one.is_fault]
    return KilledShown(
        killed=store.killed,
        version=store.rule_set.id,
        turned=[_show_turned(one, told=store.killed) for one in turned[:MOST_NAMED]],
        left=[_show_turned(one, told=False) for one in left[:MOST_NAMED]],
        more=max(len(turned) - MOST_NAMED, 0) + max(len(left) - MOST_NAMED, 0),
    )


def _show_turned(stored_rule: StoredRule, *, told: bool) -> TurnedShown:
    note = None
    if told and stored_rule.may_be_meant_for_good:
        note = f"in force since {calendar_time(stored_rule.since)}"
        note += "; lasting: true keeps such a rule" if "lasting" in type(stored_rule.rule).model_fields else ""
    return TurnedShown(name=stored_rule.name, kind=stored_rule.rule.kind, family=stored_rule.rule.family, note=note)


def _show_rejection(last: Rejection) -> RejectionShown:
    return RejectionShown(at=last.at, origin=last.origin, mistakes=[mistake_of(line) for line in last.mistakes])


def _show_scenario(stored: StoredDocument, scenario: Scenario, now: float) -> ScenarioShown:
    at = stored.moment(now)
    names = [scenario.stage_name(index) for index in range(len(scenario.stages))]
    return ScenarioShown(
        name=scenario.name,
        origin=stored.origin,
        file=stored.document.source.file,
        stages=names,
        stage=None if at is None else names[at.stage],
        round=None if at is None else at.round + 1,
        ends_in=None if at is None or at.ends == math.inf else round(stored.began + at.ends - now, 3),
    )


def _stage_of(stored_rule: StoredRule) -> str | None:
    stage, scenario = stored_rule.parsed.stage, stored_rule.stored_document.document.scenario
    return None if stage is None or scenario is None else scenario.stage_name(stage)
