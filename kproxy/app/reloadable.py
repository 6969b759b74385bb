"""Parts of a process that a reload of the config may add, change or remove: counting by label, clients' own metrics,
schema registries, the export to a collector.

Strategy. Each part has one method for that, `prepare(config)`: it does everything that may fail or take long, in a
thread, and returns a callback that applies the config in the loop and cannot fail. The start works the same way: a part
is made, and its modules are imported, only when a config first needs it. A part stays when it is disabled, so that its
counters are not reset.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING

from structlog.typing import FilteringBoundLogger

from kproxy.app.config.document import Config
from kproxy.record.metrics.totals import MetricsConfig
from kproxy.runtime.io.reactor import Reactor
from kproxy.runtime.io.scheduler import Background
from kproxy.runtime.server import Server
from kproxy.session.counters import Counters

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

    from kproxy.app.workers.pool_members import PoolMetrics
    from kproxy.app.workers.rule_messages import PoolRuleKeeper
    from kproxy.app.workers.worker_pool import WorkerPool
    from kproxy.record.metrics.worker_totals import WorkerTotals
    from kproxy.runtime.upstreams.registry import Registries

    from .label_metrics import ClientTelemetry, LabelMetrics
    from .otlp import FindReadiness, OtlpExport
    from .recording import Audit

Commit = Callable[[], object]
"""Follows a config that is in force, in the loop; cannot fail."""


class ProcessParts:
    """Parts of a process that carries traffic. `worker`: its number among several, None if it is the only one."""

    def __init__(
        self, server: Server, counters: Counters, log: FilteringBoundLogger, *, worker: int | None = None
    ) -> None:
        self.server, self.counters, self.log, self.worker = server, counters, log, worker
        self.label_metrics: LabelMetrics | None = None
        self.telemetry: ClientTelemetry | None = None
        self.otlp: OtlpExport | None = None
        self.audit: Audit | None = None
        self.begun = False
        self.collectors: list[Collector] = []
        """Collectors of the parts' metrics."""
        self.on_collector: Callable[[Collector], object] = lambda collector: None
        """Called with each new collector."""

    def prepare(self, config: Config) -> Commit:
        """Return a callback that applies this config to all parts. Blocks. Raises UnusableSetting; nothing has changed
        then."""
        steps: list[Commit] = []
        label_metrics = self.label_metrics
        if label_metrics is None and config.exports_labels:
            from .label_metrics import LabelMetrics

            label_metrics = LabelMetrics(self.server, tells=self.worker is None)
        if label_metrics is not None:
            steps.append(label_metrics.prepare(config))
        totals = None if label_metrics is None else label_metrics.totals
        telemetry = self.telemetry
        if telemetry is None and config.telemetry is not None:
            from .label_metrics import ClientTelemetry

            telemetry = ClientTelemetry(config.telemetry, self.server, self.counters, totals)
        if telemetry is not None:
            steps.append(telemetry.prepare(config.telemetry, totals))
        registries = self.server.registries
        if registries is None and config.registries:
            from kproxy.runtime.upstreams.registry import Registries

            registries = Registries(self.server.reactor)
        if registries is not None:
            steps.append(registries.prepare(config.registries))
        otlp = self.otlp
        if otlp is not None:
            steps.append(otlp.prepare(config))
        elif config.otlp is not None:
            from .otlp import OtlpExport

            otlp = OtlpExport(config, config.otlp, self.server.reactor, self.log, self.worker, self.server.taps.fanout)

        def commit() -> None:
            self.take(label_metrics, telemetry, otlp, registries)
            for step in steps:
                step()

        return commit

    def take(
        self, label_metrics: LabelMetrics | None, telemetry: ClientTelemetry | None, otlp: OtlpExport | None,
        registries: Registries | None,
    ) -> None:  # fmt: skip
        new_labels, new_export = label_metrics is not self.label_metrics, otlp is not self.otlp
        known = self.collectors
        self.label_metrics, self.telemetry, self.otlp = label_metrics, telemetry, otlp
        self.record_in(self.audit)
        # otherwise the supervisor publishes those of all workers
        if new_labels and label_metrics is not None and self.worker is None:
            from kproxy.record.metrics.worker_totals import LabelCollector, TelemetryCollector

            self.collectors = [*self.collectors, LabelCollector(label_metrics.totals),
                               TelemetryCollector(label_metrics.totals, monotonic)]  # fmt: skip
        if new_export and otlp is not None:
            self.collectors = [*self.collectors, otlp.collector]
        if registries is not None and registries is not self.server.registries:
            self.server.registries = registries
            self.collectors = [*self.collectors, registries]
        for collector in self.collectors[len(known) :]:
            self.on_collector(collector)
        if self.begun:
            if label_metrics is not None and new_labels:
                label_metrics.start()
            if otlp is not None and new_export:
                otlp.start_traces()

    def record_in(self, audit: Audit | None) -> None:
        """Count and record in this audit, if configured."""
        self.audit = audit
        if audit is not None and self.label_metrics is not None:
            self.label_metrics.audit = audit.sink
        if audit is not None and self.telemetry is not None:
            self.telemetry.record_in(audit.take_push)

    def start(self) -> None:
        self.begun = True
        if self.label_metrics is not None:
            self.label_metrics.start()
        if self.otlp is not None:
            self.otlp.start_traces()


