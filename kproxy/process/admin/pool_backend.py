"""Backend of the supervisor's admin API: all workers, and what the supervisor itself counts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from time import monotonic
from typing import Any, TypeVar

import trio
from prometheus_client import CollectorRegistry
from prometheus_client.registry import Collector
from structlog.typing import FilteringBoundLogger

from kproxy.admin.backend import joined
from kproxy.admin.problem import Problem
from kproxy.net.driven import HostPort
from kproxy.net.readiness import ClusterNeed, Readiness
from kproxy.process.workers.broadcast import Recipient, Recipients, ask_all
from kproxy.process.workers.channel import Question, Unanswered
from kproxy.process.workers.pool_rule_keeper import PoolRuleKeeper
from kproxy.sinks.merged_metrics import MergedCollector, MetricSamples, collect_samples, growing_metrics, merge_metrics
from kproxy.sinks.metrics import exposition

from .messages import Measure, Operate, Operated
from .pool_captures import PoolCaptures

PATIENCE = 5.0
"""Seconds for an answer of a worker: an operator waits that long."""
LOOK = 1.0
"""Seconds between two looks at what workers have counted: so much is lost at most when one is killed."""

A = TypeVar("A")


@dataclass(eq=False)
class PoolBackend:
    """Backend of a pool of workers. `asked_readiness`: what is missing, of the supervisor and of all workers.
    `collectors`: of what it counts itself. `addresses`: where clients of a listener reach those of these nodes that
    they have been told of."""

    keeper: PoolRuleKeeper
    pool: Recipients
    asked_readiness: Callable[[], Awaitable[Readiness]]
    collectors: Sequence[Collector]
    captures: PoolCaptures
    addresses: Callable[[str, Mapping[int, HostPort]], Mapping[int, HostPort]]
    log: FilteringBoundLogger
    need: ClusterNeed = "any"
    began: float = field(default_factory=monotonic)
    latest: dict[int, list[MetricSamples]] = field(default_factory=dict)  # by worker
    lost: list[MetricSamples] = field(default_factory=list)  # of workers that have ended
    listeners: set[int] = field(default_factory=set)
    numbers: count[int] = field(default_factory=count)

    # ---- for the pool

    def worker_begins(self, worker: Recipient) -> None:
        """Keep what the process before had counted: another one is in the worker's place."""
        self.lost = merge_metrics([self.lost, growing_metrics(self.latest.pop(worker.index, []))])

    async def follow(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Fetch what workers have counted every `LOOK` seconds, should they end, until cancelled."""
        task_status.started()
        while True:
            await trio.sleep(LOOK)
            await self.measure(Measure(growing=True))

    # ---- for the application

    async def readiness(self) -> Readiness:
        """Return what is missing: every worker has to be ready."""
        return await self.asked_readiness()

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

    # ---- for operations

    async def operate_all(self, name: str, query: dict[str, Any]) -> list[Any]:
        """Return the answer of each worker. Raises Problem when one refuses, or says nothing."""
        return [shown(said) for _, said in await self.ask(Operate(name, {}, query))]

    async def ask(self, question: Question[A], patience: float = PATIENCE) -> list[tuple[Recipient, A]]:
        """Ask all workers. Raises Problem when one says nothing."""
        answers = []
        for worker, answer in await ask_all(self.pool, question, patience):
            if isinstance(answer, Unanswered):
                raise Problem(500, "internal", f"worker {worker.index}: {answer}")
            answers.append((worker, answer))
        return answers

    async def operate(self, index: int, question: Operate) -> Operated:
        """Ask one worker to do an operation. Raises Problem when it is not running."""
        worker = self.pool.workers[index]
        if worker.channel is None:
            raise Problem(500, "internal", f"worker {index} is not running")
        try:
            return await worker.channel.ask(question, PATIENCE)
        except Unanswered as error:
            raise Problem(500, "internal", f"worker {index}: {error}") from None


def shown(answer: Operated) -> Any:
    """Return the JSON of an answer. Raises the Problem that it is."""
    if answer.code:
        raise Problem(answer.status, answer.code, answer.message)
    return answer.shown
