"""Runs of a test of pytest: a pytest of its own collects the test once, and forks for each run of it.

Strategy. The process that forks is started as the user has started pytest, with the same arguments but for the one test
that is explored. So it has the same plugins, fixtures, paths and hooks, and its children run the test by pytest's own
protocol. In a child a plugin is added, which gives the fixture `kproxy` the plan's rules and takes down how it ends.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from kproxy.explore.model import RaisedError, RunEnd
from kproxy.testing.embedded import NoBroker
from kproxy.testing.inject import Kproxy
from kproxy.testing.pytest_plugin import MOCKS

from .child import ChildPipes, RunWatchdog, tell
from .fork_server import serve
from .messages import ChildAnswer, RunJob
from .world import RunWorld, broken, delete_topics_of_runs, raised_error, warm_up

UPSTREAM = "kproxy_upstream"


class ItemRun:
    """Run of one test in this process: a plugin of pytest that is there in a child only."""

    def __init__(self, item: pytest.Item, job: RunJob, drip: bool) -> None:
        self.item, self.job, self.drip = item, job, drip
        self.began = monotonic()
        self.world: RunWorld | None = None
        self.ended: RunEnd = "passed"
        self.raised: RaisedError | None = None
        self.problem, self.unreachable = "", False

    def play(self) -> None:
        """Run the test with all that pytest does before and after it."""
        self.began = monotonic()
        try:
            self.item.config.hook.pytest_runtest_protocol(item=self.item, nextitem=None)
        except BaseException as error:  # noqa: BLE001  # pytest.exit, or a KeyboardInterrupt of the test's own
            self.note(error, "")

    def answer(self, ended: RunEnd | None = None) -> ChildAnswer:
        """Return what is told of the run, which has ended so."""
        if self.world is None:
            problem = self.problem or "the test has not used the fixture kproxy, so there is nothing to explore"
            return broken(self.job.plan, problem, self.unreachable)
        return self.world.answer(ended or self.ended, monotonic() - self.began, self.raised, self.problem)

    def note(self, error: BaseException, where: str) -> None:
        """Take down the first exception of the run; whatever comes behind it follows from it."""
        if self.ended != "passed":
            return
        if isinstance(error, pytest.skip.Exception):
            self.ended, self.problem = "broken", f"the test was skipped: {error}"
        elif self.world is None:
            self.ended, self.problem = "broken", str(error)
            self.unreachable = isinstance(error.__context__, NoBroker)
        else:
            self.ended = "failed" if isinstance(error, AssertionError | pytest.fail.Exception) else "raised"
            self.raised = raised_error(error, where)

    # ---- hooks of pytest

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool:
        """Run the test without telling the terminal."""
        runtestprotocol(item, log=False, nextitem=None)
        return True

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
    ) -> Generator[None, object, object]:
        """Put the rules into force before anybody has the fixture, and look at them before it ends."""
        value = yield
        if isinstance(value, Kproxy) and self.world is None:
            world = RunWorld(value, self.job, value.upstream not in request.config.stash.get(MOCKS, ()))
            world.begin(drip=self.drip)
            fixturedef.addfinalizer(world.end)
            self.world = world
        return value

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Take down what was raised, and print it as pytest would."""
        report = yield
        if call.excinfo is not None:
            self.note(call.excinfo.value, last_line(call.excinfo, item))
            print(report.longreprtext)  # noqa: T201  # to the output of this run, which is kept
        return report


def last_line(found: pytest.ExceptionInfo[BaseException], item: pytest.Item) -> str:
    """Return the last line in the test's own file that an exception went through, as `file:line`, else the last one
    within the root folder of the tests."""
    root = item.config.rootpath
    lines = [(Path(entry.path), entry.lineno + 1) for entry in reversed(found.traceback)]
    own = [line for line in lines if line[0] == item.path]
    near = [line for line in lines if root in line[0].parents and "site-packages" not in line[0].parts]
    for path, number in (*own, *near):
        return f"{path.relative_to(root) if root in path.parents else path}:{number}"
    return ""


class RunServer:
    """Plugin of a pytest that does nothing but fork for each run of one test; `descriptor`: a socket to the
    explorer."""

    def __init__(self, config: pytest.Config, descriptor: int) -> None:
        self.config, self.descriptor = config, descriptor
        self.item: pytest.Item
        os.set_inheritable(descriptor, False)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> None:
        """Fork for the explorer, and do not return, if the test is there."""
        wanted = self.config.getoption("--kproxy-explore-item")
        found = [item for item in session.items if item.nodeid == wanted]
        if not found:
            if not session.testsfailed:  # else pytest says what was wrong with the file
                raise pytest.UsageError(f"{wanted} was not found a second time")
            return
        self.item = found[0]
        if self.config.pluginmanager.hasplugin("timeout"):
            self.item.add_marker(pytest.mark.timeout(0), append=False)  # a run has a limit of its own
        if address := self.config.getoption("--kproxy-explore-upstream"):
            take_upstream(self.item, address)
        warm_up()
        serve(self.descriptor, self.work)

    def work(self, job: RunJob, pipes: ChildPipes) -> None:
        """Do a job in a child."""
        if job.task == "delete topics":
            tell(pipes, delete_topics_of_runs(job))
            return
        run = ItemRun(self.item, job, self.config.getoption("--kproxy-explore-drip"))
        self.config.pluginmanager.register(run, "kproxy-run")
        with RunWatchdog(job, pipes, run.answer) as watchdog:
            run.play()
            watchdog.tell(run.answer())


def take_upstream(item: pytest.Item, address: str) -> None:
    """Have the fixture kproxy_upstream give this address, and start nothing: it has been started elsewhere."""
    info: Any = item._fixtureinfo  # type: ignore[attr-defined]
    definition = info.name2fixturedefs[UPSTREAM][-1]
    definition.func, definition.argnames = lambda: address, ()
    info.prune_dependency_tree()
