"""Runs of a test of pytest: another pytest collects the test once, and forks for each run.

It has the arguments of the user's pytest, except for the tests. Its children run the test by pytest's own protocol,
with a plugin that applies the plan's rules and records the end.
"""

from __future__ import annotations

import linecache
import os
import shutil
import sys
import threading
import traceback
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from _pytest import tmpdir
from _pytest.runner import runtestprotocol

from kproxy.testing.embedded import Embedded, NoBroker
from kproxy.testing.explore.model import ExploredRun, RaisedError, RunEnd
from kproxy.testing.inject import Kproxy
from kproxy.testing.pytest_plugin import MOCKS, seed_of_test

from .child import ChildAnswer, ChildPipes, RunJob, RunWatchdog, tell
from .fork_server import serve
from .sandbox import RunWorld, broken, delete_topics_of_runs, raised_error, warm_up

UPSTREAM = "kproxy_upstream"
LONGEST_LINE = 200  # characters of a test's line


class ItemRun:
    """Run of one test in this process: a pytest plugin in a child."""

    def __init__(self, item: pytest.Item, job: RunJob, one_batch_per_fetch: bool) -> None:
        self.item, self.job, self.one_batch_per_fetch = item, job, one_batch_per_fetch
        self.began = monotonic()
        self.world: RunWorld | None = None
        self.ended: RunEnd = "passed"
        self.raised: RaisedError | None = None
        self.problem, self.unreachable = "", False

    def play(self) -> None:
        self.began = monotonic()
        try:
            self.item.config.hook.pytest_runtest_protocol(item=self.item, nextitem=None)
        except BaseException as error:  # noqa: BLE001  # pytest.exit, or a KeyboardInterrupt of the test's own
            self.note(error)

    def answer(self, ended: RunEnd | None = None) -> ChildAnswer:
        if self.world is None:
            if self.ended == "skipped":
                return ChildAnswer(ExploredRun(self.job.plan, "skipped", problem=self.problem))
            problem = self.problem or "the test has not used the fixture kproxy, so there is nothing to explore"
            return broken(self.job.plan, problem, self.unreachable)
        problem = self.problem
        if ended == "hang" and (frame := sys._current_frames().get(threading.main_thread().ident or 0)):
            at = own_line(((one.f_code.co_filename, number) for one, number in traceback.walk_stack(frame)), self.item)
            problem = f"at {shown_line(*at, self.item)}: {text_of(*at)}" if at else problem
        return self.world.answer(ended or self.ended, monotonic() - self.began, self.raised, problem)

    def note(self, error: BaseException, at: tuple[Path, int] | None = None) -> None:
        """Record the first exception of the run and its line; later exceptions follow from it."""
        if self.ended != "passed":
            return
        if isinstance(error, pytest.skip.Exception | pytest.xfail.Exception):
            self.ended, self.problem = "skipped", str(error)
        elif self.world is None:
            self.ended, self.problem = "broken", str(error)
            self.unreachable = isinstance(error.__context__, NoBroker)
        else:
            self.ended = "failed" if isinstance(error, AssertionError | pytest.fail.Exception) else "raised"
            where, line = (shown_line(*at, self.item), text_of(*at)) if at else ("", "")
            self.raised = raised_error(error, where, line)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool:
        runtestprotocol(item, log=False, nextitem=None)
        return True

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
    ) -> Generator[None, object, object]:
        """Apply the rules before other fixtures use the proxy, and record the evidence before the proxy ends."""
        value = yield
        if isinstance(value, Embedded) and self.world is None:
            value.store.seed = seed_of_test(request.config, self.item)
            world = RunWorld(Kproxy(value), self.job, value.upstream not in request.config.stash.get(MOCKS, ()))
            world.begin(one_batch_per_fetch=self.one_batch_per_fetch)
            self.world = world
        if self.world is not None and isinstance(value, Kproxy | Embedded):
            fixturedef.addfinalizer(self.world.end)
            if isinstance(value, Kproxy):
                self.world.show(value)
        return value

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if call.excinfo is not None:
            lines = ((str(entry.path), entry.lineno + 1) for entry in reversed(call.excinfo.traceback))
            self.note(call.excinfo.value, own_line(lines, item))
            print(report.longreprtext)  # noqa: T201  # to the output of this run, which is kept
        return report


def own_line(lines: Iterable[tuple[str, int]], item: pytest.Item) -> tuple[Path, int] | None:
    """Return the first of these lines in the test's file, otherwise the first one in the root folder of the tests."""
    root = item.config.rootpath
    met = [(Path(file), number) for file, number in lines]
    own = [line for line in met if line[0] == item.path]
    near = [line for line in met if root in line[0].parents and "site-packages" not in line[0].parts]
    return next(iter((*own, *near)), None)


def shown_line(path: Path, number: int, item: pytest.Item) -> str:
    """Return a line as `file:line`, relative to the root folder of the tests if possible."""
    root = item.config.rootpath
    return f"{path.relative_to(root) if root in path.parents else path}:{number}"


def text_of(path: Path, number: int) -> str:
    return linecache.getline(str(path), number).strip()[:LONGEST_LINE]


class RunServer:
    """Plugin of the pytest that forks for each run of one test; `descriptor`: a socket to the explorer."""

    def __init__(self, config: pytest.Config, descriptor: int) -> None:
        self.config, self.descriptor = config, descriptor
        self.item: pytest.Item | None = None
        os.set_inheritable(descriptor, False)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Take the test before other plugins deselect tests."""
        wanted = self.config.getoption("--kproxy-explore-item")
        self.item = next((item for item in items if item.nodeid == wanted), None)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> None:
        """Fork for the explorer, and do not return, if the test was collected."""
        if self.item is None:
            if not session.testsfailed:  # else pytest says what was wrong with the file
                wanted = self.config.getoption("--kproxy-explore-item")
                raise pytest.UsageError(f"{wanted} was not found a second time")
            return
        if self.config.pluginmanager.hasplugin("timeout"):
            self.item.add_marker(pytest.mark.timeout(0), append=False)  # each run has its own limit
        self.item.add_marker(pytest.mark.kproxy_timeout(0), append=False)
        if address := self.config.getoption("--kproxy-explore-upstream"):
            take_upstream(self.item, address)
        warm_up()
        serve(self.descriptor, self.work)

    def work(self, job: RunJob, pipes: ChildPipes) -> None:
        if job.task == "delete topics":
            tell(pipes, delete_topics_of_runs(job))
            return
        assert self.item is not None
        run = ItemRun(self.item, job, self.config.getoption("--kproxy-explore-one-batch-per-fetch"))
        self.config.pluginmanager.register(run, "kproxy-run")
        with RunWatchdog(job, pipes, run.answer) as watchdog, own_temporary_folder(self.config, job.number):
            run.play()
            watchdog.report(run.answer())


@contextmanager
def own_temporary_folder(config: pytest.Config, number: int) -> Iterator[None]:
    """Use a separate temporary folder for this run, and remove it at the end."""
    if not config.pluginmanager.hasplugin("tmpdir") or not config.option.basetemp:
        yield
        return
    folder = config.option.basetemp = Path(config.option.basetemp, f"run-{number}")
    tmpdir.pytest_configure(config)
    try:
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def take_upstream(item: pytest.Item, address: str) -> None:
    """Replace the fixture kproxy_upstream by this address of a running cluster."""
    info: Any = item._fixtureinfo  # type: ignore[attr-defined]
    definition = info.name2fixturedefs[UPSTREAM][-1]
    definition.func, definition.argnames = lambda: address, ()
    info.prune_dependency_tree()
