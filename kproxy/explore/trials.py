"""Repeated runs of plans: confirmation of findings, and smaller plans that fail as often.

All plans run as `plan.saved_form` returns them, so each rate measured here is the rate of the saved rule file. The
runner's `until` may end any of these calls early; the tallies then contain fewer runs.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from math import ceil
from typing import NamedTuple

from kproxy.errors import KproxyError

from .judge import FailureSignature, JudgedRun, judge
from .model import FaultPlan, Runner
from .plan import saved_form
from .result import NO_FAULT, FaultFinding
from .shrink import Shrinking

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
        """Return the failure rate; 0 without runs."""
        return self.failed / self.of if self.of else 0.0

    @property
    def certain(self) -> bool:
        """Return True if each run failed."""
        return self.failed == self.of

    def required(self, runs: int) -> int:
        """Return the failures in `runs` that make another plan as reproducible as this one."""
        return runs if self.certain else max(1, ceil((self.rate - TOLERANCE) * runs - 1e-9))


class MeasuredPlan(NamedTuple):
    """Plan with its measured failures."""

    plan: FaultPlan
    tally: Tally


class Trials:
    """Repeated runs by one runner. `ran`: number of runs so far."""

    def __init__(self, runner: Runner) -> None:
        self.runner = runner
        self.ran = 0

    # ---- confirm

    def confirm(self, findings: Sequence[FaultFinding]) -> None:
        """Measure the failure rates of findings, all side by side, and the rate without faults.

        Three failures in three runs are certain. If an intermittent finding has another plan that always fails, this
        plan becomes its example. Otherwise its plan gets ten runs.
        """
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
        """Replace the example of a finding by another run if the plan of that run always fails."""
        for other in finding.others:
            times = CONFIRMED_IN - 1
            if self.tally(other.run.plan, finding.signature, times, times) == (times, times):
                finding.example, finding.smallest = other, other.run.plan
                finding.fails = finding.of = CONFIRMED_IN
                return

    def repeat(self, findings: Sequence[FaultFinding], trials: int, controls: Tally, wanted: int) -> Tally:
        """Run the plans of findings until each has `trials` runs, and the test without faults until it has `wanted`
        runs. Return the tally of the runs without faults; any failure counts."""
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

    # ---- shrink

    def shrink(self, finding: FaultFinding, shrinking: Shrinking, time_is_up: Callable[[], bool]) -> list[MeasuredPlan]:
        """Replace the plan of a finding by the smallest one that is as reproducible as any plan before it.

        Each smaller plan is compared with the highest rate measured so far, so that several steps cannot lower the
        rate one tolerance at a time. Return the finding's plan and all accepted plans, for `replay`.
        """
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
        """Run the smallest plan again, and those before it until one is as reproducible as required. Keep the one with
        the highest rate, the smaller one of equals. If time is up before all runs, the earlier runs count as well."""
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
        """Add those of these plans to a finding that are as reproducible as its smallest plan."""
        for plan in dict.fromkeys(plans):
            if (tally := self.holds(plan, finding.signature, Tally(*finding.rate))) is not None:
                finding.add_minimal(plan, *tally)

    # ---- runs

    def form(self, plan: FaultPlan) -> FaultPlan:
        """Return a plan as its rule file has it; the plan itself if no file can have it."""
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
        """Return the number of the first plan that fails with a signature in one of its `tries` runs, or None. Runs
        that cannot change the result are ended."""
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
    """Return True if a run failed with a signature, whatever caused it."""
    return one.signature is not None and one.signature.failure == signature.failure
