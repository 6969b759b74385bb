"""Outcomes of runs, signatures of failures, findings, and the result of an exploration."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from hashlib import sha256
from math import ceil
from pathlib import Path

from kproxy.base.errors import plural

from .model import ExploredRun, FaultClass, FaultPlan, RunOutcome
from .places import LearnedPlaces
from .plan import plan_text

# outcomes that a right client does not have
FINDINGS: frozenset[RunOutcome] = frozenset(("failed", "raised", "hang", "died"))
PASSED: frozenset[RunOutcome] = frozenset(("passed", "slow"))
MAY_NOT_RAISE = frozenset(("transient", "crash"))  # classes after which a right client passes
SLOWER = 5.0  # a passed run is slow if it takes this many times the slower run without faults
LONGEST_MESSAGE = 300
IDS = re.compile(
    r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"  # UUIDs
    r"|\b0x[0-9a-fA-F]+|\b(?=[0-9a-fA-F]*[0-9])(?=[0-9a-fA-F]*[a-fA-F])[0-9a-fA-F]{7,}\b"  # addresses and digests
    r"|(?<![\w-])(?=[\w-]{0,21}[0-9])(?=[\w-]{0,21}[a-z])(?=[\w-]{0,21}[A-Z])[\w-]{22}(?![\w-])",  # topic ids
    re.ASCII,
)
BYTES = re.compile(r"""\bb(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")""")
NUMBERS = re.compile(r"\d+(?:[.,:]\d+)*")


@dataclass(frozen=True, slots=True)
class FailureSignature:
    outcome: RunOutcome
    type: str = ""
    message: str = ""  # first line, with varying parts replaced (`plain_message`)
    where: str = ""  # last line in the test's own code as text, which lines inserted above it do not change
    checks: tuple[str, ...] = ()  # names of the checks that `kproxy verify` proves violated
    cause: tuple[str, ...] = ()  # API and class of each fault, such as `Produce transient`

    @property
    def short(self) -> str:
        """Return eight hexadecimal digits that distinguish it from others of the same test."""
        text = "\0".join((self.outcome, self.type, self.message, self.where, *self.checks, *self.cause))
        return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]

    @property
    def failure(self) -> FailureSignature:
        return replace(self, cause=())

    def covers(self, other: FailureSignature) -> bool:
        """Return True if the other has the same failure, and at least the causes of this one."""
        return self.failure == other.failure and set(self.cause) <= set(other.cause)


@dataclass(frozen=True, slots=True)
class KnownFailures:
    """Failures that are reported and do not fail a build."""

    signatures: frozenset[FailureSignature] = frozenset()  # each covers the same failure with further causes
    patterns: tuple[str, ...] = ()  # patterns of `TYPE: MESSAGE`

    def __contains__(self, signature: FailureSignature) -> bool:
        text = f"{signature.type}: {signature.message}"
        plain = (*self.patterns, *map(plain_message, self.patterns))  # as a report shows it, with its numbers
        known = any(one.covers(signature) for one in self.signatures)
        return known or any(text == one or fnmatchcase(text, one) for one in plain)


NONE_KNOWN = KnownFailures()


@dataclass(frozen=True, slots=True)
class JudgedRun:
    """Run with its outcome, and the signature of its failure, if any."""

    run: ExploredRun
    outcome: RunOutcome
    signature: FailureSignature | None = None

    @property
    def what(self) -> str:
        """Return the exception, otherwise the proved checks, otherwise the outcome."""
        if self.run.raised is not None:
            return self.run.raised.short
        checks = ", ".join(dict.fromkeys(one.check for one in self.run.violations))
        word = "skipped" if self.run.ended == "skipped" else self.outcome
        return checks or (f"{word}: {self.run.problem}" if self.run.problem else word)


def judge(run: ExploredRun, slow_after: float = float("inf")) -> JudgedRun:
    """Return a run with its outcome. `slow_after`: seconds after which a passed run is slow."""
    outcome = outcome_of(run, slow_after)
    return JudgedRun(run, outcome, signature_of(run, outcome) if outcome in FINDINGS else None)


