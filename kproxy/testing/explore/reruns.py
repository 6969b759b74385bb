"""Repeated runs of plans: confirmation of findings, and smaller plans that fail as often.

All plans run as rule files have them. The runner's `until` may end each call early; the tallies then contain fewer
runs.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from math import ceil
from typing import Any, NamedTuple

from kproxy.base.errors import KproxyError

from .model import ExchangePlace, FaultClass, FaultPlan, MarkKind, PlaceMark, PlannedFault, Runner
from .places import by_lane
from .plan import FaultTable, breaks_connection, fault_table, saved_form
from .result import NO_FAULT, FailureSignature, FaultFinding, JudgedRun, judge

# runs plans side by side; returns the index of the first one that still fails, or None
FirstFailing = Callable[[Sequence[FaultPlan]], int | None]
# selectors, in the order in which shrinking removes them
DROPPED = ("client_software", "partition", "topic", "client_id", "group", "transactional_id")
MOST_FAULTS = 6  # candidates in place of one fault


class Shrinking:
    """Steps to smaller plans: fewer faults, an earlier exchange, a transient fault, an error instead of a broken
    connection, fewer selectors. `places`: those of the runs."""

    def __init__(
        self, places: Iterable[ExchangePlace] = (), table: FaultTable | None = None, on_mock: bool = False
    ) -> None:
        self.lanes, self.table, self.on_mock = by_lane(places), table or fault_table(), on_mock

    def shrink(
        self, plan: FaultPlan, first_failing: FirstFailing, time_is_up: Callable[[], bool]
    ) -> tuple[FaultPlan, bool]:
        """Return the smallest plan reached by accepted steps, and True unless time was up before the last step."""
        refused: set[FaultPlan] = set()
        found = True
        while found:
            found = False
            for candidates in self.rounds(plan):
                fresh = [one for one in dict.fromkeys(candidates) if one not in refused]
                if not fresh:
                    continue
                if time_is_up():
                    return plan, False
                number = first_failing(fresh)
                if number is None:
                    refused.update(fresh)
                    continue
                refused.update(fresh[:number])
                plan, found = fresh[number], True
                break
        return plan, not time_is_up()  # time may have ended the last round

    def rounds(self, plan: FaultPlan) -> Iterator[Iterable[FaultPlan]]:
        yield self.with_fewer_faults(plan)
        for step_candidates in (self.earlier, self.gentler, self.unbroken, self.less_selected):
            yield [one for number in range(len(plan.steps)) for one in changed(plan, number, step_candidates)]

    def with_fewer_faults(self, plan: FaultPlan) -> list[FaultPlan]:
        steps = plan.steps
        if len(steps) < 2:
            return []
        return [FaultPlan(steps[:number] + steps[number + 1 :]) for number in reversed(range(len(steps)))]

    def earlier(self, step: PlannedFault) -> Iterator[PlannedFault]:
        mark = step.place.mark
        lane = self.lanes.get(step.place.lane, [])
        if mark.offset is not None:
            offsets = {one.mark.offset for one in lane if one.mark.offset is not None}
            before = sorted(offset for offset in offsets if offset < mark.offset)
            for offset in dict.fromkeys((before[0], before[len(before) // 2], before[-1])) if before else ():
                yield moved(step, lane, PlaceMark("offset", 1, offset))
        for nth in dict.fromkeys((1, mark.nth // 2, mark.nth - 1)):
            if 0 < nth < mark.nth:
                kind: MarkKind = "ordinal" if mark.offset is None else "offset"
                yield moved(step, lane, PlaceMark(kind, nth, mark.offset))

    def gentler(self, step: PlannedFault) -> Iterator[PlannedFault]:
        if step.fault.kind_of != "transient":
            transient: tuple[FaultClass, ...] = ("transient",)
            faults = sorted(self.table.at(step.place, transient, self.on_mock), key=lambda one: -one.weight)
            for fault in faults[:MOST_FAULTS]:
                yield replace(step, fault=fault)

    def unbroken(self, step: PlannedFault) -> Iterator[PlannedFault]:
        if breaks_connection(step.fault):
            for fault in self.table.at(step.place, (step.fault.kind_of,), self.on_mock):
                if fault.moment == step.fault.moment and not breaks_connection(fault) and "error" in fault.rule:
                    yield replace(step, fault=fault)

    def less_selected(self, step: PlannedFault) -> Iterator[PlannedFault]:
        for name in DROPPED:
            if getattr(step.place, name) is not None:
                without: dict[str, Any] = {name: None}
                yield replace(step, place=replace(step.place, **without))


def with_faults_of(plan: FaultPlan, other: FaultPlan) -> FaultPlan | None:
    """Return a plan with the faults of another at its own places; None if the faults are equal or the APIs differ."""
    apis, others = ([step.place.api for step in one.steps] for one in (plan, other))
    if apis != others or plan.faults == other.faults:
        return None
    pairs = zip(plan.steps, other.steps, strict=True)
    return FaultPlan(tuple(replace(step, fault=theirs.fault) for step, theirs in pairs))


def changed(
    plan: FaultPlan, number: int, candidates: Callable[[PlannedFault], Iterable[PlannedFault]]
) -> Iterator[FaultPlan]:
    for step in candidates(plan.steps[number]):
        if step not in plan.steps:
            yield FaultPlan((*plan.steps[:number], step, *plan.steps[number + 1 :]))


def moved(step: PlannedFault, lane: Sequence[ExchangePlace], mark: PlaceMark) -> PlannedFault:
    """Return the same fault at another exchange of the lane, with its traits if a run had this exchange."""
    wanted = (mark.offset, mark.nth)
    known = next((one for one in lane if (one.mark.offset, one.mark.nth) == wanted), None)
    traits = step.place.traits if known is None else known.traits
    return replace(step, place=replace(step.place, mark=mark, traits=traits))


CONFIRMED_IN, MOST_TRIALS = 3, 10  # runs of a plan that always fails, and of an intermittent one
FEW_CONTROLS, CONTROLS = 2, 5  # runs without faults beside them
FLAKY_TRIES = 3  # runs of each candidate before a candidate of an intermittent plan is dropped
REPLAYS = 5  # final runs of a plan that always fails; an intermittent plan gets MOST_TRIALS
TOLERANCE = 0.1  # accepted loss of an intermittent plan's failure rate


class Tally(NamedTuple):
    """Failures of a plan in a number of runs."""

    failed: int = 0
    of: int = 0

    @property
    def rate(self) -> float:
        return self.failed / self.of if self.of else 0.0

    @property
    def certain(self) -> bool:
        return self.failed == self.of

    def required(self, runs: int) -> int:
        """Return the failures in `runs` that make another plan as reproducible as this one."""
        return runs if self.certain else max(1, ceil((self.rate - TOLERANCE) * runs - 1e-9))


class MeasuredPlan(NamedTuple):
    plan: FaultPlan
    tally: Tally


class Trials:
    def __init__(self, runner: Runner) -> None:
        self.runner = runner
        self.ran = 0

    def confirm(self, findings: Sequence[FaultFinding]) -> None:
        """Measure the failure rates of findings side by side, and the rate without faults. Three failures in three runs
        are certain. Otherwise another plan that always fails becomes the example, or the plan gets ten runs."""
        controls = self.repeat(findings, CONFIRMED_IN, Tally(), FEW_CONTROLS)
        for finding in findings:
            if finding.confirmed and not finding.certain:
                self.prefer_certain(finding)
        unsure = [one for one in findings if controls.failed or not one.certain]
        if unsure:
            controls = self.repeat(unsure, MOST_TRIALS, controls, CONTROLS)
        for finding in findings:
            finding.controls = controls

    def prefer_certain(self, finding: FaultFinding) -> None:
        """Replace the example of a finding by a run with a plan that always fails."""
        for other in finding.others:
            times = CONFIRMED_IN - 1
            if self.tally(other.run.plan, finding.signature, times, times) == (times, times):
                finding.example, finding.smallest = other, other.run.plan
                finding.fails = finding.of = CONFIRMED_IN
                return

    def repeat(self, findings: Sequence[FaultFinding], trials: int, controls: Tally, wanted: int) -> Tally:
        """Run plans until each finding has `trials` runs, and the test without faults until it has `wanted` runs.
        Return the tally without faults."""
        by_form: dict[FaultPlan, list[FaultFinding]] = {}
        for finding in findings:
            by_form.setdefault(self.form(finding.example.run.plan), []).append(finding)
        missing = {form: trials - min(one.of for one in group) for form, group in by_form.items()}
        plans = [form for number in range(trials) for form, count in missing.items() if number < count]
        more = wanted - controls.of
        plans[:0] = [NO_FAULT] * (more - more // 2)  # controls at both ends notice a cluster that ends in between
        plans += [NO_FAULT] * (more // 2)
        with closing(self.judged(plans)) as runs:
            for one in runs:
                if not one.run.plan.steps:
                    controls = Tally(controls.failed + (one.signature is not None), controls.of + 1)
                for finding in by_form.get(one.run.plan, ()):
                    if finding.of < trials:
                        finding.of += 1
                        finding.fails += alike(one, finding.signature)
        return controls

    def shrink(self, finding: FaultFinding, shrinking: Shrinking, time_is_up: Callable[[], bool]) -> list[MeasuredPlan]:
        """Replace the plan of a finding by the smallest one that is as reproducible as each plan before it, so several
        steps cannot lower the rate one tolerance at a time. Return all accepted plans."""
        began = self.ran
        forms = [MeasuredPlan(finding.example.run.plan, Tally(finding.fails, finding.of))]
        tries = 1 if finding.certain else FLAKY_TRIES

        def first_failing(plans: Sequence[FaultPlan]) -> int | None:
            at = 0
            while (number := self.first_failing(plans[at:], finding.signature, tries)) is not None:
                at += number
                if (tally := self.holds(plans[at], finding.signature, best_tally(forms))) is not None:
                    forms.append(MeasuredPlan(plans[at], tally))
                    finding.smallest, (finding.replays, finding.replays_of) = forms[-1]  # Ctrl-C may come next
                    return at
                at += 1
            return None

        _, finding.complete = shrinking.shrink(forms[0].plan, first_failing, time_is_up)
        finding.tried = self.ran - began
        return forms

    def replay(self, finding: FaultFinding, forms: Sequence[MeasuredPlan]) -> None:
        """Run the smallest plan again, and those before it until one is as reproducible as required. Keep the highest
        rate. If time is up before all runs, earlier runs count as well."""
        reference = best_tally(forms)
        times = REPLAYS if reference.certain else MOST_TRIALS
        replayed: list[MeasuredPlan] = []
        for plan, earlier in reversed(forms):
            tally = self.tally(plan, finding.signature, times)
            if tally.of < times:  # time was up
                tally = Tally(earlier.failed + tally.failed, earlier.of + tally.of)
            replayed.append(MeasuredPlan(plan, tally))
            if tally.failed >= reference.required(tally.of):
                break
        best = max(replayed, key=lambda one: one.tally.rate)
        finding.smallest, (finding.replays, finding.replays_of) = best
        finding.complete = finding.complete and best.plan == forms[-1].plan

    def holds(self, plan: FaultPlan, signature: FailureSignature, reference: Tally) -> Tally | None:
        """Return the tally of a plan if it is as reproducible as the reference; otherwise None."""
        times = CONFIRMED_IN if reference.certain else MOST_TRIALS
        required = reference.required(times)
        tally = self.tally(plan, signature, times, required)
        return tally if tally.of == times and tally.failed >= required else None

    def add_minimal(self, finding: FaultFinding, plans: Iterable[FaultPlan]) -> None:
        """Add those of these plans that are as reproducible as the smallest plan."""
        for plan in dict.fromkeys(plans):
            if (tally := self.holds(plan, finding.signature, Tally(*finding.rate))) is not None:
                finding.add_minimal(plan, *tally)

    def form(self, plan: FaultPlan) -> FaultPlan:
        """Return a plan as its rule file has it; the plan itself if rule files cannot contain it."""
        try:
            return saved_form(plan)
        except KproxyError:
            return plan

    def judged(self, plans: Iterable[FaultPlan]) -> Generator[JudgedRun, None, None]:
        with closing(self.runner.run(plans)) as runs:
            for run in runs:
                self.ran += 1
                yield judge(run)

    def tally(self, plan: FaultPlan, signature: FailureSignature, times: int, required: int = 0) -> Tally:
        """Count the failures of a plan in `times` runs, fewer once the `required` failures are out of reach."""
        failed = of = 0
        with closing(self.judged([self.form(plan)] * times)) as runs:
            for one in runs:
                of += 1
                failed += alike(one, signature)
                if times - (of - failed) < required:
                    break
        return Tally(failed, of)

    def first_failing(self, plans: Sequence[FaultPlan], signature: FailureSignature, tries: int) -> int | None:
        """Return the index of the first plan that fails in one of its `tries` runs, or None. Runs that cannot change
        the result are ended."""
        forms = [self.form(plan) for plan in plans]
        left = dict.fromkeys(forms, tries)
        failed: set[FaultPlan] = set()

        def waiting() -> Iterator[FaultPlan]:
            for _ in range(tries):
                yield from (form for form in left if form not in failed)

        def first() -> int | None:
            return next((number for number, form in enumerate(forms) if form in failed), None)

        with closing(self.judged(waiting())) as runs:
            for one in runs:
                left[one.run.plan] -= 1
                if alike(one, signature):
                    failed.add(one.run.plan)
                if (number := first()) is not None and not any(left[form] for form in forms[:number]):
                    return number
        return first()


def best_tally(forms: Iterable[MeasuredPlan]) -> Tally:
    return max((form.tally for form in forms), key=lambda tally: tally.rate)


def alike(one: JudgedRun, signature: FailureSignature) -> bool:
    """Return True if a run has the failure of a signature; causes can differ."""
    return one.signature is not None and one.signature.failure == signature.failure
