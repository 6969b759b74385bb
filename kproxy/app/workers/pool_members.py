"""Members of a pool: workers in other processes, asked over their channels, and the metrics of the supervisor and all
workers, added up over restarts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, count
from time import monotonic
from typing import Any

import trio
import trio.lowlevel
from prometheus_client.registry import Collector, CollectorRegistry

from kproxy.admin.backend import joined
from kproxy.admin.editor import KeptNamesShown, MatchesShown
from kproxy.admin.held import HeldBody, HeldRows, HeldShown, ResumeBody
from kproxy.admin.held_news import HeldNewsShown
from kproxy.admin.kept import FoundExchanges
from kproxy.admin.models import ConnectionShown, EndsShown, SentAgainShown, TopologyShown
from kproxy.admin.problem import MemberGone, Problem
from kproxy.admin.worker_api import Member, RecycleChoice
from kproxy.record.live_view.watch import ViewPart, ViewTotals
from kproxy.record.metrics.merged import (
    MergedCollector,
    MetricSamples,
    collect_into,
    collect_samples,
    growing_metrics,
    merge_metrics,
)
from kproxy.record.metrics.traffic import exposition, registry_of
from kproxy.record.metrics.worker_totals import LabelCollector, TelemetryCollector, ToldShares
from kproxy.runtime.io.scheduler import in_turns

from .channel import Channel, Unanswered
from .messages import (
    BeginTail,
    BeginView,
    EndTail,
    EndView,
    Measure,
    MeasureLabels,
    NextLines,
    NextPart,
    Operate,
    TotalView,
)
from .rule_messages import PoolRuleKeeper
from .worker_pool import Recipient, Recipients, ask_all

PATIENCE = 5.0
"""Timeout of a worker's answer in seconds: an operator waits that long."""
LONG = 28.0
"""Timeout in seconds for a worker that waits for a broker: longer than `exchange_sender.PATIENCE`, shorter than
commands wait."""


