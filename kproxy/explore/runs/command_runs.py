"""Runs of commands: each child has a proxy and starts the user's commands in front of it.

A run is `--before`, then the command, then `--check`; their addresses are in the environment. The run fails where one
of them ends with another exit code than 0. Where there is a check, that is the judge: a command that ends otherwise
before it has said itself that it cannot go on, as an exception does in a test.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import IO

from kproxy.errors import KproxyError
from kproxy.explore.model import RaisedError, RunEnd, dumps, loads
from kproxy.rules.document.source import Source
from kproxy.system.processes import die_with_parent
from kproxy.testing.cluster import readable_mock
from kproxy.testing.embedded import Embedded, NoBroker
from kproxy.testing.inject import Kproxy
from kproxy.testing.process import process_tree

from .child import ChildPipes, RunWatchdog, tell
from .crash import kill_at_hold, signal_started
from .fork_runner import python_command
from .fork_server import serve
from .messages import ChildAnswer, RunJob, code_text
from .world import RunWorld, broken, delete_topics_of_runs, warm_up

TAIL = 4096
"""Bytes of what a command writes to standard error of which the last line is told."""
SOON = 0.5
"""Seconds in which a process that has ended has been heard to its end."""
TO_SPEAK = 1.0
"""Seconds that a command which hangs has to print its stacks, as Java and Go do at SIGQUIT."""


@dataclass(frozen=True, slots=True)
class CommandTest:
    """Test that consists of commands: those of a shell before and after, and the words of the one that is explored.

    `upstream`: the cluster, if not a mock of each run's own; `rules`: files of rules that hold in all runs.
    """

    command: tuple[str, ...]
    before: str = ""
    check: str = ""
    upstream: str = ""
    rules: tuple[str, ...] = ()
    drip: bool = False
    seed: int = 0


class CommandEnd(Exception):
    """End of a run before its last command, since one of them ended otherwise than by 0."""

    def __init__(self, ended: RunEnd, raised: RaisedError | None = None, problem: str = "") -> None:
        super().__init__(problem)
        self.ended, self.raised, self.problem = ended, raised, problem


class CommandRun:
    """Run of the commands of one test in this process."""

    def __init__(self, test: CommandTest, job: RunJob) -> None:
        self.test, self.job = test, job
        self.began = monotonic()
        self.world: RunWorld | None = None
        self.process: subprocess.Popen[bytes] | None = None
        self.kills = 0  # times that a fault of the class crash has killed the command
        self.others: list[int] = []  # processes that --before has left
        self.may_die = False

    def play(self) -> ChildAnswer:
        """Run the commands in front of a proxy of their own, and return what is told of it. The proxy and its mock end
        with the process."""
        try:
            upstream = self.test.upstream or readable_mock().bootstrap
            engine = Embedded(upstream, self.test.seed, mock=not self.test.upstream)
            engine.start()
        except KproxyError as error:
            return broken(self.job.plan, str(error), isinstance(error, NoBroker))
        world = RunWorld(Kproxy(engine), self.job, bool(self.test.upstream))
        try:
            world.begin([Source.open(Path(file)) for file in self.test.rules], self.test.drip)
        except KproxyError as error:
            return broken(self.job.plan, f"the rules cannot be loaded: {error}")
        self.world = world
        end = CommandEnd("passed")
        try:
            self.run_commands()
        except CommandEnd as early:
            end = early
        return world.answer(end.ended, monotonic() - self.began, end.raised, end.problem)

    def answer(self, ended: RunEnd) -> ChildAnswer:
        """Return what is told of a run that is cut short."""
        if self.world is None:
            return broken(self.job.plan, "it hung before it had a proxy")
        return self.world.answer(ended, monotonic() - self.began)

    def ask_for_stacks(self) -> None:
        """Have the command print its stacks, if it can, and end it."""
        if self.process is not None and self.process.poll() is None:
            signal_started(signal.SIGQUIT, self.others)
            sleep(TO_SPEAK)
            signal_started(signal.SIGKILL)

    # ---- commands

    def run_commands(self) -> None:
        """Run all commands, one after the other. Raises CommandEnd for one that fails."""
        test = self.test
        if test.before:
            code, said = self.run_one(["/bin/sh", "-c", test.before])
            if code:
                raise CommandEnd("broken", problem=f"--before has ended with {code_text(code)}{said and f': {said}'}")
        self.began, self.others = monotonic(), process_tree(os.getpid())
        code, said = self.run_crashing(test.command)
        if code:
            end: RunEnd = "died" if code < 0 else "raised" if test.check else "failed"
            problem = f"the command was {code_text(code)}" if code < 0 else ""
            raise CommandEnd(end, RaisedError(code_text(code), said, "the command"), problem)
        if test.check:
            code, said = self.run_one(["/bin/sh", "-c", test.check])
            if code:
                raise CommandEnd("failed", RaisedError(code_text(code), said, "--check"))

    def run_crashing(self, words: Sequence[str]) -> tuple[int, str]:
        """Run a command, and start it again whenever a fault of the class crash has killed it."""
        assert self.world is not None
        crashes = [number for number, step in enumerate(self.job.plan.steps) if step.fault.kind_of == "crash"]
        for number in crashes:
            threading.Thread(target=self.crash, args=(number,), daemon=True).start()
        self.may_die, code, said = True, -1, ""
        while code < 0:
            kills = self.kills
            code, said = self.run_one(words)
            if self.kills == kills:
                break
        self.may_die = False
        return code, said

    def crash(self, number: int) -> None:
        """Kill the command while the rule of this step of the plan holds a request."""
        assert self.world is not None
        rule = self.world.kproxy.rule(self.world.names[number])
        with suppress(AssertionError):  # it holds none in all of the run
            rule.wait(timeout=self.job.limit)
            process = self.process
            if self.may_die and process is not None and process.poll() is None:
                self.kills += 1
                self.world.killed.add(number)
                kill_at_hold(rule, self.others, self.job.plan.steps[number].fault.goes_on)

    def run_one(self, words: Sequence[str]) -> tuple[int, str]:
        """Run one command to its end, and return its exit code and the last line that it wrote to standard error.
        Raises CommandEnd if it cannot be started."""
        assert self.world is not None
        kproxy = self.world.kproxy
        try:
            process = self.process = subprocess.Popen(
                list(words), stdin=subprocess.DEVNULL, stderr=subprocess.PIPE,
                env={**os.environ, **environment(kproxy, self.job)},
                preexec_fn=die_with_parent,  # noqa: PLW1509  # one system call, no locks
            )  # fmt: skip
        except OSError as error:
            raise CommandEnd("broken", problem=f"{words[0]} cannot be started: {error}") from None
        assert process.stderr is not None
        tail = StreamTail(process.stderr)
        code = process.wait()
        return code, tail.last_line()


class StreamTail:
    """Stream of a command that is passed on to standard error, by a thread, and whose last bytes are kept."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.stream, self.kept = stream, bytearray()
        self._thread = threading.Thread(target=self._pass_on, name="standard error", daemon=True)
        self._thread.start()

    def _pass_on(self) -> None:
        while data := os.read(self.stream.fileno(), TAIL):
            os.write(2, data)
            self.kept += data
            del self.kept[:-TAIL]

    def last_line(self) -> str:
        """Return the last line with anything in it, once all has come, or soon: what the command has started may write
        on."""
        self._thread.join(SOON)
        lines = bytes(self.kept).decode(errors="replace").splitlines()
        return next((line.strip() for line in reversed(lines) if line.strip()), "")


def environment(kproxy: Kproxy, job: RunJob) -> Mapping[str, str]:
    return {
        "KPROXY_BOOTSTRAP": kproxy.bootstrap_servers,
        "KPROXY_DIRECT": kproxy.own_bootstrap_servers,
        "KPROXY_RUN": str(job.number),
    }


# ---- the process that forks


def server_command(test: CommandTest) -> list[str]:
    """Return the command of a process that forks for each run of this test."""
    code = "from kproxy.explore.runs.command_runs import main; main()"
    return python_command(code, [dumps(test).decode()])


def main() -> None:
    """Fork for each run of the test in `sys.argv`, until the explorer has no more."""
    test = loads(sys.argv[1], CommandTest)

    def work(job: RunJob, pipes: ChildPipes) -> None:
        if job.task == "delete topics":
            tell(pipes, delete_topics_of_runs(job))
            return
        run = CommandRun(test, job)
        with RunWatchdog(job, pipes, run.answer, run.ask_for_stacks) as watchdog:
            watchdog.tell(run.play())

    warm_up()
    serve(int(sys.argv[2]), work)