def outcome_of(run: ExploredRun, slow_after: float) -> RunOutcome:
    if run.ended == "broken" or any(counters.problems for counters in run.counters):
        return "broken"
    if run.ended in ("hang", "died"):
        return run.ended
    if run.ended == "failed" or run.violations:
        return "failed"
    if run.ended == "raised":
        return "raised" if run.plan.classes <= MAY_NOT_RAISE else "loud"
    if run.ended == "skipped" or not run.exercised:
        return "not exercised"
    return "slow" if run.seconds > slow_after else "passed"


def signature_of(run: ExploredRun, outcome: RunOutcome) -> FailureSignature:
    checks = tuple(sorted({violation.check for violation in run.violations}))
    raised, cause = run.raised, cause_of(run.plan)
    if raised is None:
        return FailureSignature(outcome, checks=checks, cause=cause)
    where = f"{raised.where.rpartition(':')[0]}: {raised.line}" if raised.line else raised.where
    return FailureSignature(outcome, raised.type, plain_message(raised.message), where, checks, cause)


def cause_of(plan: FaultPlan) -> tuple[str, ...]:
    """Return API and class of each fault of a plan, such as `Produce transient`, sorted and each once."""
    return tuple(sorted({f"{step.place.api} {step.fault.kind_of}" for step in plan.steps}))


def plain_message(text: str) -> str:
    """Return a message's first line without parts that vary between runs: numbers, ids, bytes and elements of
    collections."""
    first = next((line.strip() for line in text[: 4 * LONGEST_MESSAGE].splitlines() if line.strip()), "")
    return BYTES.sub("b'…'", without_elements(NUMBERS.sub("N", IDS.sub("ID", first))))[:LONGEST_MESSAGE]


def without_elements(text: str) -> str:
    """Return a text with … as the content of brackets and braces, except after a word as in `orders[0]`."""
    kept: list[str] = []
    depth = 0
    before = ""
    for letter in text:
        if not depth:
            kept.append(letter)
            depth = int(letter in "[{" and not (before.isalnum() or before == "_"))
        else:
            depth += (letter in "[{") - (letter in "]}")
            if depth == 0:
                kept.append(letter if before in "[{" else f"…{letter}")
        before = letter
    return "".join(kept) + "…" * (depth > 0)


NO_FAULT = FaultPlan()
NOT_ON_MOCK = (
    "the mock does not store offsets that a client commits in a transaction, and the client fetched them: expected a "
    "Kafka cluster for this result. Name one with --kproxy-upstream=HOST:PORT or a fixture kproxy_upstream (kproxy "
    "explore: --upstream)"
)
MOST_MINIMAL = 8  # other smallest plans of one finding
LONGEST_TEXT = 50_000  # characters of a run's output and stacks


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
        known = (self.smallest, *(one for one, _, _ in self.minimal))
        if plan not in known and len(self.minimal) < MOST_MINIMAL:
            self.minimal.append((plan, fails, of))

    @property
    def confirmed(self) -> bool:
        """Return True if its plan was run again."""
        return self.of > 1

    @property
    def certain(self) -> bool:
        return self.confirmed and self.fails == self.of

    @property
    def hangs(self) -> bool:
        return self.signature.outcome == "hang"

    @property
    def is_of_test(self) -> bool:
        """Return True if runs without faults fail, unless only the plan fails in each run."""
        failed, of = self.controls
        return failed > 0 and (not self.certain or failed == of)

    @property
    def shrunk_from(self) -> str:
        """Return the plan of the example as text; empty if it is the smallest plan."""
        plan = self.example.run.plan
        return "" if plan == self.smallest else plan_text(plan)


