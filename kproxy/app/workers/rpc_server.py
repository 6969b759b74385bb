"""Answers of a worker to the supervisor's admin API: the same operations, on this worker's data."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from time import monotonic, process_time
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import trio
from prometheus_client import ProcessCollector
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from kproxy.admin.captures import ProcessCaptures
from kproxy.admin.held import BODIES, HeldShown, ResumeBody
from kproxy.admin.models import Shown
from kproxy.admin.problem import Problem, problem_of
from kproxy.admin.tail import TailLines
from kproxy.admin.worker_api import ProcessMember
from kproxy.base.errors import InternalError, KproxyError, UnusableSetting
from kproxy.record.captures.capture_file import CaptureLimits, CapturePart, Totals
from kproxy.record.captures.policy import Policy
from kproxy.record.captures.running_captures import Captures
from kproxy.record.live_view.watch import ViewPart, ViewTotals
from kproxy.record.metrics.merged import GROWING, MetricSamples, collect_samples, samples_of
from kproxy.record.metrics.worker_totals import LabelShare
from kproxy.rules.kinds import KINDS
from kproxy.rules.kinds.base.rule import LiveRule, Rule
from kproxy.rules.rule_set import RuleSet, Running
from kproxy.rules.shared_numbers import NumberTable, SharedNumbers
from kproxy.runtime.io.scheduler import in_turns
from kproxy.runtime.rule_keeper import DOCUMENTS, ApplyRuleSet, release_in_turns

from .channel import Channel
from .messages import (
    BeginTail,
    BeginView,
    Commit,
    CountRules,
    EndTail,
    EndView,
    Forget,
    HandedRule,
    JoinCapture,
    Lines,
    Measure,
    MeasureLabels,
    NetworkTerms,
    NextLines,
    NextPart,
    Obstacle,
    Operate,
    Operated,
    Prepare,
    ReleaseRule,
    RuleCount,
    RulesState,
    TotalView,
)

if TYPE_CHECKING:
    from kproxy.admin.view import ProcessViewSource
    from kproxy.app.label_metrics import Labelling

NAMES = 1000
"""Hosts without an address that one worker may name in a capture: brokers, in most cases."""


class WorkerAnswers:
    """Answers of one worker. `collectors`: of this process's metrics, except those of rules and of the process itself.
    `table`: the table shared by all workers. `find_labelling` returns its counts by label, None if not configured."""

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
        """Run an operation of the API on this member, and return the answer or the refusal."""
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
        if not question.growing:  # counting thousands of open files takes milliseconds
            families += [one for one in collect_samples([self.process]) if one.kind not in GROWING]
        return families

    async def measure_labels(self, question: MeasureLabels) -> LabelShare:
        labelling = self.find_labelling()
        return LabelShare() if labelling is None else await labelling.share()

    async def begin_tail(self, question: BeginTail) -> None:
        """Start a tail. Raises FilterError, which the supervisor has already checked."""
        tail = self.tails[question.number] = self.member.tail(question.number, question.filter)
        await tail.begin()

    async def next_lines(self, question: NextLines) -> Lines:
        """Return the next lines of a tail; empty if the tail has ended."""
        tail = self.tails.get(question.number)
        return Lines(b"") if tail is None else Lines(await tail.next(), tail.dropped)

    def end_tail(self, question: EndTail) -> None:
        tail = self.tails.pop(question.number, None)
        if tail is not None:
            tail.end()

    async def begin_view(self, question: BeginView) -> None:
        """Start a view. Raises FilterError, which the supervisor has already checked."""
        source = self.member.view(question.number, question.filter, question.rows, question.after)
        self.views[question.number] = source
        await source.begin()

    async def next_part(self, question: NextPart) -> ViewPart:
        """Return the next part of a view; empty if the view has ended."""
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
    """Convert the items to plain values, some at a time."""
    rows: list[dict[str, Any]] = []
    await in_turns(map(rows.append, (item.model_dump(mode="json") for item in items)))
    return rows


class ChangingConfig(Protocol):
    """Process of a worker, with a config that changes. `make_ready` raises UnusableSetting; `take_over` cannot fail."""

    async def make_ready(self, config: bytes) -> Any: ...
    def take_over(self, change: Any, rules: RuleSet, terms: NetworkTerms) -> object: ...


# Rules of a worker: it prepares the supervisor's state and commits it on request.
#
# Strategy. The supervisor sends the complete state of all rules each time; a new worker receives the same messages as
# an old one. The supervisor numbers the rules: a rule with the same number keeps its `Running`, and with it its
# counters. Models are made in a thread, and only those of new rules.
#
# A config comes the same way, together with its rules. The latest question wins: a late answer to an earlier one is
# ignored.
@dataclass(frozen=True, slots=True)
class Prepared:
    """State that is prepared. `running`: its live rules at work by their birth number. `change`: to the config of the
    same question, if included."""

    state: RulesState
    models: dict[bytes, Rule]
    running: dict[int, Running]
    rule_set: RuleSet
    change: Any = None


class WorkerRules:
    """Rules of one worker, of the number `index`. `swap` puts a rule set into force for all connections. `process` has
    the config that may change with the rules."""

    def __init__(
        self, table: NumberTable, index: int, swap: ApplyRuleSet, process: ChangingConfig | None = None
    ) -> None:
        self.table, self.swap, self.process = table, swap, process
        self.own = f":{index}" if index else ""
        self.models: dict[bytes, Rule] = {}
        self.running: dict[int, Running] = {}
        self.in_force: tuple[Running, ...] = ()
        self.asked = 0  # number of the last requested state
        self.prepared: Prepared | None = None

    def begin(self, state: bytes) -> RuleSet:
        """Return the rules at the start. Blocks. Raises InternalError for rules that cannot be made here."""
        prepared = self._read(state)
        self._take(prepared)
        return prepared.rule_set

    def listen(self, channel: Channel) -> None:
        channel.on_question(Prepare, self.prepare)
        channel.on_notice(Forget, self.forget)
        channel.on_question(Commit, self.commit)
        channel.on_question(CountRules, self.count)
        channel.on_question(ReleaseRule, self.release)

    async def prepare(self, question: Prepare) -> Obstacle | None:
        """Prepare the models of a state in a thread, and a config. Raises InternalError."""
        self.asked, self.prepared = question.number, None
        prepared = await trio.to_thread.run_sync(self._read, question.state)
        if question.config:
            if self.process is None:
                raise InternalError("the config does not change here")
            try:
                prepared = replace(prepared, change=await self.process.make_ready(question.config))
            except UnusableSetting as error:
                return Obstacle(list(error.where), str(error))
        if self.asked != question.number:
            raise InternalError(f"state {question.number} is not wanted any more")
        self.prepared = prepared
        return None

    def forget(self, notice: Forget) -> None:
        """Drop the prepared parts of a state that is discarded."""
        if self.asked == notice.number:
            self.asked, self.prepared = 0, None

    def _read(self, state: bytes) -> Prepared:
        read = msgspec.msgpack.decode(state, type=RulesState)
        return self._ready(read, models(read, self.models))

    def commit(self, question: Commit) -> Awaitable[None]:
        """Commit a state: its config at once, its rules before the answer. Raises InternalError if it is not the
        prepared one."""
        prepared, self.prepared = self.prepared, None
        if prepared is None or prepared.state.number != question.number:
            number = "none" if prepared is None else prepared.state.number
            raise InternalError(f"rules {question.number} are to be put into force, {number} are prepared")
        if (prepared.change is None) != (question.network is None):
            raise InternalError(f"state {question.number} is to come with another config than was prepared")
        before = self.in_force
        self._take(prepared)
        if self.process is not None and question.network is not None:
            self.process.take_over(prepared.change, prepared.rule_set, question.network)
        return self._swap(prepared.rule_set, before)

    async def _swap(self, rules: RuleSet, before: tuple[Running, ...]) -> None:
        """Put rules into force for all connections, and release requests held by removed rules."""
        await in_turns(self.swap(rules) or ())
        staying = set(map(id, self.in_force))
        for running in before:
            if id(running) not in staying:
                await in_turns(running.releasing("rule_gone"))

    def count(self, question: CountRules) -> list[RuleCount]:
        """Return the counters of the rules with nonzero ones: of thousands of rules most have none."""
        return [counted(one) for one in self.running.values() if one.matched or one.held]

    async def release(self, question: ReleaseRule) -> int:
        """Release the requests that the rule holds here; return their number."""
        running = self.running.get(question.born)
        return 0 if running is None else await release_in_turns(running)

    def _ready(self, state: RulesState, rule_models: dict[bytes, Rule]) -> Prepared:
        running, active, positions = {}, [], []
        for handed in state.rules:
            rule = rule_models[handed.content]
            if handed.born:
                assert isinstance(rule, LiveRule), "others are not born"
                known = self.running.get(handed.born)
                if known is None:
                    known = Running(rule, handed.origin, state.seed, handed.began, self._common(handed))
                    known.born, known.lives, known.resets = handed.born, handed.lives, handed.resets
                running[handed.born], rule = known, known.rule
            if handed.active:
                active.append(rule)
                positions.append(handed.position)
        rule_set = RuleSet(
            active, positions, [running[handed.born] for handed in state.rules if handed.active and handed.born]
        )
        return Prepared(state, rule_models, running, rule_set)

    def _take(self, prepared: Prepared) -> None:
        """Commit the state: the part that cannot fail."""
        for one in prepared.state.rules:
            running = prepared.running.get(one.born)
            if running is None:
                continue
            running.enabled = one.active
            if running.resets != one.resets:
                running.reset()
                running.resets = one.resets
            if running.lives != one.lives:
                running.restart(one.began, self._common(one))
                running.lives = one.lives
        self.models, self.running = prepared.models, prepared.running
        self.in_force = prepared.rule_set.live

    def _common(self, one: HandedRule) -> SharedNumbers:
        return SharedNumbers(self.table, owner(one.born, one.lives), self.own)


def owner(born: int, lives: int) -> bytes:
    """Return the key of this life of a rule in the shared table."""
    return blake2b(f"{born} {lives}".encode(), digest_size=8).digest()


def models(state: RulesState, known: dict[bytes, Rule]) -> dict[bytes, Rule]:
    """Return the models of all rules, by their content. Raises InternalError if one cannot be made."""
    by_content = {}
    for handed in state.rules:
        rule = known.get(handed.content)
        if rule is None:
            try:
                rule = KINDS[handed.raw["kind"]].model_validate(handed.raw)
            except Exception as error:
                raise InternalError(
                    f'{handed.position}: the rule "{handed.raw.get("name")}" cannot be made: {error}'
                ) from error
            _ = rule.content  # computed here, outside the loop
        by_content[handed.content] = rule
    return by_content


def counted(running: Running) -> RuleCount:
    done = running.matched, running.fired, running.applied
    problems = len(running.held), running.problems, running.problem
    return RuleCount(running.born, running.resets, *done, *problems, running.throttles, running.throttle_seconds)
