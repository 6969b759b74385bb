"""`pytest --kproxy-explore` in the user's pytest: tests that use the fixture `kproxy` are explored instead of run
once."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import time
from typing import Any, Literal

import pytest
from _pytest.runner import call_and_report
from _pytest.skipping import evaluate_xfail_marks

from kproxy.base.errors import InputError
from kproxy.base.terminal import in_line, printable
from kproxy.testing.explore.runs.fork_runner import python_command
from kproxy.testing.explore.runs.pytest_runs import UPSTREAM
from kproxy.testing.pytest_plugin import MOCKS, seed_of_test

from .database import Baseline
from .fork_session import ExploredTest, explore_test, packed_exploration, write_reports
from .model import loads
from .options import OPTIONS, ExploreOptions, read_options, read_patterns
from .report import coverage_properties, report_lines
from .result import Exploration, KnownFailures

FIXTURE, MARKER = "kproxy", "kproxy_explore"
OF_MARKER = frozenset(("runs", "faults", "only", "ignore"))
MOCK_FIXTURES = frozenset(("kproxy_cluster", "mock_cluster"))
FORK = "import pytest; sys.exit(pytest.main([*json.loads(sys.argv[1]), '--kproxy-explore-serve=' + sys.argv[2]]))"
INTERACTIVE = frozenset(("--pdb", "--trace"))
# files that pytest and a plugin truncate when they start, by config name
WRITTEN = {"log_file": "--log-file", "report_log": "--report-log"}
SAVED = "explored"  # folder for rule files, in the folder of the test
Outcome = Literal["passed", "failed", "skipped"]


class ExploredSession:
    """Plugin that explores tests, and collects the explorations of workers."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        given = {option.key: config.getoption(f"--kproxy-explore-{option.name}") for option in OPTIONS}
        self.given: Mapping[str, Any] = given | {"seed": config.getoption("--kproxy-seed")}
        try:
            self.options = options_of_tests(self.given)
            self.baseline = Baseline.read(self.options.baseline, self.options.update)
        except InputError as error:
            raise pytest.UsageError(f"--kproxy-explore: {error}") from None
        self.explorations: list[Exploration] = []
        self.notes: list[str] = []

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Check markers before the first run, and remove time limits of other plugins: each run has its own limit."""
        has_timeout = self.config.pluginmanager.hasplugin("timeout")
        for item in filter(is_explored, items):
            if has_timeout:
                item.add_marker(pytest.mark.timeout(0), append=False)
            if hasattr(self.config, "workerinput"):  # an error in a worker's collection has no text: the test fails
                continue
            try:
                options_of_tests({**self.given, **marked(item)})
            except InputError as error:
                raise pytest.UsageError(f"{item.nodeid}: {error}") from None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        if not is_explored(item):
            return None
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for report in self.reports(item, nextitem):
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        if report.when == "call" and report.passed and hasattr(report, "kproxy_explored"):
            return "passed", ".", "EXPLORED"
        return None

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print explorations without findings. The others are in the section of failures."""
        reports = [one for one in terminalreporter.stats.get("passed", ()) if hasattr(one, "kproxy_explored")]
        if reports:
            terminalreporter.section("explored")
        for report in reports:
            terminalreporter.write_line(report.kproxy_explored)
        if not self.explorations and not hasattr(self.config, "workerinput"):
            terminalreporter.write_line(f"kproxy: nothing was explored: no test uses the fixture {FIXTURE}")
        for note in self.notes:
            terminalreporter.write_line(f"kproxy: {note}")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        told = getattr(report, "kproxy_exploration", None)
        if told is not None:
            self.explorations.append(loads(told, Exploration))

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the reports and the baseline. Workers of pytest-xdist leave this to the main process."""
        if hasattr(self.config, "workerinput"):
            return
        self.notes, is_written = write_reports(self.explorations, self.options, self.baseline)
        if not is_written and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def reports(self, item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[pytest.TestReport]:
        """Yield pytest's reports of an explored test. Only a cluster that outlives a test is set up here; each run sets
        up its other fixtures."""
        test: Any = item
        names, test.fixturenames = test.fixturenames, [UPSTREAM] if has_lasting_upstream(item) else []
        try:
            setup = call_and_report(item, "setup", log=False)
            yield setup
            if setup.passed:
                yield self.explored(item)
            yield call_and_report(item, "teardown", log=False, nextitem=nextitem)
        finally:
            test.fixturenames = names

    def explored(self, item: pytest.Item) -> pytest.TestReport:
        began = time()
        try:
            options = options_of_tests({**self.given, **marked(item)})
            upstream = getattr(item, "funcargs", {}).get(UPSTREAM, "")
            folder, rules = self.config.invocation_params.dir, tuple(self.config.getoption("--kproxy-rules"))
            with temporary_folder(self.config) as temporary:
                test = ExploredTest(
                    item.nodeid, python_command(FORK, [arguments(self.config, item, upstream, temporary)]), folder,
                    Path(os.path.relpath(item.path.parent / SAVED)), seed_of_test(self.config, item),
                    on_mock(item, upstream), self.known(item, options),
                    int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")), rules,
                    replay_line(item, rules, self.config.getoption("--kproxy-seed")),
                    "\n@pytest.mark.kproxy_timeout({seconds})",
                )  # fmt: skip
                result = explore_test(test, options, self.report)
        except InputError as error:
            options, result = ExploreOptions(), Exploration(item.nodeid, problem=str(error))
        text = "\n".join(report_lines(result))
        if result.interrupted:
            item.session.shouldstop = "interrupted while a test was explored"
        outcome: Outcome = "skipped" if result.skipped else "failed" if result.exit_code() else "passed"
        told: Any = text if outcome == "failed" else None
        item.user_properties += coverage_properties(result)  # JUnit XML takes them from the report of the teardown
        if outcome == "skipped":
            told = (str(item.path), (item.location[1] or 0) + 1, f"Skipped: {in_line(result.skipped)}")
        return pytest.TestReport(
            item.nodeid, item.location, dict.fromkeys(item.keywords, 1), outcome, told, "call",
            duration=time() - began, start=began, stop=time(), kproxy_explored=text,
            kproxy_exploration=packed_exploration(result),
        )  # fmt: skip

    def known(self, item: pytest.Item, options: ExploreOptions) -> KnownFailures:
        marker = item.get_closest_marker(MARKER)
        ignored = read_patterns(marker.kwargs.get("ignore", ())) if marker is not None else ()
        known = frozenset() if options.update else self.baseline.known(item.nodeid)
        return KnownFailures(known, ignored)

    def report(self, text: str) -> None:
        reporter: Any = self.config.pluginmanager.getplugin("terminalreporter")
        if reporter is not None and self.config.get_verbosity() > 0:
            reporter.ensure_newline()
            reporter.write_line(f"  {printable(text)}")


def options_of_tests(given: Mapping[str, Any]) -> ExploreOptions:
    """Return the options for tests, which have no crash faults. Raises InputError."""
    options = read_options(given)
    if "crash" in options.classes:
        raise InputError("faults: expected transient, fatal, lies, got crash, which needs kproxy explore -- CMD")
    return options


def is_explored(item: pytest.Item) -> bool:
    return FIXTURE in getattr(item, "fixturenames", ()) and not may_fail(item)


def may_fail(item: pytest.Item) -> bool:
    """Return True for xfail tests, which run once as usual."""
    if item.config.getoption("runxfail", False) or not item.config.pluginmanager.hasplugin("skipping"):
        return False
    try:
        return evaluate_xfail_marks(item) is not None
    except (Exception, pytest.fail.Exception):  # noqa: BLE001  # a mark with a mistake, which pytest tells as ever
        return True


@contextmanager
def temporary_folder(config: pytest.Config) -> Iterator[str]:
    """Yield a folder for the temporary folders of all runs of a test, or an empty text without pytest's tmpdir
    plugin."""
    factory = getattr(config, "_tmp_path_factory", None)
    if factory is None:
        yield ""
        return
    folder = tempfile.mkdtemp(prefix="explored-", dir=factory.getbasetemp())
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def replay_line(item: pytest.Item, rules: Iterable[str], seed: int | None = None) -> str:
    """Return the marker that activates the rules of a finding, with `{name}` for its file and `{limit}` for the marker
    of a hang."""
    root, folder = item.config.rootpath, item.path.parent / SAVED
    folder = folder.relative_to(root) if root in folder.parents else Path(SAVED)
    marker = f"@pytest.mark.kproxy_rules({json.dumps(f'{folder.as_posix()}/{{name}}', ensure_ascii=False)})"
    options = [f"--kproxy-rules={shlex.quote(file)}" for file in rules]
    options += [] if seed is None else [f"--kproxy-seed={seed}"]
    return " # with ".join((marker, *options)) + "{limit}"


def marked(item: pytest.Item) -> dict[str, Any]:
    """Return the options of a test's marker. Raises InputError."""
    marker = item.get_closest_marker(MARKER)
    if marker is None:
        return {}
    unknown = [*map(repr, marker.args), *sorted(marker.kwargs.keys() - OF_MARKER)]
    if unknown:
        names = ", ".join(sorted(OF_MARKER))
        raise InputError(f"@pytest.mark.{MARKER}: expected the keywords {names}, got {', '.join(unknown)}")
    read_patterns(marker.kwargs.get("ignore", ()))
    return {name: value for name, value in marker.kwargs.items() if name != "ignore"}


