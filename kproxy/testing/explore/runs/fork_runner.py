"""Runner of plans whose runs are children of a process that forks: the explorer's side of it."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from math import inf
from pathlib import Path
from secrets import token_hex
from time import monotonic

from kproxy.base.errors import InputError, InternalError
from kproxy.base.system import HAS_FORKS
from kproxy.testing.explore.model import ExploredRun, FaultPlan, RaisedError, RunEnd, loads

from .child import ChildAnswer, EndedChild, MessageBuffer, RunJob, ServerOrder, ServerReport, code_text, packed
from .fork_server import GRACE

START_PATIENCE = 120.0  # seconds to import the test's module
FIRST_LIMIT = 120.0  # seconds of a run until the limit is learned
DELETE_EACH = 500  # runs
DELETE_LIMIT = 60.0
LAST_WORDS = 4000  # characters of the output in errors
CHUNK = 1 << 18
JOBS_PER_CORE = 4
TAKE_PATH = "import json, sys; sys.path[:] = json.loads(sys.argv.pop(1)); "


class ClusterGone(InternalError):
    """No broker of the cluster responds."""


class NoReportError(InternalError):
    """The process that forks did not report in time."""


class ForkRunner:
    """Runner of plans by a process that forks. `command` starts it, with the number of a socket as last argument. On a
    shared cluster, names of a run begin with `token` and its number; their topics are deleted after many runs and at
    the end."""

    def __init__(self, command: Sequence[str], jobs: int, cwd: Path | None = None, until: float = inf) -> None:
        if not HAS_FORKS:
            raise InternalError("an exploration forks a process for each run and watches over it, which needs Linux")
        self.command, self.jobs, self.limit, self.cwd = list(command), jobs, FIRST_LIMIT, cwd
        self.until = until
        self.token = f"x{token_hex(2)}-"
        self.shared = ""
        self.left = ""  # why topics of runs stay on the cluster
        self.threads = 0  # of the process that forks, which its children lack
        self._number = self._deleted = 0
        self._under_way: dict[int, FaultPlan] = {}
        self._coming, self._reports = MessageBuffer(), deque[ServerReport]()
        self._printed = tempfile.TemporaryFile()  # noqa: SIM115  # open as long as the process
        self._stream, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [*self.command, str(theirs.fileno())], pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL,
                stdout=self._printed, stderr=self._printed, cwd=cwd, start_new_session=True,
            )  # fmt: skip  # Ctrl-C is for the explorer, which then ends it

    def __enter__(self) -> ForkRunner:
        began = monotonic()
        try:
            first = self._next_report(min(START_PATIENCE, max(self.until - began, 0.0)))
            if first.problem:
                raise InternalError(first.problem)
            self.threads = first.threads
        except BaseException as error:
            with suppress(ProcessLookupError):  # it has no runs yet, and reads no orders while it imports the test
                os.killpg(self._process.pid, signal.SIGKILL)
            self.close()
            if isinstance(error, NoReportError) and monotonic() >= self.until:
                passed = f"{monotonic() - began:.0f} s"
                raise InternalError(f"time was up before the test's module was imported, after {passed}") from None
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None or issubclass(kind, KeyboardInterrupt | GeneratorExit):
            with suppress(InternalError, OSError):
                self._delete_topics()
        self.close()

    def close(self) -> None:
        """End the process that forks, and all runs. The process needs up to GRACE seconds to kill the rest of its
        runs."""
        self._stream.close()
        try:
            self._process.wait(3 * GRACE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._printed.close()

    def run(self, plans: Iterable[FaultPlan]) -> Generator[ExploredRun, None, None]:
        """Yield runs as they end. At `until`, end the runs under way. Raises ClusterGone if no broker responds, and
        InternalError if the process that forks has ended."""
        coming: Iterator[FaultPlan] | None = iter(plans)
        try:
            while (coming is not None or self._under_way) and monotonic() < self.until:
                while coming is not None and len(self._under_way) < self.jobs:
                    plan = next(coming, None)
                    if plan is None:
                        coming = None
                    else:
                        self._begin(plan)
                if self._under_way:
                    run = self._next_run()
                    if run is None:
                        return
                    yield run
        finally:
            if self._under_way:
                self._order(ServerOrder(end=tuple(self._under_way)))
                self._under_way.clear()

    def _begin(self, plan: FaultPlan) -> None:
        if self.shared and self._number >= self._deleted + DELETE_EACH:
            self._delete_topics()
        self._number += 1
        self._under_way[self._number] = plan
        prefix = f"{self.token}{self._number}."
        self._order(ServerOrder(RunJob(self._number, self.limit, plan, prefix)))

    def _next_run(self) -> ExploredRun | None:
        while True:
            try:
                ended = self._next_report(min(self._patience, max(self.until - monotonic(), 0.0))).ended
            except NoReportError:
                if monotonic() >= self.until:
                    return None
                raise
            plan = None if ended is None else self._under_way.pop(ended.number, None)
            if ended is not None and plan is not None:  # else it is of an iterator that was closed
                return self._run_of(plan, ended)

    def _run_of(self, plan: FaultPlan, ended: EndedChild) -> ExploredRun:
        try:
            answer = loads(ended.answer, ChildAnswer) if ended.answer else None
        except InputError as error:  # it was torn: the child died while it spoke
            answer = None
            ended = replace(ended, problem=str(error))
        if answer is None:
            return run_without_answer(plan, ended)
        if answer.unreachable:
            raise ClusterGone(answer.run.problem)
        self.shared = answer.shared or self.shared
        output = answer.run.output or ended.output
        return replace(answer.run, plan=plan, stacks=ended.stacks or answer.run.stacks, output=output)

    def _delete_topics(self) -> None:
        """Delete the topics of ended runs, and note the reason if some stay. Raises InternalError."""
        if not self.shared:
            return
        self._number += 1
        number, below = self._number, min(self._under_way, default=self._number)
        job = RunJob(number, DELETE_LIMIT, prefix=self.token, task="delete topics", below=below, shared=self.shared)
        self._order(ServerOrder(job))
        kept = list[ServerReport]()
        while True:
            report = self._next_report(DELETE_LIMIT + 2 * GRACE)
            if report.ended is not None and report.ended.number == number:
                break
            kept.append(report)
        self._reports.extendleft(reversed(kept))
        self._deleted = number
        self.left = self._run_of(FaultPlan(), report.ended).problem

    @property
    def _patience(self) -> float:
        return max(self.limit, FIRST_LIMIT) + 10 * GRACE

    def _order(self, order: ServerOrder) -> None:
        try:
            self._stream.sendall(packed(order))
        except OSError:
            raise self._gone() from None

    def _next_report(self, patience: float) -> ServerReport:
        """Return the next report. Raises NoReportError after `patience` seconds, InternalError if the process ended."""
        until = monotonic() + patience
        while not self._reports:
            left = until - monotonic()
            if left <= 0 or not select.select([self._stream], [], [], left)[0]:
                raise NoReportError(f"expected a report of the process that forks the runs, got none in {patience:g} s")
            try:
                data = self._stream.recv(CHUNK)
            except OSError:
                data = b""
            if not data:
                raise self._gone()
            self._reports.extend(loads(message, ServerReport) for message in self._coming.add(data))
        return self._reports.popleft()

    def _gone(self) -> InternalError:
        """Return the error for a process that has ended, with its last words."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(GRACE)
        size = self._printed.seek(0, os.SEEK_END)
        self._printed.seek(max(0, size - LAST_WORDS))
        words = self._printed.read().decode(errors="replace").strip()
        code = self._process.returncode
        return InternalError(f"the process that forks the runs has ended with exit code {code}:\n{words}")


def run_without_answer(plan: FaultPlan, ended: EndedChild) -> ExploredRun:
    end: RunEnd = "died"
    raised = None
    if ended.problem and not ended.answer:
        end, problem = "broken", ended.problem
    elif ended.flooded:
        end, problem = "broken", "killed, since its answer was too long"
    elif ended.late:
        end, problem = "hang", "killed, since it did not end itself at its time limit"
    else:
        problem, raised = "its process was gone", RaisedError(code_text(ended.code))
    if ended.answer:
        problem += f", in the middle of its answer ({ended.problem})"
    run = ExploredRun(plan, end, ended.seconds, raised=raised, stacks=ended.stacks)
    return replace(run, output=ended.output, problem=problem)


def python_command(code: str, arguments: Sequence[str] = ()) -> list[str]:
    """Return a command that runs this code with the import path of this process and the arguments in `sys.argv[1:]`."""
    return [sys.executable, "-P", "-c", TAKE_PATH + code, json.dumps(sys.path), *arguments]


def default_jobs(workers: int = 1) -> int:
    cores = len(os.sched_getaffinity(0)) if HAS_FORKS else 1
    return max(1, JOBS_PER_CORE * cores // max(1, workers))
