"""Metrics of a pool: what the supervisor counts itself, and what workers count, added up over their restarts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import trio
from prometheus_client import CollectorRegistry
from prometheus_client.registry import Collector

from kproxy.admin.backend import joined
from kproxy.process.workers.broadcast import Recipient, Recipients, ask_all
from kproxy.process.workers.channel import Unanswered
from kproxy.process.workers.pool_rule_keeper import PoolRuleKeeper
from kproxy.sinks.merged_metrics import MergedCollector, MetricSamples, collect_samples, growing_metrics, merge_metrics
from kproxy.sinks.metrics import exposition

from .channel_member import PATIENCE
from .messages import Measure

LOOK = 1.0
"""Seconds between two looks at what workers have counted: so much is lost at most when one is killed."""


class PoolMetrics:
    """Metrics of all processes of a pool. `collectors`: of what the supervisor counts itself."""

    def __init__(self, keeper: PoolRuleKeeper, pool: Recipients, collectors: Sequence[Collector]) -> None:
        self.keeper, self.pool, self.collectors = keeper, pool, collectors
        self.latest: dict[int, list[MetricSamples]] = {}  # by worker
        self.lost: list[MetricSamples] = []  # of workers that have ended

    def worker_begins(self, worker: Recipient) -> None:
        """Keep what the process before had counted: another one is in the worker's place."""
        self.lost = merge_metrics([self.lost, growing_metrics(self.latest.pop(worker.index, []))])

    async def follow(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Fetch what workers have counted every `LOOK` seconds, should they end, until cancelled."""
        task_status.started()
        while True:
            await trio.sleep(LOOK)
            await self.measure(Measure(growing=True))

    async def scraped(self) -> bytes:
        """Return the supervisor's own metrics and all workers', added up."""
        await self.measure(Measure())
        await self.keeper.count()
        registry = CollectorRegistry(auto_describe=False)
        registry.register(MergedCollector(self.everybody))
        return await joined(exposition(registry))

    async def measure(self, question: Measure) -> None:
        for worker, families in await ask_all(self.pool, question, PATIENCE):
            if not isinstance(families, Unanswered):
                self.latest[worker.index] = families

    def everybody(self) -> Iterable[Sequence[MetricSamples]]:
        """Yield the metrics of all processes that are and were."""
        running = {worker.index for worker in self.pool.workers if worker.channel is not None}
        yield collect_samples(self.collectors)
        yield self.lost
        for index, families in sorted(self.latest.items()):
            yield families if index in running else growing_metrics(families)