@dataclass(slots=True)
class Exploration:
    """Exploration of one test."""

    test: str
    classes: tuple[FaultClass, ...] = ()
    jobs: int = 1
    learned: LearnedPlaces = field(default_factory=LearnedPlaces)
    learning: list[ExploredRun] = field(default_factory=list)
    limit: float = 0.0  # seconds after which a run is a hang
    runs: list[JudgedRun] = field(default_factory=list)  # with faults, in the order of their ends
    findings: list[FaultFinding] = field(default_factory=list)
    seconds: float = 0.0
    all_faults: frozenset[str] = frozenset()  # names of faults that can occur at the learned places
    left: int = 0  # plans that were not run
    refused: int = 0  # plans beyond the limit
    unlike_mock: tuple[str, ...] = ()  # faults that were excluded on the mock
    problem: str = ""  # why it was not explored, or not to its end
    flaky: bool = False  # it fails without faults at times
    skipped: str = ""  # reason of the test itself
    interrupted: bool = False
    notes: list[str] = field(default_factory=list)
    exploring: float = 0.0  # seconds until the last run with faults
    replay: str = "{name}"  # text that replays a rule file `{name}` with `{limit}`
    replay_limit: str = ""  # text for `{limit}`, with `{seconds}`
    one_batch_per_fetch: bool = False  # all runs gave readers one batch at a time

    @property
    def outcomes(self) -> dict[RunOutcome, int]:
        return dict(Counter(one.outcome for one in self.runs).most_common())

    @property
    def covered(self) -> frozenset[str]:
        """Return the names of the faults that were applied at least once."""
        return frozenset(name for one in self.runs for name in applied_faults(one.run))

    @property
    def broken(self) -> list[JudgedRun]:
        return [one for one in self.runs if one.outcome == "broken"]

    @property
    def new_findings(self) -> list[FaultFinding]:
        """Return the confirmed findings that are not known, which fail a build."""
        return [one for one in self.findings if one.confirmed and not one.known and not one.is_of_test]

    def replay_lines(self, finding: FaultFinding) -> list[str]:
        """Return the text that replays the rule file of a finding. A hang has the limit that made it one."""
        limit = self.replay_limit.replace("{seconds}", str(ceil(self.limit))) if finding.hangs else ""
        return self.replay.replace("{name}", Path(finding.file).name).replace("{limit}", limit).splitlines()

    @property
    def was_explored(self) -> bool:
        """Return True if the exploration reached its end, so missing findings are fixed."""
        return not (self.problem or self.interrupted or self.skipped)

    def exit_code(self) -> int:
        """Return 0 without new findings, 1 with some, 2 if the test was not explored to the end and has none."""
        if self.new_findings:
            return 1
        return 2 if self.problem or self.broken or self.interrupted else 0


def applied_faults(run: ExploredRun) -> Iterable[str]:
    for step, counters in zip(run.plan.steps, run.counters, strict=False):
        if counters.applied:
            yield step.fault.name


def slim_run(one: JudgedRun, detailed: bool) -> JudgedRun:
    """Return a run without its places, and without exchanges and output unless it is `detailed`."""
    run = one.run
    if not detailed:
        return replace(one, run=replace(run, places=(), story=(), output="", stacks=""))
    output, stacks = run.output[-LONGEST_TEXT:], run.stacks[:LONGEST_TEXT]
    return replace(one, run=replace(run, places=(), output=output, stacks=stacks))


def finding_notes(test: str, finding: FaultFinding, seed: int, rules: Iterable[str] = ()) -> Iterator[str]:
    """Yield the comments of a rule file. `rules`: names of further rule files in force."""
    run = finding.example.run
    yield f"found by kproxy explore: {test}"
    outcome, what = finding.signature.outcome, finding.example.what
    yield what if what.startswith(outcome) else f"{outcome}: {what}"
    fails, of = finding.rate
    yield f"fails in {fails} of {plural(of, 'run')}; seed {seed}"
    if run.software:
        yield f"clients: {', '.join(run.software)}"
    for file in rules:
        yield f"in force besides: {file}"


def merged_outcome(outcomes: Iterable[RunOutcome]) -> RunOutcome | None:
    """Return the worst outcome of several runs; None without runs."""
    counted = Counter(outcomes)
    for outcome in ("hang", "died", "failed", "raised", "broken", "loud"):
        if counted[outcome]:
            return outcome
    if counted.keys() & PASSED:
        return "slow" if counted["slow"] and not counted["passed"] else "passed"
    return "not exercised" if counted else None
