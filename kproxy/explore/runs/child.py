"""A child's answer, given once: at its end, or before it by a watchdog when its time is over.

Strategy. A test that hangs cannot be interrupted: it waits in C for something that never comes. So a thread beside it
waits for the limit, collects what can be told of the run meanwhile, with the stacks of all threads, and ends the
process. Where even that thread does not get its turn, since somebody keeps Python's lock, `faulthandler` writes the
stacks from a thread of C's, and the process that forks kills this one and reads them.
"""

from __future__ import annotations

import faulthandler
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from kproxy.explore.model import ExploredRun, RunEnd, dumps

from .messages import ChildAnswer, RunJob, write_all

STACKS_AFTER = 2.0
"""Seconds behind the limit after which stacks are written without the help of Python: the watchdog has ended the
process by then, if it could."""
MOST_PLACES = 20_000
"""Places of one run that are told; a test of more exchanges than that is told by its first ones."""

CollectAnswer = Callable[[RunEnd], ChildAnswer]


@dataclass(frozen=True, slots=True)
class ChildPipes:
    """Descriptors of a child: for its answer, and for stacks."""

    answer: int
    stacks: int


class RunWatchdog:
    """Watchdog over one run of this process: `tell` gives the answer, and the first one counts.

    `collect` makes the answer for a run that ends so; the watchdog calls it in its own thread with "hang". `at_limit`
    is called before that, for what can only be asked of a run that still lives.
    """

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

    def tell(self, answer: ChildAnswer) -> None:
        """Give the answer, unless there was one. Only the first caller comes back from it."""
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
    """Write an answer, of a long run with its first places only."""
    if len(answer.run.places) > MOST_PLACES:
        answer = replace(answer, run=replace(answer.run, places=answer.run.places[:MOST_PLACES]))
    write_all(pipes.answer, dumps(answer))
