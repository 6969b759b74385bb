"""Outcomes of runs, and signatures by which failures of several runs are one finding."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from hashlib import sha256

from .model import ExploredRun, FaultPlan, RunOutcome

FINDINGS: frozenset[RunOutcome] = frozenset(("failed", "raised", "hang", "died"))
"""Outcomes that a right client does not have."""
PASSED: frozenset[RunOutcome] = frozenset(("passed", "slow"))
MAY_NOT_RAISE = frozenset(("transient", "crash"))
"""Classes of faults after which a right client passes."""
SLOWER = 5.0
"""Times the seconds of the slower run without faults, from which on a run that passed is slow."""
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
    """Signature of a failure, the same in all runs with the same failure and cause."""

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
        """Return the signature without its cause."""
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
    """Run with its outcome, and the signature of its failure; None: it has not failed."""

    run: ExploredRun
    outcome: RunOutcome
    signature: FailureSignature | None = None

    @property
    def what(self) -> str:
        """Return what has happened: what was raised, else what is proved, else the outcome."""
        if self.run.raised is not None:
            return self.run.raised.short
        checks = ", ".join(dict.fromkeys(one.check for one in self.run.violations))
        word = "skipped" if self.run.ended == "skipped" else self.outcome
        return checks or (f"{word}: {self.run.problem}" if self.run.problem else word)


def judge(run: ExploredRun, slow_after: float = float("inf")) -> JudgedRun:
    """Return a run with its outcome. `slow_after`: seconds from which on a run that passed is slow."""
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
    """Return the signature of a failed run, with the cause of its plan."""
    checks = tuple(sorted({violation.check for violation in run.violations}))
    raised, cause = run.raised, cause_of(run.plan)
    if raised is None:
        return FailureSignature(outcome, checks=checks, cause=cause)
    where = f"{raised.where.rpartition(':')[0]}: {raised.line}" if raised.line else raised.where
    return FailureSignature(outcome, raised.type, plain_message(raised.message), where, checks, cause)


def cause_of(plan: FaultPlan) -> tuple[str, ...]:
    """Return the API and the class of each fault of a plan, such as `Produce transient`, sorted and each once."""
    return tuple(sorted({f"{step.place.api} {step.fault.kind_of}" for step in plan.steps}))


def plain_message(text: str) -> str:
    """Return a message's first line without parts that vary between runs.

    Numbers become N, ids become ID. Bytes and the elements of collections become …, since their order varies as well.
    """
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


def tally(judged: list[JudgedRun]) -> dict[RunOutcome, int]:
    """Return how many runs had each outcome, the most frequent one first."""
    return dict(Counter(one.outcome for one in judged).most_common())
