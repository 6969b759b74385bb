"""Exploration of one test by a process that forks its runs: what pytest and the command line have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic, time

from kproxy.errors import InternalError, KproxyError

from .database import FOLDER, FindingStore, write_whole
from .explorer import Explorer, ExploreSettings
from .judge import NONE_KNOWN, KnownFailures
from .model import dumps, loads
from .options import ExploreOptions
from .order import OrderSettings
from .report.baseline import Baseline
from .report.document import json_report
from .report.page import html_report
from .result import Exploration
from .runs.fork_runner import ForkRunner, default_jobs


@dataclass(frozen=True, slots=True)
class ExploredTest:
    """Test to explore: its name, the command of the process that forks its runs, and what is known of it.

    folder: in which that command runs, and findings are kept · save: folder for rule files · seed: breaks ties ·
    on_mock: its runs have mock clusters · known: failures that are no news · workers: processes that explore at the
    same time, and share the machine · rules: names of rule files that are in force in all runs · replay: how rules are
    put into force, with `{name}` for the name of a finding's file.
    """

    name: str
    command: Sequence[str]
    folder: Path
    save: Path
    seed: int
    on_mock: bool = False
    known: KnownFailures = NONE_KNOWN
    workers: int = 1
    rules: tuple[str, ...] = ()
    replay: str = "{name}"
    replay_limit: str = ""  # text for `{limit}` in `replay`, with `{seconds}`


def explore_test(test: ExploredTest, options: ExploreOptions, tell: Callable[[str], object]) -> Exploration:
    """Explore a test, and return what came of it, up to where it could not go on."""
    settings = ExploreSettings(
        OrderSettings(options.classes, options.depth, options.only, test.on_mock, test.seed),
        options.seconds, options.runs, options.limit, options.first, options.until_covered, test.known, test.save,
        options.drip, test.rules,
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
    """Write the requested reports and the baseline. Return a line about each file, and True if all were written."""
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
    """Return an exploration as text, for the process that puts together what several have explored."""
    runs = [replace(one, run=replace(one.run, places=())) for one in result.runs]
    slim = replace(result, learned=replace(result.learned, ranks={}), learning=[], runs=runs)
    return dumps(slim).decode()


def unpacked_exploration(text: str) -> Exploration:
    return loads(text, Exploration)
