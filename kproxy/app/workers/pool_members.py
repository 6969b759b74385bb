"""Workers of a pool as members of the admin API, and the metrics of the supervisor and all workers, added up over
restarts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain, count
from time import monotonic
from typing import Any, cast

import trio
from prometheus_client.registry import Collector, CollectorRegistry

from kproxy.admin.backend import joined
from kproxy.admin.problem import MemberGone, Problem
from kproxy.admin.worker_api import Member
from kproxy.app.metrics import WorkerMetrics
from kproxy.record.metrics.merged import (
    MergedCollector,
    MetricSamples,
    collect_into,
    collect_samples,
    growing_metrics,
    merge_metrics,
)
from kproxy.record.metrics.traffic import exposition, registry_of
from kproxy.record.metrics.worker_totals import LabelCollector, TelemetryCollector, WorkerTotals
from kproxy.runtime.io.channel import Channel, Streams, Unanswered, hint, result_decoder
from kproxy.runtime.io.scheduler import in_turns

from .pool_worker import PoolWorker
from .rule_messages import PoolRuleKeeper
from .worker_pool import LatestAnswers, WorkerPool, call_all


class RemoteMember:
    """Worker of a pool as a `Member`: each of its remote methods calls the worker's member."""

    def __init__(self, worker: PoolWorker) -> None:
        self.worker = worker

    @property
    def index(self) -> int:
        return self.worker.index

    @property
    def process(self) -> Channel | None:
        return self.worker.channel if self.worker.ready else None

    def __getattr__(self, name: str) -> Any:
        method = getattr(Member, name)
        (kind,) = hint(method, "return")
        return partial(RemoteStream if hasattr(kind, "next") else self.call, self, method)

    @staticmethod
    async def call(member: RemoteMember, method: Callable[..., Any], *arguments: Any) -> Any:
        """Return the result of the worker's member. Raises Problem."""
        channel = member.worker.channel
        if channel is None:
            raise MemberGone(503, "worker_gone", f"worker {member.index} is not running")
        return await member.result(channel, result_decoder(method), method, arguments)

    async def result(
        self, channel: Channel, decode: Callable[[Any], Any], method: Callable[..., Any], arguments: Sequence[Any]
    ) -> Any:
        try:
            return await channel.result(decode, method, arguments)
        except Unanswered as error:
            if "status" in error.details:
                raise Problem(message=str(error), **error.details) from None
            gone = self.worker.channel is not channel or channel.closed  # closed: it has ended, or is about to
            status, code = (500, "internal") if error.raised else (503, "worker_gone")
            raise (MemberGone if gone else Problem)(status, code, f"worker {self.index}: {error}") from None


class RemoteStream:
    """Stream of one worker's process, such as `TailLines` and `ViewSource`. `method` returns it there."""

    def __init__(self, member: RemoteMember, method: Callable[..., Any], *arguments: Any) -> None:
        assert member.worker.channel is not None, "only a running process has streams"
        self.member, self.channel, self.number = member, member.worker.channel, next(member.worker.channel.numbers)
        self.method, self.arguments = method, arguments
        (kind,) = hint(method, "return")
        self.decode = result_decoder(kind.next)

    async def begin(self) -> None:
        arguments = self.number, self.method.__qualname__, self.arguments
        await self.member.result(self.channel, result_decoder(Streams.begin), Streams.begin, arguments)

    async def next(self) -> Any:
        return await self.member.result(self.channel, self.decode, Streams.next, [self.number])

    def end(self) -> None:
        self.channel.send(Streams.end, self.number)

    def spend(self, seconds: float) -> None:
        """Charge nothing: the supervisor forwards no traffic."""


def members_of(pool: WorkerPool) -> list[Member]:
    return [cast("Member", RemoteMember(worker)) for worker in pool.workers]


POLL_EVERY = 1.0
"""Seconds between two polls of the workers' counters; the counts of the last interval are lost if a worker is
killed."""
POLLS_BY_LABEL = 10
"""Polls between two that also fetch the counts by label, which may be ten thousand numbers."""


class PoolMetrics:
    """Metrics of all processes of a pool. `collectors`: of the supervisor's own metrics. `labels`: counts by label of
    all processes, None if not configured."""

    def __init__(
        self, keeper: PoolRuleKeeper, pool: WorkerPool, collectors: Sequence[Collector], labels: WorkerTotals | None
    ) -> None:
        self.keeper, self.pool, self.collectors, self.labels = keeper, pool, list(collectors), labels
        self.latest = LatestAnswers[list[MetricSamples]]()
        self.lost: list[MetricSamples] = []  # of workers that have ended
        self.taking = trio.Lock()

    def worker_begins(self, worker: PoolWorker) -> None:
        """Keep the counts of the previous process when another one has replaced it."""
        self.lost = merge_metrics([self.lost, growing_metrics(self.latest.by_worker.pop(worker.index, []))])
        if self.labels is not None:
            self.labels.begins(worker.index)

    async def follow(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Fetch the workers' counters every `POLL_EVERY` seconds, in case they end, until cancelled."""
        task_status.started()
        for poll in count(1):
            await trio.sleep(POLL_EVERY)
            await self.measure(growing=True)
            if poll % POLLS_BY_LABEL == 0:
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
        await self.measure(growing=False)
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
            for worker, share in await call_all(self.pool, WorkerMetrics.measure_labels):
                of_this_process = self.labels.begun[worker.index] == begun[worker.index]
                if not isinstance(share, Unanswered) and of_this_process:
                    await in_turns(self.labels.take(worker.index, share, monotonic()))

    async def measure(self, *, growing: bool) -> None:
        await self.latest.ask(self.pool, WorkerMetrics.measure, growing)

    def everybody(self) -> Iterable[Sequence[MetricSamples]]:
        running = {worker.index for worker in self.pool.workers if worker.channel is not None}
        yield collect_samples(self.collectors)
        yield self.lost
        for index, families in sorted(self.latest.by_worker.items()):
            yield families if index in running else growing_metrics(families)
