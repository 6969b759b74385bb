"""Answers of a worker to what the supervisor's admin API asks: the same operations, on what this worker has."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from time import monotonic, process_time
from typing import TYPE_CHECKING, Any

import trio
from prometheus_client import ProcessCollector
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from kproxy.admin.captures import ProcessCaptures
from kproxy.admin.held import BODIES, HeldShown, ResumeBody
from kproxy.admin.models import Shown
from kproxy.admin.problem import Problem, problem_of
from kproxy.admin.tail_lines import TailLines
from kproxy.admin.worker_api import ProcessMember
from kproxy.base.errors import KproxyError
from kproxy.record.captures.capture_file import CaptureLimits, CapturePart, Totals
from kproxy.record.captures.policy import Policy
from kproxy.record.captures.running_captures import Captures
from kproxy.record.live_view.parts import ViewPart, ViewTotals
from kproxy.record.metrics.merged import GROWING, MetricSamples, collect_samples, samples_of
from kproxy.record.metrics.shares import LabelShare
from kproxy.rules.shared_numbers import NumberTable
from kproxy.runtime.io.turns import in_turns
from kproxy.runtime.rules.keeper import DOCUMENTS

from .channel import Channel
from .messages import (
    BeginTail,
    BeginView,
    EndTail,
    EndView,
    JoinCapture,
    Lines,
    Measure,
    MeasureLabels,
    NextLines,
    NextPart,
    Operate,
    Operated,
    TotalView,
)

if TYPE_CHECKING:
    from kproxy.admin.view import ProcessViewSource
    from kproxy.app.labelling import Labelling

NAMES = 1000
"""Hosts without an address that one worker may name in a capture: brokers, most of the time."""


class WorkerAnswers:
    """Answers of one worker. `collectors`: of what this process counts, rules and itself apart. `table`: what it
    shares. `find_labelling`: what it counts by label now, if anything."""

    def __init__(
        self, member: ProcessMember, captures: Captures | None, collectors: Sequence[Collector], table: NumberTable,
        find_labelling: Callable[[], Labelling | None] = lambda: None,
    ) -> None:  # fmt: skip
        self.member, self.captures, self.collectors, self.table = member, captures, collectors, table
        self.find_labelling = find_labelling
        shown_captures = ProcessCaptures(captures)
        self.calls: Mapping[str, Callable[..., Awaitable[Any]]] = {
            "connections": member.connections,
            "ends": member.ends,
            "close_connection": member.close_connection,
            "recycle_connection": member.recycle_connection,
            "recycle_connections": member.recycle_connections,
            "topology": member.topology,
            "rehearse": member.rehearse,
            "names": member.names,
            "held": member.held,
            "held_frame": member.held_frame,
            "held_preview": self.held_preview,
            "held_action": self.held_action,
            "resume_held": member.resume_held,
            "held_news": member.held_news,
            "exchanges": member.exchanges,
            "exchange": member.exchange,
            "exchange_frame": member.exchange_frame,
            "saved_exchange": member.saved_exchange,
            "send_again": member.send_again,
            "show_capture": shown_captures.show,
            "stop_capture": shown_captures.stop,
        }
        self.process = ProcessCollector(registry=None)
        self.tails: dict[int, TailLines] = {}
        self.views: dict[int, ProcessViewSource] = {}

    def listen(self, channel: Channel) -> None:
        channel.on_question(Operate, self.operate)
        channel.on_question(Measure, self.measure)
        channel.on_question(MeasureLabels, self.measure_labels)
        channel.on_question(BeginTail, self.begin_tail)
        channel.on_question(NextLines, self.next_lines)
        channel.on_notice(EndTail, self.end_tail)
        channel.on_question(BeginView, self.begin_view)
        channel.on_question(NextPart, self.next_part)
        channel.on_notice(EndView, self.end_view)
        channel.on_question(TotalView, self.total_view)
        channel.on_question(JoinCapture, self.join_capture)

    async def operate(self, question: Operate) -> Operated:
        """Do what the API asks of this member, and return the answer or the refusal."""
        try:
            shown = await self.calls[question.name](*question.arguments)
        except Problem as problem:
            return refused(problem)
        except KproxyError as error:
            return refused(problem_of(error))
        if isinstance(shown, Shown):
            return Operated(shown.model_dump(mode="json"))
        return Operated(await dumped(shown) if isinstance(shown, Iterator) else shown)

    async def held_preview(self, number: str, text: str) -> str:
        body = await trio.to_thread.run_sync(ResumeBody.model_validate_json, text, limiter=DOCUMENTS)
        return await self.member.held_preview(number, body)

    async def held_action(self, action: str, number: str, text: str) -> HeldShown:
        body = await trio.to_thread.run_sync(BODIES[action].model_validate_json, text, limiter=DOCUMENTS)
        return await self.member.held_action(action, number, body)

    def measure(self, question: Measure) -> list[MetricSamples]:
        cpu = CounterMetricFamily("process_cpu_seconds", "Total user and system CPU time spent in seconds.",
                                  value=process_time())  # fmt: skip
        families = [*collect_samples(self.collectors), samples_of(cpu)]
        if not question.growing:  # to count open files takes milliseconds when there are thousands
            families += [one for one in collect_samples([self.process]) if one.kind not in GROWING]
        return families

    async def measure_labels(self, question: MeasureLabels) -> LabelShare:
        labelling = self.find_labelling()
        return LabelShare() if labelling is None else await labelling.share()

    async def begin_tail(self, question: BeginTail) -> None:
        """Begin to keep lines. Raises FilterError, which the supervisor has found before."""
        tail = self.tails[question.number] = self.member.tail(question.number, question.filter)
        await tail.begin()

    async def next_lines(self, question: NextLines) -> Lines:
        """Return the next lines of a tail; none for a listener that is gone."""
        tail = self.tails.get(question.number)
        return Lines(b"") if tail is None else Lines(await tail.next(), tail.dropped)

    def end_tail(self, question: EndTail) -> None:
        tail = self.tails.pop(question.number, None)
        if tail is not None:
            tail.end()

    async def begin_view(self, question: BeginView) -> None:
        """Begin to keep rows. Raises FilterError, which the supervisor has found before."""
        source = self.member.view(question.number, question.filter, question.rows, question.after)
        self.views[question.number] = source
        await source.begin()

    async def next_part(self, question: NextPart) -> ViewPart:
        """Return the next part of a view; nothing for a viewer that is gone."""
        source = self.views.get(question.number)
        return ViewPart(0) if source is None else await source.next()

    def end_view(self, question: EndView) -> None:
        source = self.views.pop(question.number, None)
        if source is not None:
            source.end()

    async def total_view(self, question: TotalView) -> ViewTotals:
        return await self.member.view_totals()

    async def join_capture(self, question: JoinCapture) -> None:
        """Write into the supervisor's capture; the first worker records the topics. Raises CaptureRefused."""
        assert self.captures is not None, "the config has a folder for them"
        totals = Totals(self.table.cells(question.owner, None), monotonic)
        capture = self.captures.join(
            Path(question.path),
            CapturePart(totals, self.member.index * NAMES),
            wanted=question.filter,
            policy=Policy(question.payload, question.head),
            limits=CaptureLimits(question.size, question.seconds, question.exchanges),
            side=question.side,
            topics=question.topics and self.member.index == 0,
        )
        await self.captures.record_topics(capture)


def refused(problem: Problem) -> Operated:
    mistakes = list(problem.mistakes)
    return Operated(status=problem.status, code=problem.code, message=problem.message, mistakes=mistakes)


async def dumped(items: Iterator[Shown]) -> list[dict[str, Any]]:
    """Make the items as plain values, some at a time."""
    rows: list[dict[str, Any]] = []
    await in_turns(map(rows.append, (item.model_dump(mode="json") for item in items)))
    return rows
