"""Result of an exploration: what was learned, what was run, and what was found, for reports in any form."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from .judge import PASSED, FailureSignature, JudgedRun, tally
from .model import ExploredRun, FaultClass, FaultPlan, RunOutcome
from .places import LearnedPlaces
from .plan import plan_text

NO_FAULT = FaultPlan()
LONGEST_TEXT = 50_000
"""Characters kept of a run's output and stacks."""


@dataclass(slots=True)
class FaultFinding:
    """Failure of a test under faults: the plan at which it was met, the smallest one with it, and how sure it is.

    first: number of the run that met it, from 1 · met: runs with it · others: some of those, with other plans ·
    fails, of: how often the plan of the example failed in so many runs · replays: how often the smallest one did in
    REPLAYS runs; None: it was not shrunk · tried, seconds: of shrinking · complete: nothing can be taken from the
    smallest plan · controls: how often runs without faults failed alike, and how many there were · file: where its
    rules are · known: it is in the baseline, or was found before.
    """

    signature: FailureSignature
    example: JudgedRun
    first: int
    met: int = 1
    others: list[JudgedRun] = field(default_factory=list)
    fails: int = 1
    of: int = 1
    smallest: FaultPlan = NO_FAULT
    replays: int | None = None
    replays_of: int = 0
    tried: int = 0
    seconds: float = 0.0
    complete: bool = False
    controls: tuple[int, int] = (0, 0)
    file: str = ""
    known: bool = False

    @property
    def certain(self) -> bool:
        """Return True if the plan failed in each run."""
        return self.fails == self.of and self.of > 1

    @property
    def hangs(self) -> bool:
        """Return True if its runs end only at their limit."""
        return self.signature.outcome == "hang"

    @property
    def is_of_test(self) -> bool:
        """Return True if runs without faults fail as often: the test is flaky, and no fault is to blame."""
        failed, of = self.controls
        return of > 0 and failed / of >= self.fails / max(self.of, 1)

    @property
    def shrunk_from(self) -> str:
        """Return the plan at which it was met as text, if a smaller one was found."""
        plan = self.example.run.plan
        return "" if plan == self.smallest else plan_text(plan)


@dataclass(slots=True)
class Exploration:
    """Exploration of one test. `problem`: why it was not explored, or not to its end; `flaky`: it fails without faults.

    skipped: why the test does not want to be run · replay: how the file of a finding is put into force, with
    `{name}` for its name without folders · drip: readers got one batch at a time in all runs.
    runs: in the order of their ends, those of learning, confirming and shrinking left out · exploring: seconds until
    there were no more of them · all_faults: names of the
    faults that can be at the places which were learned · left: plans that were not run · refused: plans for which there
    was no room · unlike_mock: faults that were left out on the mock cluster · notes: what else is to be told.
    """

    test: str
    classes: tuple[FaultClass, ...] = ()
    jobs: int = 1
    learned: LearnedPlaces = field(default_factory=LearnedPlaces)
    learning: list[ExploredRun] = field(default_factory=list)
    limit: float = 0.0
    runs: list[JudgedRun] = field(default_factory=list)
    findings: list[FaultFinding] = field(default_factory=list)
    seconds: float = 0.0
    all_faults: frozenset[str] = frozenset()
    left: int = 0
    refused: int = 0
    unlike_mock: tuple[str, ...] = ()
    problem: str = ""
    flaky: bool = False
    skipped: str = ""
    interrupted: bool = False
    notes: list[str] = field(default_factory=list)
    exploring: float = 0.0
    replay: str = "{name}"
    drip: bool = False

    @property
    def outcomes(self) -> dict[RunOutcome, int]:
        """Return how many runs had each outcome."""
        return tally(self.runs)

    @property
    def covered(self) -> frozenset[str]:
        """Return the names of the faults that were applied in at least one run."""
        return frozenset(name for one in self.runs for name in applied_faults(one.run))

    @property
    def broken(self) -> list[JudgedRun]:
        """Return the runs in which kproxy itself failed, or a fault could not be made."""
        return [one for one in self.runs if one.outcome == "broken"]

    def new_findings(self, strict: bool = False) -> list[FaultFinding]:
        """Return the findings that fail a build: those that are not known, and certain unless `strict`."""
        return [one for one in self.findings
                if not one.known and not one.is_of_test and (strict or one.certain)]  # fmt: skip

    @property
    def was_explored(self) -> bool:
        """Return True if it came to its end, so that what was not found is not there."""
        return not (self.problem or self.interrupted or self.skipped)

    def exit_code(self, strict: bool = False) -> int:
        """Return 0 if nothing new was found, 1 for findings, 2 if it could not be explored, or not to its end."""
        if self.new_findings(strict):
            return 1
        return 2 if self.problem or self.broken or self.interrupted else 0


def applied_faults(run: ExploredRun) -> Iterable[str]:
    """Yield the names of the faults of a run that were applied."""
    for step, counters in zip(run.plan.steps, run.counters, strict=False):
        if counters.applied:
            yield step.fault.name


def slim_run(one: JudgedRun, detailed: bool) -> JudgedRun:
    """Return a run as it is kept: without its places, and with its exchanges and output if it is `detailed`."""
    run = one.run
    if not detailed:
        return replace(one, run=replace(run, places=(), story=(), output="", stacks=""))
    output, stacks = run.output[-LONGEST_TEXT:], run.stacks[:LONGEST_TEXT]
    return replace(one, run=replace(run, places=(), output=output, stacks=stacks))


def finding_notes(test: str, finding: FaultFinding, seed: int, rules: Iterable[str] = ()) -> Iterator[str]:
    """Yield what is said above the rules of a finding. `rules`: names of rule files that were in force besides."""
    run = finding.example.run
    yield f"found by kproxy explore: {test}"
    outcome, what = finding.signature.outcome, finding.example.what
    yield what if what.startswith(outcome) else f"{outcome}: {what}"
    fails, of = (finding.fails, finding.of) if finding.replays is None else (finding.replays, finding.replays_of)
    yield f"fails in {fails} of {of} runs; seed {seed}"
    if run.software:
        yield f"clients: {', '.join(run.software)}"
    for file in rules:
        yield f"in force besides: {file}"


def merged_outcome(outcomes: Iterable[RunOutcome]) -> RunOutcome | None:
    """Return the outcome that stands for several runs of one cell: the worst one; None where there is none."""
    counted = Counter(outcomes)
    for outcome in ("hang", "died", "failed", "raised", "broken", "loud"):
        if counted[outcome]:
            return outcome
    if counted.keys() & PASSED:
        return "slow" if counted["slow"] and not counted["passed"] else "passed"
    return "not exercised" if counted else None