class ChannelMember:
    """Worker of a pool as a member. `models`: lock for making models of an answer, one at a time for all members, since
    a large one takes milliseconds."""

    def __init__(self, worker: Recipient, models: trio.Lock) -> None:
        self.worker, self.models = worker, models

    @property
    def index(self) -> int:
        return self.worker.index

    @property
    def process(self) -> Channel | None:
        return self.worker.channel if self.worker.ready else None

    async def connections(self) -> Iterator[ConnectionShown]:
        rows = await self.ask("connections")
        return (ConnectionShown(**row) for row in rows)

    async def ends(self) -> EndsShown:
        return EndsShown(**await self.ask("ends"))

    async def close_connection(self, number: str, reset: bool) -> ConnectionShown:
        return ConnectionShown(**await self.ask("close_connection", number, reset))

    async def recycle_connection(self, number: str) -> ConnectionShown:
        return ConnectionShown(**await self.ask("recycle_connection", number))

    async def recycle_connections(self, which: RecycleChoice) -> int:
        count: int = await self.ask("recycle_connections", which)
        return count

    async def topology(self) -> TopologyShown:
        shown = await self.ask("topology")
        async with self.models:
            await trio.lowlevel.checkpoint()
            return TopologyShown(**shown)

    async def held(self) -> HeldRows:
        return HeldRows(**await self.ask("held"))

    async def held_frame(self, number: str, first: int) -> str:
        return str(await self.ask("held_frame", number, first))

    async def held_preview(self, number: str, body: ResumeBody) -> str:
        return str(await self.ask("held_preview", number, body.model_dump_json()))

    async def held_action(self, action: str, number: str, body: HeldBody) -> HeldShown:
        return HeldShown(**await self.ask("held_action", action, number, body.model_dump_json()))

    async def resume_held(self, rule: str | None, who: str) -> int:
        count: int = await self.ask("resume_held", rule, who)
        return count

    async def held_news(self, number: int | None) -> HeldNewsShown:
        return HeldNewsShown(**await self.ask("held_news", number))

    def tail(self, number: int, text: str) -> ChannelTail:
        assert self.worker.channel is not None, "only a process that is there is listened to"
        return ChannelTail(self.worker, self.worker.channel, number, text)

    async def rehearse(self, text: str) -> MatchesShown:
        return MatchesShown(**await self.ask("rehearse", text))

    async def names(self) -> KeptNamesShown:
        return KeptNamesShown(**await self.ask("names"))

    def view(self, number: int, text: str, rows: int, after: int | None) -> ChannelView:
        assert self.worker.channel is not None, "only a process that is there is looked at"
        return ChannelView(self.worker, self.worker.channel, BeginView(number, text, rows, after))

    async def view_totals(self) -> ViewTotals:
        channel = self.worker.channel
        if channel is None:
            raise MemberGone(500, "internal", f"worker {self.index} is not running")
        try:
            return await channel.ask(TotalView(), PATIENCE)
        except Unanswered as error:
            raise unanswered(self.worker, channel, error) from None

    async def exchanges(self, text: str, before: int | None, limit: int, after: int | None) -> FoundExchanges:
        return FoundExchanges(**await self.ask("exchanges", text, before, limit, after))

    async def exchange(self, number: int, first: int) -> str:
        return str(await self.ask("exchange", number, first))

    async def exchange_frame(self, number: int, of: str, side: str) -> str:
        return str(await self.ask("exchange_frame", number, of, side))

    async def saved_exchange(self, number: int) -> str:
        return str(await self.ask("saved_exchange", number))

    async def send_again(self, number: int, confirm: str) -> SentAgainShown:
        return SentAgainShown(**await self.ask("send_again", number, confirm, patience=LONG))

    async def ask(self, name: str, *arguments: Any, patience: float = PATIENCE) -> Any:
        """Return the JSON of the worker's answer. Raises the answer's Problem."""
        channel = self.worker.channel
        if channel is None:
            raise MemberGone(500, "internal", f"worker {self.index} is not running")
        try:
            answer = await channel.ask(Operate(name, list(arguments)), patience)
        except Unanswered as error:
            raise unanswered(self.worker, channel, error) from None
        if answer.code:
            raise Problem(answer.status, answer.code, answer.message, answer.mistakes)
        return answer.shown


class ChannelTail:
    """Lines of one worker for one listener."""

    def __init__(self, worker: Recipient, channel: Channel, number: int, text: str) -> None:
        self.worker, self.channel, self.number, self.text = worker, channel, number, text
        self.dropped = 0

    async def begin(self) -> None:
        try:
            await self.channel.ask(BeginTail(self.number, self.text), PATIENCE)
        except Unanswered as error:
            raise unanswered(self.worker, self.channel, error) from None

    async def next(self) -> bytes:
        try:
            lines = await self.channel.ask(NextLines(self.number), math.inf)
        except Unanswered as error:
            raise MemberGone(500, "internal", f"worker {self.worker.index}: {error}") from None
        self.dropped = lines.dropped
        return lines.text

    def end(self) -> None:
        self.channel.tell(EndTail(self.number))


class ChannelView:
    """Rows of one worker for one viewer."""

    def __init__(self, worker: Recipient, channel: Channel, question: BeginView) -> None:
        self.worker, self.channel, self.question = worker, channel, question

    async def begin(self) -> None:
        try:
            await self.channel.ask(self.question, PATIENCE)
        except Unanswered as error:
            raise unanswered(self.worker, self.channel, error) from None

    async def next(self) -> ViewPart:
        try:
            return await self.channel.ask(NextPart(self.question.number), math.inf)
        except Unanswered as error:
            raise MemberGone(500, "internal", f"worker {self.worker.index}: {error}") from None

    def end(self) -> None:
        self.channel.tell(EndView(self.question.number))

    def spend(self, seconds: float) -> None:
        """Charge nothing: the stream runs in the supervisor, which forwards no traffic."""