def definitions(item: pytest.Item) -> tuple[pytest.FixtureDef[Any], ...]:
    """Return the definitions of the cluster fixture, kproxy's own first."""
    info: Any = item._fixtureinfo  # type: ignore[attr-defined]
    return tuple(info.name2fixturedefs.get(UPSTREAM, ()))


def has_lasting_upstream(item: pytest.Item) -> bool:
    """Return True if the user's cluster fixture outlives a test."""
    found = definitions(item)
    return len(found) > 1 and found[-1].scope != "function"


def on_mock(item: pytest.Item, upstream: str) -> bool:
    config = item.config
    if upstream:
        return upstream in config.stash.get(MOCKS, ())
    if len(definitions(item)) > 1:
        info: Any = item._fixtureinfo  # type: ignore[attr-defined]
        return not MOCK_FIXTURES.isdisjoint(info.names_closure)
    return not (config.getoption("--kproxy-upstream") or config.getini("kproxy_upstream"))


def arguments(config: pytest.Config, item: pytest.Item, upstream: str, temporary: str) -> str:
    """Return the arguments of the pytest that forks, as JSON: those of this one without its tests and output files."""
    worker = getattr(config, "workerinput", None)
    words = [str(word) for word in config.invocation_params.args]
    if worker and not any(word.startswith("--kproxy-explore") for word in words):
        words = worker["mainargv"][1:]  # of older xdists, whose workers get no options as words
    for named in config.option.file_or_dir:
        if str(named) in words:
            words.remove(str(named))
    words = [word for word in words if word not in INTERACTIVE]
    if worker or config.pluginmanager.hasplugin("xdist"):
        words.append("-n0")
    if config.inipath is not None:
        words += ["-c", str(config.inipath)]
    words += [f"--rootdir={config.rootpath}", "--capture=no", f"--kproxy-explore-item={item.nodeid}"]
    if upstream:
        words.append(f"--kproxy-explore-upstream={upstream}")
    if temporary:
        words.append(f"--basetemp={temporary}")
    known = vars(config.option)
    words += [f"{option}={os.devnull}" for name, option in WRITTEN.items() if name in known]
    _, _, name = item.nodeid.partition("::")
    return json.dumps([*words, f"{item.path}::{name}"])
