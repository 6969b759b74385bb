"""The report of an exploration as lines for a terminal or a log."""

from __future__ import annotations

from collections.abc import Iterator

from kproxy.explore.known_clients import known_behaviour
from kproxy.explore.model import RunOutcome
from kproxy.explore.plan import plan_text
from kproxy.explore.result import Exploration, FaultFinding
from kproxy.terminal import in_line

LOUD: frozenset[RunOutcome] = frozenset(("failed", "raised", "hang", "died", "broken"))
WORDS: dict[RunOutcome, str] = {"loud": "failed loudly"}
MOST_NAMES = 4


def report_lines(result: Exploration) -> Iterator[str]:
    """Yield the lines about one exploration, without anything that could command a terminal."""
    yield f"{in_line(result.test)} {heading(result)}"
    for line in (*learned_lines(result), *explored_lines(result)):
        yield f"  {in_line(line)}"
    for finding in result.findings:
        for number, line in enumerate(finding_lines(finding, result)):
            yield f"  {'  ' if number else ''}{in_line(line)}"
    for note in result.notes:
        yield f"  note: {in_line(note)}"


def heading(result: Exploration) -> str:
    if result.flaky:
        return "FLAKY"
    if result.skipped:
        return "SKIPPED"
    if result.problem and not result.runs:
        return "NOT EXPLORED"
    return "EXPLORED"


def learned_lines(result: Exploration) -> Iterator[str]:
    """Yield what was learned, or why nothing was."""
    learned = result.learned
    if learned.places:
        varying = f"; counts vary of {listed(learned.varying)}" if learned.varying else ""
        kinds, places = counted(learned.kinds, "kind"), counted(len(learned.places), "stable place")
        yield f"learned      {kinds} of exchanges, {places}, in {counted(len(result.learning), 'run')}{varying}"
    if result.skipped:
        yield f"skipped      {result.skipped}"
    if result.problem:
        yield f"problem      {result.problem}"


def explored_lines(result: Exploration) -> Iterator[str]:
    """Yield how many runs there were, how they ended, and what is left."""
    if not result.runs:
        return
    ends = ", ".join(
        f"{count:,} {WORDS.get(outcome, outcome).upper() if outcome in LOUD else WORDS.get(outcome, outcome)}"
        for outcome, count in result.outcomes.items()
    )
    left = f"{result.left:,} plans are left" if result.left else "nothing is left"
    runs = f"{counted(len(result.runs), 'run')} in {result.exploring:.0f} s, {result.jobs} side by side"
    yield f"explored     {runs}: {ends}, {left}"
    missed = sorted(result.all_faults - result.covered)
    covered = len(result.all_faults) - len(missed)
    yield f"covered      {covered} of {len(result.all_faults)} faults" + (f"; not {listed(missed)}" if missed else "")
    if result.unlike_mock:
        yield f"not tried    on the mock cluster, which does not do as brokers do: {listed(result.unlike_mock)}"
    if result.refused:
        yield f"not tried    {result.refused:,} plans for which there was no room"
    for one in result.broken[:3]:
        problems = [problem for counters in one.run.counters for problem in counters.problems]
        yield f"BROKEN       {one.run.problem or '; '.join(problems) or 'its process has told nothing'}"


def finding_lines(finding: FaultFinding, result: Exploration) -> Iterator[str]:
    """Yield a finding's outcome, plan and failure rate, and how to replay it."""
    word = finding.signature.outcome.upper()
    marks = ["known"] if finding.known else []
    if finding.of == 1:
        marks.insert(0, "not confirmed")
    elif not finding.certain:
        marks.insert(0, "intermittent")
    where = f"{counted(finding.met, 'run')}, first in run {finding.first}"
    yield f"{word}  {finding.example.what} ({'; '.join([where, *marks])})"
    if finding.is_of_test:
        failed, of = finding.controls
        yield f"not the faults: it fails in {failed} of {of} runs without any"
        return
    yield plan_text(finding.smallest)
    yield "; ".join(certainty(finding))
    if behaviour := known_behaviour(finding):
        yield from behaviour.lines()
    for plan, fails, of in finding.minimal:
        yield f"the same with {plan_text(plan)}: fails in {fails} of {counted(of, 'run')}"
    if finding.replays == 0:
        yield "not saved: it did not fail again from its rule file"
    if finding.file:
        yield f"saved {finding.file}; from now on:"
        yield from (f"  {line}" for line in result.replay_lines(finding))


def certainty(finding: FaultFinding) -> Iterator[str]:
    """Yield how a finding was shrunk, its failure rate with and without faults, and what verify proves."""
    if finding.replays is not None:
        runs = f"in {counted(finding.tried, 'run')} ({finding.seconds:.0f} s)"
        ended = "" if finding.complete else ", time was up"
        if finding.shrunk_from:
            yield f"shrunk from {finding.shrunk_from} {runs}{ended}"
        elif finding.complete:
            yield f"nothing can be taken from it, {runs}"
        else:
            yield f"not shrunk{', ' + runs if finding.tried else ''}: time was up"
        yield rate(finding, finding.replays, finding.replays_of)
    else:
        yield rate(finding, finding.fails, finding.of)
    violations = finding.example.run.violations
    if violations:
        yield "verify: " + "; ".join(f"{one.check} {one.text}".strip() for one in violations[:3])


def rate(finding: FaultFinding, fails: int, of: int) -> str:
    """Return a failure rate such as `fails in 3 of 10 runs, 0 of 5 without faults`."""
    failed, controls = finding.controls
    without = f", {failed} of {controls} without faults" if controls else ""
    return f"fails in {fails} of {counted(of, 'run')}{without}"


def listed(names: Iterator[str] | tuple[str, ...] | list[str]) -> str:
    """Return names separated by commas; of many the first ones and the number of the others."""
    known = list(names)
    text = ", ".join(known[:MOST_NAMES])
    return text if len(known) <= MOST_NAMES else f"{text} and {len(known) - MOST_NAMES} others"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, such as `1 run` or `1,200 runs`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