def unanswered(worker: Recipient, channel: Channel, error: Unanswered) -> Problem:
    """Return the problem of a worker without an answer: its process has ended or hangs."""
    gone = worker.channel is not channel or channel.closed  # closed: it has ended, or is about to
    return (MemberGone if gone else Problem)(500, "internal", f"worker {worker.index}: {error}")


def members_of(pool: Recipients) -> Sequence[Member]:
    models = trio.Lock()
    return [ChannelMember(worker, models) for worker in pool.workers]


LOOK = 1.0
"""Seconds between two polls of the workers' counters; the counts of the last interval are lost if a worker is
killed."""
LOOK_BY_LABEL = 10
"""Polls between two that also fetch the counts by label, which may be ten thousand numbers."""


class PoolMetrics:
    """Metrics of all processes of a pool. `collectors`: of the supervisor's own metrics. `labels`: counts by label of
    all processes, None if not configured."""

    def __init__(
        self, keeper: PoolRuleKeeper, pool: Recipients, collectors: Sequence[Collector], labels: ToldShares | None
    ) -> None:
        self.keeper, self.pool, self.collectors, self.labels = keeper, pool, list(collectors), labels
        self.latest: dict[int, list[MetricSamples]] = {}  # by worker
        self.lost: list[MetricSamples] = []  # of workers that have ended
        self.taking = trio.Lock()

    def worker_begins(self, worker: Recipient) -> None:
        """Keep the counts of the previous process when another one has replaced it."""
        self.lost = merge_metrics([self.lost, growing_metrics(self.latest.pop(worker.index, []))])
        if self.labels is not None:
            self.labels.begins(worker.index)

    async def follow(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Fetch the workers' counters every `LOOK` seconds, in case they end, until cancelled."""
        task_status.started()
        for look in count(1):
            await trio.sleep(LOOK)
            await self.measure(Measure(growing=True))
            if look % LOOK_BY_LABEL == 0:
                await self.measure_labels()

    async def scraped(self) -> bytes:
        """Return the supervisor's own metrics and all workers', added up, as Prometheus reads them."""
        return await joined(chain.from_iterable(map(exposition, await self.measured())))

    async def samples(self) -> list[MetricSamples]:
        """Return the supervisor's own metrics and all workers', added up."""
        found: list[MetricSamples] = []
        for registry in await self.measured():
            await in_turns(collect_into(found, registry))
        return found

    async def measured(self) -> list[CollectorRegistry]:
        """Ask all processes, and return the registries of their counters; each metric is in one registry only."""
        await self.measure(Measure())
        await self.measure_labels()
        await self.keeper.count()
        registries = [registry_of(MergedCollector(self.everybody))]
        if self.labels is not None:
            totals = self.labels.totals
            registries.append(registry_of(LabelCollector(totals), TelemetryCollector(totals, monotonic)))
        return registries

    async def measure_labels(self) -> None:
        """Fetch the workers' counts by label; answers of one worker are taken in the order of its questions."""
        if self.labels is None or not self.labels.totals.tables:
            return
        async with self.taking:
            begun = self.labels.begun.copy()
            for worker, share in await ask_all(self.pool, MeasureLabels(), PATIENCE):
                of_this_process = self.labels.begun[worker.index] == begun[worker.index]
                if not isinstance(share, Unanswered) and of_this_process:
                    await in_turns(self.labels.take(worker.index, share, monotonic()))

    async def measure(self, question: Measure) -> None:
        for worker, families in await ask_all(self.pool, question, PATIENCE):
            if not isinstance(families, Unanswered):
                self.latest[worker.index] = families

    def everybody(self) -> Iterable[Sequence[MetricSamples]]:
        running = {worker.index for worker in self.pool.workers if worker.channel is not None}
        yield collect_samples(self.collectors)
        yield self.lost
        for index, families in sorted(self.latest.items()):
            yield families if index in running else growing_metrics(families)
