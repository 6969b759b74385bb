"""Export to an OpenTelemetry collector, put together: the destination, and the schedule for gathering metrics.

Strategy. Without an `otlp` section none of these modules is imported. Metrics are gathered in the loop, in turns with
the traffic, by the functions of a scrape; threads merge, encode and send them.

A reload may add, change or remove the section. Exporters of signals that stay enabled continue, and their queues go to
the destination of the new section. An exporter that is no longer needed sends its queue within some seconds, and ends.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from time import monotonic

import trio
from structlog.typing import FilteringBoundLogger

from kproxy.app.config.document import Config
from kproxy.base.distribution import own_version
from kproxy.base.errors import InternalError, UnusableSetting
from kproxy.record.component_collectors import ProcessCollector
from kproxy.record.fanout import Fanout
from kproxy.record.metrics.merged import MetricSamples, collect_samples
from kproxy.record.otlp.config import OtlpConfig, parse_endpoint
from kproxy.record.otlp.export import HttpTarget, OtlpCollector, OtlpCounters, OtlpSettings, OtlpWay
from kproxy.record.otlp.metrics_export import MetricsExport
from kproxy.record.otlp.payload import MissingOtlp, RequestEncoder, Signal
from kproxy.record.otlp.trace_sink import TraceSink
from kproxy.rules.select.match import text_test
from kproxy.rules.values.tls import UpstreamTls
from kproxy.runtime.io.reactor import Reactor
from kproxy.runtime.io.scheduler import Background
from kproxy.runtime.io.tls import upstream_files
from kproxy.runtime.readiness import Readiness

from .main import certificates_of, instance, need_of

Gather = Callable[[], Awaitable[list[MetricSamples]]]
"""Gathers the metrics of a scrape, without those of `ProcessCollector`."""
FindReadiness = Callable[[], Awaitable[Readiness]]
WAYS = ("endpoint", "headers", "tls", "encoding", "timeout", "semconv")
"""Fields that define the connection to the collector, and the form of requests."""


class OtlpExport:
    """Export of one process. `worker`: its number among several, None for the main process.

    `fanout`: source of the exchanges that get spans, None without traffic. Raises UnusableSetting when it is made.
    """

    def __init__(
        self, config: Config, otlp: OtlpConfig, reactor: Reactor, log: FilteringBoundLogger, worker: int | None = None,
        fanout: Fanout | None = None,
    ) -> None:  # fmt: skip
        self.config, self.reactor, self.log, self.fanout = config, reactor, log, fanout
        self.otlp: OtlpConfig | None = otlp
        self.counters = OtlpCounters()
        self.collector = OtlpCollector(self.counters)
        own = instance(config)
        way = way_of(otlp, log)
        self.settings = OtlpSettings(way, own if worker is None else f"{own}/{worker}")
        self.tests = topic_tests(otlp)
        """Filters of the topics that get spans."""
        self.began = ""
        """Time of the first export, as OTLP's start time: counters are never reset, even if an exporter is replaced."""
        self.metrics: MetricsExport | None = None
        self.traces: TraceSink | None = None
        self.process = ProcessCollector(certificates_of(config))
        self.sources: tuple[Gather, FindReadiness] | None = None
        """Functions that gather metrics, in the process that exports them."""
        self.gathering: Background | None = None
        self.leaving: set[trio.Event] = set()
        """Set when the replaced exporters have ended."""
        self.started = False

    @property
    def logs(self) -> tuple[OtlpSettings, OtlpCounters] | None:
        """Return the destination of the audit's events; None if they are not exported."""
        return None if self.otlp is None or self.otlp.logs is None else (self.settings, self.counters)

    def prepare(self, config: Config) -> Callable[[], None]:
        """Return a callback that exports as this config defines, and cannot fail. Raises UnusableSetting."""
        before, otlp = self.otlp, config.otlp
        alike = (
            before is not None and otlp is not None and all(getattr(before, one) == getattr(otlp, one) for one in WAYS)
        )
        way = None if otlp is None or alike else way_of(otlp, self.log)
        tests = topic_tests(otlp)

        def commit() -> None:
            earlier = None if self.otlp is None else self.otlp.metrics
            self.config, self.otlp, self.tests = config, otlp, tests
            self.process.certificates = certificates_of(config)
            if way is not None:
                self.settings.use(way)
            if self.started:
                self.follow_traces()
                wanted = None if otlp is None else otlp.metrics
                if earlier != wanted or (wanted is None) != (self.metrics is None):
                    self.follow_metrics()

        return commit

    # ---- traces

    def start_traces(self) -> None:
        """Start to make spans of exchanges, if the config in force enables traces."""
        self.started = True
        self.follow_traces()

    def follow_traces(self) -> None:
        """Make spans of exchanges with matching topics, as the config in force defines."""
        wanted = None if self.otlp is None else self.otlp.traces
        if self.fanout is None:
            return
        if wanted is None:
            if self.traces is not None:
                self.fanout.remove(self.traces, slowly=True)
                self.close_later(self.traces.close)
                self.traces = None
        elif self.traces is not None:
            self.traces.use(self.tests, wanted.sample, wanted.links)
        else:
            traces = TraceSink(
                self.settings, self.counters, self.log, self.tests, wanted.sample, wanted.links, self.fanout.pictures
            )
            if self.has_begun("traces", traces.start, traces.close):
                self.traces = traces
                self.fanout.add(traces, slowly=True)

    async def close_traces(self) -> None:
        """Send the last spans, for a short time at most."""
        if self.traces is not None:
            await trio.to_thread.run_sync(self.traces.close)

    # ---- metrics

    def start_metrics(self, gather: Gather, readiness: FindReadiness) -> None:
        """Start to export these metrics, if the config in force enables that; with several processes, one exports
        all."""
        if self.sources is None:
            self.started, self.sources = True, (gather, readiness)
            self.follow_metrics()

    def follow_metrics(self) -> None:
        """Export metrics at the interval of the config in force, counted from this call."""
        every = None if self.otlp is None else self.otlp.metrics
        if self.gathering is not None:
            self.gathering.stop()
            self.gathering = None
        if self.sources is None:
            return
        if every is None:
            if self.metrics is not None:
                self.close_metrics_later(self.metrics, *self.sources)
                self.metrics = None
            return
        if self.metrics is None:
            metrics = MetricsExport(self.settings, self.counters, self.log)
            self.began = metrics.began = self.began or metrics.began
            if not self.has_begun("metrics", metrics.start, metrics.close):
                return
            self.metrics = metrics
        self.gathering = Background(self.reactor.spawn, partial(self.run, self.metrics, every, *self.sources))

    async def run(self, metrics: MetricsExport, every: float, gather: Gather, readiness: FindReadiness) -> None:
        """Export metrics periodically, until cancelled."""
        due = monotonic()
        while True:
            due = max(due + every, monotonic())
            await trio.sleep(due - monotonic())
            await self.snapshot(metrics, gather, readiness)

    async def snapshot(self, metrics: MetricsExport, gather: Gather, readiness: FindReadiness) -> None:
        self.process.ready, self.process.clusters = (await readiness()).flags(need_of(self.config))
        await trio.to_thread.run_sync(self.process.read_expiries, self.process.files)
        metrics.offer([*await gather(), *collect_samples([self.process])])

    # ---- beginning and end

    def has_begun(self, signal: Signal, start: Callable[[], None], close: Callable[[], None]) -> bool:
        """Start the threads of a signal. If the system has no threads left, that is logged: the config is already in
        force, without this signal. The next config tries again."""
        try:
            start()
        except RuntimeError as error:
            self.log.error(
                "otlp: nothing is exported, since a thread cannot be started", signal=signal, error=str(error)
            )
            self.close_later(close)
            return False
        return True

    def close_later(self, close: Callable[[], None]) -> None:
        """Let an exporter that is no longer needed send its queue, in the background."""

        async def last() -> None:
            await trio.to_thread.run_sync(close)

        self._run_last(last)

    def _run_last(self, last: Callable[[], Awaitable[None]]) -> None:
        done = trio.Event()

        async def run() -> None:
            try:
                await last()
            finally:
                done.set()
                self.leaving.discard(done)

        self.leaving.add(done)
        self.reactor.spawn(run)

    def close_metrics_later(self, metrics: MetricsExport, gather: Gather, readiness: FindReadiness) -> None:
        """Send all metrics for the last time, in the background."""

        async def last() -> None:
            await self.snapshot(metrics, gather, readiness)
            await trio.to_thread.run_sync(metrics.close)

        self._run_last(last)

    async def close(self) -> None:
        """Send the last metrics, for a short time at most, and wait for exporters that are ending."""
        if self.metrics is not None and self.sources is not None:
            await self.snapshot(self.metrics, *self.sources)
            await trio.to_thread.run_sync(self.metrics.close)
        for done in list(self.leaving):
            await done.wait()


