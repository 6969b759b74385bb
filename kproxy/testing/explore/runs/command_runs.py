"""Runs of commands: `--before`, the command, and `--check`, with a proxy. A run fails if one of them ends with another
exit code than 0. With a check, another exit code of the command counts like an exception of a test."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import IO

from kproxy.base.errors import KproxyError
from kproxy.base.system import die_with_parent
from kproxy.rules.values.source import Source
from kproxy.testing.cluster import readable_mock
from kproxy.testing.embedded import Embedded, NoBroker
from kproxy.testing.explore.model import RaisedError, RunEnd, dumps, loads
from kproxy.testing.inject import Kproxy
from kproxy.testing.injected import Injected
from kproxy.testing.process import process_tree

from .child import ChildAnswer, ChildPipes, RunJob, RunWatchdog, code_text, tell
from .fork_runner import python_command
from .fork_server import serve
from .sandbox import RunWorld, broken, delete_topics_of_runs, warm_up

FORWARDED_IN = 5.0  # seconds until a resumed request has to be on its way to the broker


def kill_at_hold(rule: Injected, others: Collection[int], goes_on: bool) -> None:
    """Kill the processes that this one has started, except `others`, while the rule holds their request. `goes_on`: the
    broker receives it. The processes are stopped first, so none of them reads the response or closes its
    connections."""
    pids = signal_started(signal.SIGSTOP, others)
    if goes_on:
        rule.resume()
        with suppress(AssertionError):
            rule.wait(timeout=FORWARDED_IN, count="applied")
    else:
        close_held(rule)
    for one in pids:
        send_signal(one, signal.SIGKILL)


def close_held(rule: Injected) -> None:
    """Close the connections of the requests that a rule holds; these requests are lost."""
    server = rule.engine.proxy.server

    def close() -> None:
        held = rule.engine.proxy.desk.held.values()
        sessions = [one.session for one in held if one.running is rule.running]
        for connection in list(server.connections):
            if any(connection.session is session for session in sessions):
                connection.end("client_died", "its client was killed", reset=True)

    rule.engine.call(close)


def signal_started(number: int, others: Collection[int] = ()) -> list[int]:
    """Send a signal to all descendants of this process except `others`, also to new ones and to daemons
    (`adopt_orphans`). Return their ids."""
    own = {os.getpid(), *others}
    met: dict[int, None] = {}
    while new := [one for one in process_tree(os.getpid()) if one not in met and one not in own]:
        for one in new:
            send_signal(one, number)
            met[one] = None
    return list(met)


def send_signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


TAIL = 4096  # bytes of standard error that are kept for its last line
SOON = 0.5  # seconds to read the rest of a stream after its process ended
TO_SPEAK = 1.0  # seconds for Java and Go to print stacks after SIGQUIT


@dataclass(frozen=True, slots=True)
class CommandTest:
    command: tuple[str, ...]  # words
    before: str = ""  # of a shell
    check: str = ""  # of a shell
    upstream: str = ""  # empty: a mock for each run
    rules: tuple[str, ...] = ()  # files in force in all runs
    one_batch_per_fetch: bool = False
    seed: int = 0


class CommandEnd(Exception):
    """End of a run before its last command."""

    def __init__(self, ended: RunEnd, raised: RaisedError | None = None, problem: str = "") -> None:
        super().__init__(problem)
        self.ended, self.raised, self.problem = ended, raised, problem


class CommandRun:
    def __init__(self, test: CommandTest, job: RunJob) -> None:
        self.test, self.job = test, job
        self.began = monotonic()
        self.world: RunWorld | None = None
        self.process: subprocess.Popen[bytes] | None = None
        self.kills = 0  # times that a fault of the class crash has killed the command
        self.others: list[int] = []  # processes that --before has left
        self.may_die = False

    def play(self) -> ChildAnswer:
        """Run the commands with a proxy of their own. The proxy and its mock end with the process."""
        try:
            upstream = self.test.upstream or readable_mock().bootstrap
            engine = Embedded(upstream, self.test.seed, mock=not self.test.upstream)
            engine.start()
        except KproxyError as error:
            return broken(self.job.plan, str(error), isinstance(error, NoBroker))
        world = RunWorld(Kproxy(engine), self.job, bool(self.test.upstream))
        try:
            world.begin([Source.open(Path(file)) for file in self.test.rules], self.test.one_batch_per_fetch)
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
        if self.world is None:
            return broken(self.job.plan, "it hung before it had a proxy")
        return self.world.answer(ended, monotonic() - self.began)

    def ask_for_stacks(self) -> None:
        if self.process is not None and self.process.poll() is None:
            signal_started(signal.SIGQUIT, self.others)
            sleep(TO_SPEAK)
            signal_started(signal.SIGKILL)

    def run_commands(self) -> None:
        """Run all commands in order. Raises CommandEnd if one fails."""
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
        """Run a command, and start it again after each crash fault."""
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
        """Kill the command while the rule of this step holds a request."""
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
        """Run one command, and return its exit code and the last line of standard error. Raises CommandEnd."""
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
    """Thread that copies a command's stream to standard error and keeps its last bytes."""

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
        """Return the last line with text. The command's own children can write later, so this waits only SOON."""
        self._thread.join(SOON)
        lines = bytes(self.kept).decode(errors="replace").splitlines()
        return next((line.strip() for line in reversed(lines) if line.strip()), "")


def environment(kproxy: Kproxy, job: RunJob) -> Mapping[str, str]:
    return {
        "KPROXY_BOOTSTRAP": kproxy.bootstrap_servers,
        "KPROXY_DIRECT": kproxy.own_bootstrap_servers,
        "KPROXY_RUN": str(job.number),
    }


def server_command(test: CommandTest) -> list[str]:
    code = "from kproxy.testing.explore.runs.command_runs import main; main()"
    return python_command(code, [dumps(test).decode()])


def main() -> None:
    test = loads(sys.argv[1], CommandTest)

    def work(job: RunJob, pipes: ChildPipes) -> None:
        if job.task == "delete topics":
            tell(pipes, delete_topics_of_runs(job))
            return
        run = CommandRun(test, job)
        with RunWatchdog(job, pipes, run.answer, run.ask_for_stacks) as watchdog:
            watchdog.report(run.play())

    warm_up()
    serve(int(sys.argv[2]), work)
