"""Children of a process that forks, which behave as the name of their plan's first fault says."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

from kproxy.testing.explore.model import ExchangePlace, ExploredRun, FaultPlan, KnownFault, PlannedFault, RunEnd, dumps
from kproxy.testing.explore.runs import child, fork_server
from kproxy.testing.explore.runs.child import ChildAnswer, ChildPipes, RunJob, RunWatchdog, tell
from kproxy.testing.explore.runs.fork_server import serve
from kproxy.testing.process import children_of


def plan_of(behaviour: str) -> FaultPlan:
    """A plan by which a child knows how to behave."""
    fault = KnownFault(behaviour, "Produce", "transient", "before", 1.0, behaviour, {"kind": "drop"}, "none")
    return FaultPlan((PlannedFault(ExchangePlace("Produce"), fault),))


def answer_of(job: RunJob, behaviour: str, ended: RunEnd = "passed") -> ChildAnswer:
    """What is told of such a run."""
    long = "x" * (10 << 20) if behaviour == "says much" else ""
    shared = "broker:9092" if behaviour == "shares" else ""
    return ChildAnswer(ExploredRun(job.plan, ended, 0.5, output=long, problem=job.prefix), shared)


def floods(job: RunJob, pipes: ChildPipes) -> None:
    while True:
        os.write(pipes.answer, b"x" * 65536)


def prints(job: RunJob, pipes: ChildPipes) -> None:
    for _ in range(200):
        os.write(1, b"y" * 65536)
    os.write(1, b"the end")


def exits(job: RunJob, pipes: ChildPipes) -> None:
    print("good bye", flush=True)
    os._exit(3)


def breaks_off(job: RunJob, pipes: ChildPipes) -> None:
    os.write(pipes.answer, dumps(answer_of(job, ""))[:40])
    os._exit(0)


def leaves_somebody(job: RunJob, pipes: ChildPipes) -> None:
    left = subprocess.Popen(["sleep", "1000"])
    tell(pipes, ChildAnswer(ExploredRun(job.plan, "passed", problem=str(left.pid))))
    os._exit(0)


def leaves_a_daemon(job: RunJob, pipes: ChildPipes) -> None:
    code = "import os, time\nif os.fork() == 0:\n os.setsid()\n if os.fork() == 0: time.sleep(1000)"
    before = set(children_of(os.getpid()))
    subprocess.run([sys.executable, "-S", "-c", code], check=True)
    while not (left := set(children_of(os.getpid())) - before):
        time.sleep(0.01)
    tell(pipes, ChildAnswer(ExploredRun(job.plan, "passed", problem=str(left.pop()))))
    os._exit(0)


def cluster_is_gone(job: RunJob, pipes: ChildPipes) -> None:
    tell(pipes, ChildAnswer(ExploredRun(job.plan, "broken", problem="no broker answers"), unreachable=True))
    os._exit(0)


def raises(job: RunJob, pipes: ChildPipes) -> None:
    raise RuntimeError("nobody catches this")


BEHAVIOURS: dict[str, Callable[[RunJob, ChildPipes], object]] = {
    "hangs": lambda job, pipes: time.sleep(1000),
    "hangs with the lock": lambda job, pipes: ctypes.PyDLL(None).sleep(1000),  # unlike CDLL it keeps Python's lock
    "is killed": lambda job, pipes: os.kill(os.getpid(), signal.SIGKILL),
    "ends the server": lambda job, pipes: os.kill(os.getppid(), signal.SIGKILL),
    "floods": floods,
    "prints": prints,
    "exits": exits,
    "breaks off": breaks_off,
    "leaves somebody": leaves_somebody,
    "leaves a daemon": leaves_a_daemon,
    "the cluster is gone": cluster_is_gone,
    "raises": raises,
}


def work(job: RunJob, pipes: ChildPipes) -> None:
    """Behave as the plan says."""
    behaviour = job.plan.steps[0].fault.name if job.plan.steps else "answers"
    with RunWatchdog(job, pipes, lambda ended: answer_of(job, behaviour, ended)) as watchdog:
        BEHAVIOURS.get(behaviour, lambda job, pipes: None)(job, pipes)
        watchdog.report(answer_of(job, behaviour))


if __name__ == "__main__":
    if sys.argv[1] == "never ready":
        sys.exit("there is nothing here")
    if sys.argv[1] == "never imported":
        time.sleep(1000)
    fork_server.GRACE, child.STACKS_AFTER = 1.0, 0.3
    serve(int(sys.argv[2]), work)
