"""Parts of a process that the config makes come, change and go while it runs: counting by label, clients' own metrics,
the export to a collector.

Strategy. Each part has one method for that, `ready_for(config)`: it does all that may fail or take long, in a thread,
and returns what follows the config from then on, which is called in the loop and cannot fail. A start is no other case:
a part that no config has asked for yet is not there, and nothing of it is imported. One that was there stays, so that
no counter begins anew.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING

from structlog.typing import FilteringBoundLogger

from kproxy.app.config.document import Config
from kproxy.runtime.server import Server
from kproxy.session.counters import Counters

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

    from .exporting import OtlpExport
    from .labelling import Labelling
    from .recording import Audit
    from .telemetry import ClientTelemetry

Follow = Callable[[], object]
"""Follows a config that is in force, in the loop; cannot fail."""


class ProcessParts:
    """Parts of a process that carries traffic. `worker`: its number among several, None if it is the only one."""

    def __init__(
        self, server: Server, counters: Counters, log: FilteringBoundLogger, *, worker: int | None = None
    ) -> None:
        self.server, self.counters, self.log, self.worker = server, counters, log, worker
        self.labelling: Labelling | None = None
        self.telemetry: ClientTelemetry | None = None
        self.otlp: OtlpExport | None = None
        self.audit: Audit | None = None
        self.begun = False
        self.collectors: list[Collector] = []
        """Collectors of what the parts count."""
        self.on_collector: Callable[[Collector], object] = lambda collector: None
        """Told of each collector that comes."""

    def ready_for(self, config: Config) -> Follow:
        """Return what has all parts follow this config. Blocks. Raises UnusableSetting; nothing has changed then."""
        steps: list[Follow] = []
        labelling = self.labelling
        if labelling is None and config.tells_labels:
            from .labelling import Labelling

            labelling = Labelling(self.server, tells=self.worker is None)
        if labelling is not None:
            steps.append(labelling.ready_for(config))
        totals = None if labelling is None else labelling.totals
        telemetry = self.telemetry
        if telemetry is None and config.telemetry is not None:
            from .telemetry import ClientTelemetry

            telemetry = ClientTelemetry(config.telemetry, self.server, self.counters, totals)
        if telemetry is not None:
            steps.append(telemetry.ready_for(config.telemetry, totals))
        otlp = self.otlp
        if otlp is not None:
            steps.append(otlp.ready_for(config))
        elif config.otlp is not None:
            from .exporting import OtlpExport

            otlp = OtlpExport(config, config.otlp, self.server.reactor, self.log, self.worker, self.server.taps.fanout)

        def follow() -> None:
            self.take(labelling, telemetry, otlp)
            for step in steps:
                step()

        return follow

    def take(self, labelling: Labelling | None, telemetry: ClientTelemetry | None, otlp: OtlpExport | None) -> None:
        new_labels, new_export = labelling is not self.labelling, otlp is not self.otlp
        known = self.collectors
        self.labelling, self.telemetry, self.otlp = labelling, telemetry, otlp
        self.record_in(self.audit)
        if new_labels and labelling is not None and self.worker is None:  # else the supervisor tells of all workers
            from kproxy.record.metrics.label_collector import LabelCollector
            from kproxy.record.metrics.telemetry_collector import TelemetryCollector

            self.collectors = [*self.collectors, LabelCollector(labelling.totals),
                               TelemetryCollector(labelling.totals, monotonic)]  # fmt: skip
        if new_export and otlp is not None:
            self.collectors = [*self.collectors, otlp.collector]
        for collector in self.collectors[len(known) :]:
            self.on_collector(collector)
        if self.begun:
            if labelling is not None and new_labels:
                labelling.start()
            if otlp is not None and new_export:
                otlp.start_traces()

    def record_in(self, audit: Audit | None) -> None:
        """Count and record in this audit, if there is one."""
        self.audit = audit
        if audit is not None and self.labelling is not None:
            self.labelling.audit = audit.sink
        if audit is not None and self.telemetry is not None:
            self.telemetry.record_in(audit.take_push)

    def start(self) -> None:
        self.begun = True
        if self.labelling is not None:
            self.labelling.start()
        if self.otlp is not None:
            self.otlp.start_traces()
