"""Answers of a worker to what the supervisor's admin API asks: the same operations, on what this worker has."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from time import monotonic, process_time

from prometheus_client import ProcessCollector
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from kproxy.admin.api import OPERATIONS
from kproxy.admin.backend import Backend
from kproxy.admin.long_answer import LongAnswer
from kproxy.admin.models import Shown
from kproxy.admin.operation import OperationCall
from kproxy.admin.problem import Problem, problem_of
from kproxy.admin.tail import TailLines
from kproxy.capture.policy import Policy
from kproxy.errors import KproxyError
from kproxy.observe.filter.filter import Filter
from kproxy.process.workers.channel import Channel
from kproxy.rules.shared_numbers import NumberTable
from kproxy.sinks.capture_file import CaptureLimits, CapturePart, Totals
from kproxy.sinks.merged_metrics import GROWING, MetricSamples, collect_samples, samples_of

from .messages import BeginTail, EndTail, JoinCapture, Lines, Measure, NextLines, Operate, Operated

NAMES = 1000
"""Hosts without an address that one worker may name in a capture: brokers, most of the time."""
BY_NAME = {one.name: one for one in OPERATIONS}


class WorkerAnswers:
    """Answers of one worker. `collectors`: of what this process counts, rules and itself apart. `table`: what it
    shares. `index`: of this worker."""

    def __init__(self, backend: Backend, collectors: Sequence[Collector], table: NumberTable, index: int) -> None:
        self.backend, self.collectors, self.table, self.index = backend, collectors, table, index
        self.process = ProcessCollector(registry=None)
        self.tails: dict[int, TailLines] = {}

    def listen(self, channel: Channel) -> None:
        """Answer the supervisor's questions from now on."""
        channel.on_question(Operate, self.operate)
        channel.on_question(Measure, self.measure)
        channel.on_question(BeginTail, self.begin_tail)
        channel.on_question(NextLines, self.next_lines)
        channel.on_notice(EndTail, self.end_tail)
        channel.on_question(JoinCapture, self.join_capture)

    async def operate(self, question: Operate) -> Operated:
        """Do an operation of the API and return its answer or its refusal."""
        operation = BY_NAME[question.name]
        try:
            query = operation.query.model_validate(question.query)
            shown = await operation.handle(self.backend, OperationCall(question.path, query, None))
        except Problem as problem:
            return refused(problem)
        except KproxyError as error:
            return refused(problem_of(error))
        if isinstance(shown, LongAnswer):
            return Operated({**shown.shown.model_dump(mode="json"), shown.field: await shown.values()})
        assert isinstance(shown, Shown), "streams are asked for otherwise"
        return Operated(shown.model_dump(mode="json"))

    def measure(self, question: Measure) -> list[MetricSamples]:
        cpu = CounterMetricFamily("process_cpu_seconds", "Total user and system CPU time spent in seconds.",
                                  value=process_time())  # fmt: skip
        families = [*collect_samples(self.collectors), samples_of(cpu)]
        if not question.growing:  # to count open files takes milliseconds when there are thousands
            families += [one for one in collect_samples([self.process]) if one.kind not in GROWING]
        return families

    def begin_tail(self, question: BeginTail) -> None:
        """Begin to keep lines. Raises FilterError, which the supervisor has found before."""
        server = self.backend.server
        tail = TailLines(server.taps.fanout, server.reactor.notify, Filter(question.filter))
        self.tails[question.number] = tail
        tail.begin()

    async def next_lines(self, question: NextLines) -> Lines:
        """Return the next lines of a tail; none for a listener that is gone."""
        tail = self.tails.get(question.number)
        return Lines(b"" if tail is None else await tail.next())

    def end_tail(self, question: EndTail) -> None:
        tail = self.tails.pop(question.number, None)
        if tail is not None:
            tail.end()

    def join_capture(self, question: JoinCapture) -> None:
        """Write into the supervisor's capture. Raises CaptureRefused."""
        assert self.backend.captures is not None, "the config has a folder for them"
        totals = Totals(self.table.cells(question.owner, None), monotonic)
        self.backend.captures.join(
            Path(question.path),
            CapturePart(totals, self.index * NAMES),
            wanted=question.filter,
            policy=Policy(question.payload, question.head),
            limits=CaptureLimits(question.size, question.seconds, question.exchanges),
            side=question.side,
        )


def refused(problem: Problem) -> Operated:
    return Operated(status=problem.status, code=problem.code, message=problem.message)
