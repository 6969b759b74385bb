"""Messages between the explorer, the process that forks and its children, and a child's side of them.

A test that hangs waits in C. At its limit, a watchdog thread reports the run with the stacks of all threads, and ends
the process. If a thread keeps Python's lock, `faulthandler` writes the stacks, and the process that forks kills the
child.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from kproxy.base.errors import InternalError
from kproxy.testing.explore.model import ExploredRun, FaultPlan, RunEnd, dumps

MOST_MESSAGE = 64 << 20  # bytes; a child's answer, at most half of it, is in it as base64
HEAD = 4
NO_FAULTS = FaultPlan()


@dataclass(frozen=True, slots=True)
class RunJob:
    """Job of a child: a run under a plan, or the deletion of topics that runs have left."""

    number: int
    limit: float
    plan: FaultPlan = NO_FAULTS
    prefix: str = ""  # of all names of the run, or of all runs for the deletion
    task: Literal["run", "delete topics"] = "run"
    below: int = 0  # lowest number of a run that can be under way
    shared: str = ""  # address of the cluster for the deletion


@dataclass(frozen=True, slots=True)
class ServerOrder:
    """Order to the process that forks: begin a job, or end those with these numbers."""

    job: RunJob | None = None
    end: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ChildAnswer:
    run: ExploredRun
    shared: str = ""  # address of the cluster if other runs use it
    unreachable: bool = False  # no broker of the cluster responds


@dataclass(frozen=True, slots=True)
class EndedChild:
    """Child that has ended, as the process that forks reports it."""

    number: int
    answer: bytes = b""  # empty if the child gave none
    code: int = 0  # exit code, below zero for a signal
    seconds: float = 0.0
    late: bool = False  # killed after its time
    flooded: bool = False  # killed for too long an answer
    stacks: str = ""
    output: str = ""  # its end
    problem: str = ""  # why no child was forked


@dataclass(frozen=True, slots=True)
class ServerReport:
    """Report of the process that forks: it is ready, or has a problem, or a child has ended."""

    ended: EndedChild | None = None
    problem: str = ""
    threads: int = 0  # of the process besides its own; children lack them


def packed(message: Any) -> bytes:
    """Return a message with its length in four bytes before it."""
    data = dumps(message)
    return len(data).to_bytes(HEAD, "big") + data


class MessageBuffer:
    def __init__(self) -> None:
        self.data = bytearray()

    def add(self, data: bytes) -> Iterator[bytes]:
        """Yield the messages that these bytes complete. Raises InternalError."""
        self.data += data
        at = 0
        while len(self.data) - at >= HEAD:
            size = int.from_bytes(self.data[at : at + HEAD], "big")
            if size > MOST_MESSAGE:
                raise InternalError(f"a message of {size} bytes is announced, the longest has {MOST_MESSAGE}")
            if len(self.data) - at - HEAD < size:
                break
            yield bytes(self.data[at + HEAD : at + HEAD + size])
            at += HEAD + size
        del self.data[:at]


def code_text(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def write_all(descriptor: int, data: bytes) -> None:
    with memoryview(data) as view:
        at = 0
        while at < len(view):
            at += os.write(descriptor, view[at:])


STACKS_AFTER = 2.0  # seconds after the limit until stacks are written from C; the watchdog ends the process before
MOST_PLACES = 20_000  # first places of a run that are reported

CollectAnswer = Callable[[RunEnd], ChildAnswer]


@dataclass(frozen=True, slots=True)
class ChildPipes:
    answer: int
    stacks: int


class RunWatchdog:
    """Watchdog of one run in this process. Only the first answer counts. At the limit, its thread calls `at_limit`,
    which acts on the run while it lives, then `collect("hang")`."""

    def __init__(
        self, job: RunJob, pipes: ChildPipes, collect: CollectAnswer, at_limit: Callable[[], None] | None = None
    ) -> None:
        self.job, self.pipes, self.collect, self.at_limit = job, pipes, collect, at_limit
        self._lock, self._over = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._wait, name="watchdog", daemon=True)

    def __enter__(self) -> RunWatchdog:
        faulthandler.dump_traceback_later(self.job.limit + STACKS_AFTER, file=self.pipes.stacks)
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._over.set()
        faulthandler.cancel_dump_traceback_later()

    def report(self, answer: ChildAnswer) -> None:
        """Report the answer. If another thread has reported one, wait for the end of the process."""
        self._lock.acquire()  # never released: whoever comes second waits for the end of the process
        tell(self.pipes, answer)

    def _wait(self) -> None:
        if self._over.wait(self.job.limit):
            return
        self._lock.acquire()  # what is done now may end the run, and that is not to be told as its end
        faulthandler.dump_traceback(file=self.pipes.stacks, all_threads=True)
        try:
            if self.at_limit is not None:
                self.at_limit()
            answer = self.collect("hang")
        except Exception as error:  # noqa: BLE001  # that it hangs must be told in any case
            problem = f"nothing more is known of it: {type(error).__name__}: {error}"
            answer = ChildAnswer(ExploredRun(self.job.plan, "hang", self.job.limit, problem=problem))
        tell(self.pipes, answer)
        os._exit(0)


def tell(pipes: ChildPipes, answer: ChildAnswer) -> None:
    if len(answer.run.places) > MOST_PLACES:
        answer = replace(answer, run=replace(answer.run, places=answer.run.places[:MOST_PLACES]))
    write_all(pipes.answer, dumps(answer))
