"""Plans run again: whether one fails each time, whether the test fails without it, and which of several still fails."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing

from .judge import FailureSignature, JudgedRun, judge
from .model import FaultPlan, Runner
from .result import FaultFinding

CONFIRMED_IN, MOST_TRIALS = 3, 10
"""Runs of a plan that make a finding certain, if all fail; those that tell how often it fails, if not."""
FEW_CONTROLS, CONTROLS = 2, 5
"""Runs without faults that a finding is compared with, when it is certain and when it is not."""


class Trials:
    """Runs that are made to be sure of something, by one runner."""

    def __init__(self, runner: Runner) -> None:
        self.runner = runner

    def confirm(self, finding: FaultFinding) -> None:
        """Run a finding's plan until it is certain, or known how often it fails; compare with runs without faults.

        Where it does not always fail, another plan that failed alike may: all hangs are alike, and one that comes of a
        busy machine must not stand for one that comes each time.
        """
        self.try_again(finding, CONFIRMED_IN, FEW_CONTROLS)
        if finding.certain:
            return
        for other in finding.others:
            if self.failing(other.run.plan, finding.signature, CONFIRMED_IN - 1) == CONFIRMED_IN - 1:
                finding.example, finding.smallest = other, other.run.plan
                finding.fails = finding.of = CONFIRMED_IN
                return
        self.try_again(finding, MOST_TRIALS, CONTROLS)

    def try_again(self, finding: FaultFinding, trials: int, controls: int) -> None:
        """Run a finding's plan until there are so many trials, and the test without faults until there are so many
        controls; any failure of those counts."""
        failed, of = finding.controls
        fails = finding.fails
        plans = [finding.example.run.plan] * (trials - finding.of) + [FaultPlan()] * (controls - of)
        with closing(self.runner.run(plans)) as runs:
            for run in runs:
                one = judge(run)
                if run.plan.steps:
                    fails += alike(one, finding.signature)
                else:
                    failed += one.signature is not None
        finding.fails, finding.of, finding.controls = fails, trials, (failed, controls)

    def failing(self, plan: FaultPlan, signature: FailureSignature, times: int) -> int:
        """Return how often a plan fails with a signature in so many runs."""
        with closing(self.runner.run([plan] * times)) as runs:
            return sum(alike(judge(run), signature) for run in runs)

    def first_failing(self, plans: Sequence[FaultPlan], signature: FailureSignature, tries: int) -> int | None:
        """Return the number of the first of these plans that fails with a signature in one of so many runs; None: none
        does. They run side by side, and what is under way ends when no other run can change the answer."""
        left = dict.fromkeys(plans, tries)
        failed: set[FaultPlan] = set()

        def waiting() -> Iterator[FaultPlan]:
            for _ in range(tries):
                yield from (plan for plan in plans if plan not in failed)

        with closing(self.runner.run(waiting())) as runs:
            for run in runs:
                left[run.plan] = left.get(run.plan, 0) - 1
                if alike(judge(run), signature):
                    failed.add(run.plan)
                for number, plan in enumerate(plans):
                    if plan in failed:
                        return number
                    if left[plan] > 0:
                        break
        return next((number for number, plan in enumerate(plans) if plan in failed), None)


def alike(one: JudgedRun, signature: FailureSignature) -> bool:
    """Return True if a run has failed with a signature."""
    return one.signature == signature
