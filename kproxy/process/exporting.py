"""Export to an OpenTelemetry collector, put together: where it goes, and when metrics are gathered for it.

Strategy. Without an `otlp` section nothing of this is imported. Numbers are gathered in the loop, in turns with the
traffic, by what a scrape gathers them by; putting them together, encoding and sending is the threads' work.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from time import monotonic

import trio
from structlog.typing import FilteringBoundLogger

from kproxy.config.document import Config, UpstreamTls
from kproxy.config.otlp import OtlpConfig, parse_endpoint
from kproxy.distribution import own_version
from kproxy.net.readiness import Readiness
from kproxy.net.server import Server
from kproxy.net.socket.tls import upstream_files
from kproxy.rules.select.match import text_test
from kproxy.sinks.merged_metrics import MetricSamples, collect_samples
from kproxy.sinks.otlp.export import OtlpCollector, OtlpCounters, OtlpSettings
from kproxy.sinks.otlp.http_sender import HttpTarget
from kproxy.sinks.otlp.metrics_export import MetricsExport
from kproxy.sinks.otlp.trace_sink import TraceSink
from kproxy.sinks.part_metrics import ProcessCollector

from .main import certificates_of, need_of
from .recording import instance

Gather = Callable[[], Awaitable[list[MetricSamples]]]
"""Gathers what a scrape would, but for what `ProcessCollector` tells."""


class OtlpExport:
    """Export of one process. `worker`: its number among several, None for the process that the user has started."""

    def __init__(self, config: Config, otlp: OtlpConfig, log: FilteringBoundLogger, worker: int | None = None) -> None:
        self.config, self.otlp, self.log = config, otlp, log
        self.counters = OtlpCounters()
        self.collector = OtlpCollector(self.counters)
        own = instance(config)
        self.settings = OtlpSettings(target_of(otlp, log), own if worker is None else f"{own}/{worker}", otlp.encoding)
        self.metrics: MetricsExport | None = None
        self.traces: TraceSink | None = None
        self.process = ProcessCollector(certificates_of(config))

    @property
    def logs(self) -> tuple[OtlpSettings, OtlpCounters] | None:
        """Return where the audit's events go; None if they do not."""
        return None if self.otlp.logs is None else (self.settings, self.counters)

    def make_metrics(self) -> None:
        """Make the export of metrics, if the config has one; of several processes, one exports all."""
        if self.otlp.metrics is not None:
            self.metrics = MetricsExport(self.settings, self.counters, self.log)

    def start_traces(self, server: Server) -> None:
        """Make spans of what passes from now on, if the config has that."""
        traces = self.otlp.traces
        if traces is not None:
            tests = [text_test(pattern) for pattern in traces.topics]
            self.traces = TraceSink(self.settings, self.counters, self.log, tests, traces.sample, traces.links)
            self.traces.start()
            server.taps.fanout.add(self.traces)

    async def close_traces(self) -> None:
        """Send the last spans, for a short time at most."""
        if self.traces is not None:
            await trio.to_thread.run_sync(self.traces.close)

    async def run(self, gather: Gather, readiness: Callable[[], Awaitable[Readiness]]) -> None:
        """Export metrics again and again, until cancelled."""
        if self.metrics is None or self.otlp.metrics is None:
            return
        self.metrics.start()
        due = monotonic()
        while True:
            due = max(due + self.otlp.metrics, monotonic())
            await trio.sleep(due - monotonic())
            await self.snapshot(gather, readiness)

    async def snapshot(self, gather: Gather, readiness: Callable[[], Awaitable[Readiness]]) -> None:
        """Have all numbers as they are now sent next."""
        if self.metrics is None:
            return
        self.process.ready, self.process.clusters = (await readiness()).flags(need_of(self.config))
        self.metrics.offer([*await gather(), *collect_samples([self.process])])

    async def close(self, gather: Gather, readiness: Callable[[], Awaitable[Readiness]]) -> None:
        """Send the last numbers, for a short time at most."""
        if self.metrics is not None:
            await self.snapshot(gather, readiness)
            await trio.to_thread.run_sync(self.metrics.close)


def target_of(otlp: OtlpConfig, log: FilteringBoundLogger) -> HttpTarget:
    """Return the collector's address. Raises InternalError when TLS files cannot be used."""
    endpoint, tls = parse_endpoint(otlp.endpoint), otlp.tls or UpstreamTls()
    headers = [("user-agent", f"kproxy/{own_version()}")]
    headers += [(name, value.get_secret_value()) for name, value in otlp.headers.items()]
    context = upstream_files(tls, log).get if endpoint.tls else None
    return HttpTarget(endpoint.host, endpoint.port, endpoint.prefix, headers, context, tls.server_name, otlp.timeout)
