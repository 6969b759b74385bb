"""Exploration and replay of a test by a process that forks its runs, for pytest and for the command line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic, time

from kproxy.base.errors import InternalError, KproxyError, plural
from kproxy.base.terminal import in_line
from kproxy.testing.explore.runs.fork_runner import ForkRunner, default_jobs

from .database import FOLDER, Baseline, FindingStore, write_whole
from .explorer import LEARNING_LIMIT, Explorer, ExploreSettings
from .model import FaultPlan, RunOutcome, dumps
from .options import ExploreOptions
from .order import OrderSettings
from .report import LOUD, html_report, json_report
from .result import FINDINGS, NONE_KNOWN, Exploration, JudgedRun, KnownFailures, judge


@dataclass(frozen=True, slots=True)
class ExploredTest:
    name: str
    command: Sequence[str]  # of the process that forks its runs
    folder: Path
    save: Path  # folder for rule files
    seed: int  # breaks ties
    on_mock: bool = False
    known: KnownFailures = NONE_KNOWN
    workers: int = 1  # processes that explore at the same time
    rules: tuple[str, ...] = ()  # names of rule files in force in all runs
    replay: str = "{name}"  # text that replays a rule file `{name}` with `{limit}`
    replay_limit: str = ""  # text for `{limit}` in `replay`, with `{seconds}`


def explore_test(test: ExploredTest, options: ExploreOptions, tell: Callable[[str], object]) -> Exploration:
    settings = ExploreSettings(
        OrderSettings(options.classes, options.depth, options.only, test.on_mock, test.seed),
        options.seconds, options.runs, options.limit, options.first, options.until_covered, test.known, test.save,
        options.one_batch_per_fetch, test.rules,
    )  # fmt: skip
    result = Exploration(test.name, options.classes)
    store = FindingStore(test.name, test.folder / FOLDER)
    runner: ForkRunner | None = None
    began = monotonic()
    try:
        jobs = options.jobs or default_jobs(test.workers)
        with ForkRunner(test.command, jobs, test.folder, began + options.seconds) as runner:
            explorer = Explorer(test.name, runner, settings, store, clock=monotonic, wall=time, tell=tell, began=began)
            result = explorer.result
            try:
                result = explorer.explore()
            except InternalError as error:  # the cluster has gone, or the process that forks
                result.problem, result.seconds = str(error), monotonic() - began
    except KproxyError as error:
        result.problem = result.problem or str(error)
    except KeyboardInterrupt:  # before it began, or while topics were deleted
        result.interrupted = True
        result.notes.append("interrupted")
    result.replay, result.replay_limit = test.replay, test.replay_limit
    if runner is not None and runner.threads and result.problem and not result.runs:
        result.notes.append(
            f"threads that begin when the test is imported ({runner.threads}) are not there in its runs, which are "
            "forked: begin threads, and clients, in fixtures"
        )
    if runner is not None and runner.left:
        result.notes.append(f"topics of the runs stay on the cluster: {runner.left}")
    return result


def write_reports(
    results: Sequence[Exploration], options: ExploreOptions, baseline: Baseline
) -> tuple[list[str], bool]:
    """Write the requested reports and the baseline. Return a line for each file, and True if all were written."""
    texts = {path: (json_report if path.suffix == ".json" else html_report)(results) for path in options.reports}
    if options.baseline is not None and options.update:
        texts[options.baseline] = baseline.updated(results).text()
    lines, is_written = [], True
    for path, text in texts.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, text.encode("utf-8", "backslashreplace"))
            lines.append(f"written: {path}")
        except OSError as error:
            is_written = False
            lines.append(f"{path} cannot be written: {error.strerror or error}")
    return lines, is_written


def packed_exploration(result: Exploration) -> str:
    """Return an exploration as text, for the main process of pytest-xdist."""
    runs = [replace(one, run=replace(one.run, places=())) for one in result.runs]
    slim = replace(result, learned=replace(result.learned, ranks={}), learning=[], runs=runs)
    return dumps(slim).decode()


def replay_finding(test: ExploredTest, plan: FaultPlan, options: ExploreOptions, tell: Callable[[str], object]) -> int:
    """Run a test under a plan, `options.runs` times or once. Return 1 if a run failed; otherwise 2 if a run was broken,
    interrupted or not exercised; otherwise 0. Raises InternalError."""
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
    tell(f"fails in {failed} of {plural(outcomes.total(), 'run')}")
    return 1 if failed else 2 if interrupted or outcomes["broken"] or outcomes["not exercised"] else 0


def ending(one: JudgedRun) -> str:
    word = one.outcome.upper() if one.outcome in LOUD else one.outcome
    if one.outcome == "not exercised":
        return f"{word}: {'; '.join(f'matched {each.matched}, applied {each.applied}' for each in one.run.counters)}"
    if one.outcome == "broken":
        return f"{word}: {in_line(one.run.problem)}"
    return word if one.what == one.outcome else f"{word}: {in_line(one.what)}"
