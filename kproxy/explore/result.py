"""Result of an exploration: what was learned, what was run, and what was found, for reports in any form."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from math import ceil
from pathlib import Path

from .judge import PASSED, FailureSignature, JudgedRun, tally
from .model import ExploredRun, FaultClass, FaultPlan, RunOutcome
from .places import LearnedPlaces
from .plan import plan_text

NO_FAULT = FaultPlan()
NOT_ON_MOCK = (
    "the mock does not store offsets that a client commits in a transaction, and the client fetched them: expected a "
    "Kafka cluster for this result. Name one with --kproxy-upstream=HOST:PORT or a fixture kproxy_upstream (kproxy "
    "explore: --upstream)"
)
MOST_MINIMAL = 8  # other smallest plans of one finding
LONGEST_TEXT = 50_000
"""Characters kept of a run's output and stacks."""


@dataclass(slots=True)
class FaultFinding:
    """Failure of a test under faults, with the plan that met it and the smallest plan that reproduces it."""

    signature: FailureSignature
    example: JudgedRun
    first: int  # number of the run that met it, from 1
    met: int = 1  # runs that failed alike
    others: list[JudgedRun] = field(default_factory=list)  # some of these runs, with other plans
    fails: int = 1  # failures of the example's plan, in `of` runs
    of: int = 1
    smallest: FaultPlan = NO_FAULT
    replays: int | None = None  # failures of the smallest plan, in `replays_of` runs; None until it was shrunk
    replays_of: int = 0
    tried: int = 0  # runs that shrinking took
    seconds: float = 0.0  # of shrinking
    complete: bool = False  # shrinking found no smaller plan
    controls: tuple[int, int] = (0, 0)  # failures and runs without faults
    minimal: list[tuple[FaultPlan, int, int]] = field(default_factory=list)  # like `smallest`, with failures and runs
    file: str = ""  # saved rule file
    known: bool = False  # the baseline or the test's marker contains it

    @property
    def rate(self) -> tuple[int, int]:
        """Return failures and runs of the smallest plan, or of the example's plan until it was shrunk."""
        return (self.fails, self.of) if self.replays is None else (self.replays, self.replays_of)

    @property
    def reproduced(self) -> bool:
        """Return True if the smallest plan failed when it ran as its rule file has it."""
        return self.fails > 1 if self.replays is None else self.replays > 0

    def add_minimal(self, plan: FaultPlan, fails: int, of: int) -> None:
        """Add another smallest plan, up to MOST_MINIMAL."""
        known = (self.smallest, *(one for one, _, _ in self.minimal))
        if plan not in known and len(self.minimal) < MOST_MINIMAL:
            self.minimal.append((plan, fails, of))

    @property
    def confirmed(self) -> bool:
        """Return True if its plan was run again, so that its failure rate is known."""
        return self.of > 1

    @property
    def certain(self) -> bool:
        """Return True if the plan failed in each run."""
        return self.confirmed and self.fails == self.of

    @property
    def hangs(self) -> bool:
        """Return True if its runs end only at their limit."""
        return self.signature.outcome == "hang"

    @property
    def is_of_test(self) -> bool:
        """Return True if runs without faults fail, unless only the plan fails in each run."""
        failed, of = self.controls
        return failed > 0 and (not self.certain or failed == of)

    @property
    def shrunk_from(self) -> str:
        """Return the plan at which it was met as text, if a smaller one was found."""
        plan = self.example.run.plan
        return "" if plan == self.smallest else plan_text(plan)


@dataclass(slots=True)
class Exploration:
    """Exploration of one test. `problem`: why it was not explored, or not to its end; `flaky`: it fails without faults.

    skipped: why the test does not want to be run · replay: how the file of a finding is put into force, with `{name}`
    for its name without folders, and `{limit}` for the limit of a hang · drip: all runs gave readers one batch at a
    time.
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
    replay_limit: str = ""  # text for `{limit}`, with `{seconds}`
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

    @property
    def new_findings(self) -> list[FaultFinding]:
        """Return the findings that fail a build: confirmed ones, certain or intermittent, that are not known."""
        return [one for one in self.findings if one.confirmed and not one.known and not one.is_of_test]

    def replay_lines(self, finding: FaultFinding) -> list[str]:
        """Return the text that replays the rule file of a finding. A hang has the limit that made it one."""
        limit = self.replay_limit.replace("{seconds}", str(ceil(self.limit))) if finding.hangs else ""
        return self.replay.replace("{name}", Path(finding.file).name).replace("{limit}", limit).splitlines()

    @property
    def was_explored(self) -> bool:
        """Return True if it came to its end, so that what was not found is not there."""
        return not (self.problem or self.interrupted or self.skipped)

    def exit_code(self) -> int:
        """Return 0 without new findings, 1 with some, 2 if the test was not explored to the end and has none."""
        if self.new_findings:
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
    fails, of = finding.rate
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