def topic_tests(otlp: OtlpConfig | None) -> Sequence[Callable[[str], bool]]:
    """Return the filters of the topics that get spans. Blocks: there may be thousands of expressions."""
    return [] if otlp is None or otlp.traces is None else [text_test(one) for one in otlp.traces.topics]


def way_of(otlp: OtlpConfig, log: FilteringBoundLogger) -> OtlpWay:
    """Return the settings of the connection to the collector. Blocks. Raises UnusableSetting when TLS files or the
    encoder cannot be used."""
    endpoint, tls = parse_endpoint(otlp.endpoint), otlp.tls or UpstreamTls()
    headers = [("user-agent", f"kproxy/{own_version()}")]
    headers += [(name, value.get_secret_value()) for name, value in otlp.headers.items()]
    try:
        context = upstream_files(tls, log).get if endpoint.tls else None
    except InternalError as error:
        raise UnusableSetting(("otlp", "tls"), str(error)) from None
    try:
        RequestEncoder("metrics", "", otlp.encoding)
    except MissingOtlp as error:
        raise UnusableSetting(("otlp", "encoding"), str(error)) from None
    target = HttpTarget(endpoint.host, endpoint.port, endpoint.prefix, headers, context, tls.server_name, otlp.timeout)
    return OtlpWay(target, otlp.encoding, otlp.semconv)
