"""A saved finding played again: its command, under the rules of its file, as often as wanted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from kproxy.terminal import in_line

from .explorer import LEARNING_LIMIT
from .exploring import ExploredTest
from .judge import FINDINGS, JudgedRun, judge
from .model import FaultPlan, RunOutcome
from .options import ExploreOptions
from .report.text import LOUD, counted
from .runs.fork_runner import ForkRunner, default_jobs


def replay_finding(test: ExploredTest, plan: FaultPlan, options: ExploreOptions, tell: Callable[[str], object]) -> int:
    """Run a test under a plan, `options.runs` times or once, and tell how each run ended. Return 1 if one failed, 2 if
    none did and a run could not be made, was interrupted, or the faults found nothing to act on, else 0. Raises
    InternalError."""
    times = options.runs or 1
    outcomes: Counter[RunOutcome] = Counter()
    interrupted = False
    try:
        with ForkRunner(test.command, min(options.jobs or default_jobs(), times), test.folder) as runner:
            runner.limit = options.limit or LEARNING_LIMIT
            for number, run in enumerate(runner.run([plan] * times), 1):
                one = judge(run)
                outcomes[one.outcome] += 1
                tell(f"run {number}: {ending(one)} ({run.seconds:.1f} s)")
    except KeyboardInterrupt:
        interrupted = True
        tell("interrupted")
    failed = sum(outcomes[outcome] for outcome in FINDINGS)
    tell(f"fails in {failed} of {counted(outcomes.total(), 'run')}")
    return 1 if failed else 2 if interrupted or outcomes["broken"] or outcomes["not exercised"] else 0


def ending(one: JudgedRun) -> str:
    """Return how a run ended, in one line."""
    word = one.outcome.upper() if one.outcome in LOUD else one.outcome
    if one.outcome == "not exercised":
        return f"{word}: {'; '.join(f'matched {each.matched}, applied {each.applied}' for each in one.run.counters)}"
    if one.outcome == "broken":
        return f"{word}: {in_line(one.run.problem)}"
    return word if one.what == one.outcome else f"{word}: {in_line(one.what)}"
