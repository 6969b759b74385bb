"""Children that hang, die, flood or fall silent are told as what they are, and hold up nobody else."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing
from math import inf
from pathlib import Path
from time import monotonic

import pytest

from kproxy.base.errors import InternalError
from kproxy.testing.explore.model import ExploredRun, FaultPlan
from kproxy.testing.explore.result import judge
from kproxy.testing.explore.runs import fork_runner, fork_server
from kproxy.testing.explore.runs.child import RunJob, ServerOrder
from kproxy.testing.explore.runs.fork_runner import ClusterGone, ForkRunner
from tests.support.wait import until
from tests.testing.explore.odd_children import plan_of

pytestmark = pytest.mark.process
HERE = Path(__file__).parent
COMMAND = [sys.executable, str(HERE / "odd_children.py")]


@pytest.fixture(scope="module")
def runner() -> Iterator[ForkRunner]:
    with ForkRunner([*COMMAND, "ready"], jobs=4) as runner:
        yield runner


def run_one(runner: ForkRunner, behaviour: str, limit: float = 60) -> ExploredRun:
    runner.limit = limit
    (run,) = runner.run([plan_of(behaviour)])
    runner.limit = 60
    assert run.plan == plan_of(behaviour)
    return run


def test_a_run_is_told(runner: ForkRunner) -> None:
    """Each has a prefix of its own."""
    assert runner.threads == 0
    first, second = runner.run([FaultPlan(), FaultPlan()])
    assert (first.ended, first.seconds) == ("passed", 0.5)
    assert first.problem.startswith(runner.token) and first.problem != second.problem


def test_a_hang_is_told_with_its_stacks(runner: ForkRunner) -> None:
    """By the watchdog, before the process is killed."""
    run = run_one(runner, "hangs", 0.3)
    assert run.ended == "hang" and "in work" in run.stacks and run.problem.startswith(runner.token)


def test_a_hang_that_keeps_the_lock_is_killed(runner: ForkRunner) -> None:
    """Its stacks are written by C."""
    run = run_one(runner, "hangs with the lock", 0.3)
    assert run.ended == "hang" and "in work" in run.stacks and "killed" in run.problem


@pytest.mark.parametrize(
    ("behaviour", "ended", "said"),
    [
        ("is killed", "died", "killed by SIGKILL"),
        ("exits", "died", "exit code 3"),
        ("floods", "broken", "answer was too long"),
        ("breaks off", "died", "in the middle of its answer"),
        ("raises", "died", "exit code 1"),
    ],
)
def test_a_child_that_goes_wrong(runner: ForkRunner, behaviour: str, ended: str, said: str) -> None:
    """It is told how, and the next one is none the worse."""
    run = run_one(runner, behaviour)
    assert run.ended == ended and said in f"{judge(run).what}; {run.problem}"
    assert next(runner.run([FaultPlan()])).ended == "passed"


def test_what_it_printed_last_is_kept(runner: ForkRunner) -> None:
    """Of 13 MB the end; also of one that died, and what it raised."""
    printed = run_one(runner, "prints")
    assert printed.ended == "passed" and printed.output.endswith("the end")
    assert len(printed.output) <= fork_server.OUTPUT_KEPT
    assert "good bye" in run_one(runner, "exits").output
    assert "nobody catches this" in run_one(runner, "raises").output


def test_an_answer_longer_than_a_pipe(runner: ForkRunner) -> None:
    """It comes whole."""
    assert len(run_one(runner, "says much").output) == 10 << 20


@pytest.mark.parametrize("behaviour", ["leaves somebody", "leaves a daemon"])
def test_what_a_run_leaves_is_killed(runner: ForkRunner, behaviour: str) -> None:
    """Processes that it has started, and did not end; also such as have a group and a session of their own."""
    pid = int(run_one(runner, behaviour).problem)
    until(lambda: not Path(f"/proc/{pid}").exists() or "State:\tZ" in Path(f"/proc/{pid}/status").read_text())


def test_one_that_hangs_holds_up_nobody(runner: ForkRunner) -> None:
    """Others end meanwhile, and are told in the order of their ends; plans are taken when there is room."""
    taken: list[int] = []
    runner.limit = 3

    def plans() -> Iterator[FaultPlan]:
        for number in range(10):
            taken.append(number)
            yield plan_of("hangs" if number == 0 else "answers")

    runs = runner.run(plans())
    first = next(runs)
    assert first.ended == "passed" and len(taken) == runner.jobs
    assert [run.ended for run in runs].count("hang") == 1 and len(taken) == 10
    runner.limit = 60


def test_closing_ends_the_runs_under_way(runner: ForkRunner) -> None:
    """Their ends are not told to whoever runs something next."""
    with closing(runner.run([plan_of("hangs"), plan_of("answers")])) as runs:
        assert next(runs).ended == "passed"
    assert [run.plan for run in runner.run([FaultPlan()])] == [FaultPlan()]


def test_runner_until_ends_the_runs_under_way(runner: ForkRunner) -> None:
    """At `until`, the iterator ends without the run that hangs; after it, no run begins."""
    runs = runner.run([plan_of("hangs"), plan_of("answers")])
    assert next(runs).ended == "passed"
    runner.until = monotonic() + 0.1
    assert list(runs) == []
    taken: list[int] = []
    assert list(runner.run(plan_of("answers") for _ in range(2) if taken.append(1) is None)) == [] and not taken
    runner.until = inf
    assert [run.plan for run in runner.run([FaultPlan()])] == [FaultPlan()]


def test_a_cluster_that_ends_ends_the_exploration(runner: ForkRunner) -> None:
    """It would be found in each run again."""
    with pytest.raises(ClusterGone, match="no broker answers"):
        list(runner.run([plan_of("the cluster is gone")]))
    assert next(runner.run([FaultPlan()])).ended == "passed"


def test_topics_are_deleted_after_many_runs_and_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a cluster that runs share; the job knows which runs may be under way."""
    monkeypatch.setattr(fork_runner, "DELETE_EACH", 3)
    jobs: list[RunJob] = []
    with ForkRunner([*COMMAND, "ready"], jobs=2) as runner:
        order = runner._order

        def note(given: ServerOrder) -> None:
            if given.job is not None and given.job.task == "delete topics":
                jobs.append(given.job)
            order(given)

        monkeypatch.setattr(runner, "_order", note)
        assert len(list(runner.run([plan_of("shares")] * 5))) == 5
        assert len(jobs) == 1
    assert len(jobs) == 2 and {job.shared for job in jobs} == {"broker:9092"}
    assert jobs[0].below < jobs[0].number and jobs[1].below == jobs[1].number and jobs[1].prefix == runner.token


def test_a_server_that_ends() -> None:
    """Its last words are told."""
    never = ForkRunner([*COMMAND, "never ready"], jobs=1)
    with pytest.raises(InternalError, match="exit code 1:\nthere is nothing here"), never:
        pass
    other = ForkRunner([*COMMAND, "ready"], jobs=1)
    with other, pytest.raises(InternalError, match="has ended with exit code -9"):
        list(other.run([plan_of("ends the server")]))


def test_runner_time_that_is_up_while_the_test_is_imported() -> None:
    """The process that imports it is killed, and not waited for."""
    with pytest.raises(InternalError, match="time was up before the test's module was imported"):
        ForkRunner([*COMMAND, "never imported"], 1, until=monotonic()).__enter__()
