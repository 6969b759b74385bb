"""Parts of a supervisor that the config makes come, change and go while it runs: the metrics of all workers, what they
count by label, and the export of both. What `parts.py` is for a process that carries traffic.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kproxy.app.config.document import Config
from kproxy.app.workers.pool_rule_keeper import PoolRuleKeeper
from kproxy.app.workers.worker_pool import WorkerPool
from kproxy.record.metrics.config import MetricsConfig
from kproxy.runtime.io.background import Background
from kproxy.runtime.io.reactor import Reactor

from .parts import Follow

if TYPE_CHECKING:
    from prometheus_client.registry import Collector
    from structlog.typing import FilteringBoundLogger

    from kproxy.app.workers.pool_members import PoolMetrics
    from kproxy.record.metrics.shares import ToldShares

    from .exporting import FindReadiness, OtlpExport


class PoolParts:
    """Parts of the process that is the supervisor of these workers. `own`: makes the collectors of what it counts
    itself."""

    def __init__(
        self, keeper: PoolRuleKeeper, pool: WorkerPool, reactor: Reactor, log: FilteringBoundLogger,
        own: Callable[[], list[Collector]], readiness: FindReadiness,
    ) -> None:  # fmt: skip
        self.keeper, self.pool, self.reactor, self.log = keeper, pool, reactor, log
        self.own, self.readiness = own, readiness
        self.metrics: PoolMetrics | None = None
        self.labels: ToldShares | None = None
        self.otlp: OtlpExport | None = None
        self.begun = False

    def ready_for(self, config: Config) -> Follow:
        """Return what has all parts follow this config. Blocks. Raises UnusableSetting; nothing has changed then."""
        steps: list[Follow] = []
        tells, labels, otlp = config.tells_labels, self.labels, self.otlp
        if labels is None and tells:
            from kproxy.record.metrics.shares import ToldShares
            from kproxy.record.metrics.totals import LabelTotals

            labels = ToldShares(LabelTotals(MetricsConfig(), rests=True))
        if labels is not None:
            telemetry = config.telemetry if tells else None
            steps.append(labels.totals.ready_for(config.metrics if tells else MetricsConfig(), telemetry))
        if otlp is not None:
            steps.append(otlp.ready_for(config))
        elif config.otlp is not None:
            from .exporting import OtlpExport

            otlp = OtlpExport(config, config.otlp, self.reactor, self.log)
        if config.measured:
            import kproxy.app.workers.pool_members
            import kproxy.record.component_collectors  # noqa: F401

        def follow() -> None:
            self.take(labels, otlp, measured=config.measured)
            for step in steps:
                step()

        return follow

    def take(self, labels: ToldShares | None, otlp: OtlpExport | None, *, measured: bool) -> None:
        if self.metrics is not None and otlp is not None and otlp is not self.otlp:
            self.metrics.collectors.append(otlp.collector)
        self.labels, self.otlp = labels, otlp
        if self.metrics is not None:
            self.metrics.labels = labels
        if measured and self.begun:
            self.measure()

    def start(self, config: Config) -> None:
        """Begin to ask workers, and to export, as this config says."""
        self.begun = True
        if config.measured:
            self.measure()

    def measure(self) -> PoolMetrics:
        """Return the metrics of all workers, made when somebody is told of them for the first time."""
        if self.metrics is None:
            from kproxy.app.workers.pool_members import PoolMetrics

            own = self.own()
            if self.otlp is not None:
                own.append(self.otlp.collector)
            self.metrics = PoolMetrics(self.keeper, self.pool, own, self.labels)
            self.pool.on_worker.append(self.metrics.worker_begins)
            Background(self.reactor.spawn, self.metrics.follow)
        if self.otlp is not None:
            self.otlp.start_metrics(self.metrics.samples, self.readiness)
        return self.metrics

    async def close(self) -> None:
        """Send the last numbers, for a short time at most."""
        if self.otlp is not None:
            await self.otlp.close()