# Parts of a supervisor that a reload of the config may add, change or remove: the metrics of all workers, their counts
# by label, and the export of both. `Parts` does this for a process that carries traffic.
class PoolParts:
    """Parts of the process that is the supervisor of these workers. `own`: makes the collectors of its own metrics."""

    def __init__(
        self, keeper: PoolRuleKeeper, pool: WorkerPool, reactor: Reactor, log: FilteringBoundLogger,
        own: Callable[[], list[Collector]], readiness: FindReadiness,
    ) -> None:  # fmt: skip
        self.keeper, self.pool, self.reactor, self.log = keeper, pool, reactor, log
        self.own, self.readiness = own, readiness
        self.metrics: PoolMetrics | None = None
        self.labels: WorkerTotals | None = None
        self.otlp: OtlpExport | None = None
        self.begun = False

    def prepare(self, config: Config) -> Commit:
        """Return a callback that applies this config to all parts. Blocks. Raises UnusableSetting; nothing has changed
        then."""
        steps: list[Commit] = []
        tells, labels, otlp = config.exports_labels, self.labels, self.otlp
        if labels is None and tells:
            from kproxy.record.metrics.totals import LabelTotals
            from kproxy.record.metrics.worker_totals import WorkerTotals

            labels = WorkerTotals(LabelTotals(MetricsConfig(), rests=True))
        if labels is not None:
            telemetry = config.telemetry if tells else None
            steps.append(labels.totals.prepare(config.metrics if tells else MetricsConfig(), telemetry))
        if otlp is not None:
            steps.append(otlp.prepare(config))
        elif config.otlp is not None:
            from .otlp import OtlpExport

            otlp = OtlpExport(config, config.otlp, self.reactor, self.log)
        if config.measured:
            import kproxy.app.workers.pool_members
            import kproxy.record.component_collectors  # noqa: F401

        def commit() -> None:
            self.take(labels, otlp, measured=config.measured)
            for step in steps:
                step()

        return commit

    def take(self, labels: WorkerTotals | None, otlp: OtlpExport | None, *, measured: bool) -> None:
        if self.metrics is not None and otlp is not None and otlp is not self.otlp:
            self.metrics.collectors.append(otlp.collector)
        self.labels, self.otlp = labels, otlp
        if self.metrics is not None:
            self.metrics.labels = labels
        if measured and self.begun:
            self.measure()

    def start(self, config: Config) -> None:
        """Start to ask workers and to export, as this config defines."""
        self.begun = True
        if config.measured:
            self.measure()

    def measure(self) -> PoolMetrics:
        """Return the metrics of all workers, made at the first call."""
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
