"""Metrics of one process: of a proxy without workers, for scrapes and for the export, or of a worker."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from time import process_time
from typing import TYPE_CHECKING

from prometheus_client import ProcessCollector
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from kproxy.record.metrics.merged import GROWING, MetricSamples, collect_into, collect_samples, samples_of
from kproxy.record.metrics.traffic import exposition, registry
from kproxy.record.metrics.worker_totals import LabelShare
from kproxy.runtime.io.channel import remote
from kproxy.runtime.io.scheduler import in_turns

if TYPE_CHECKING:
    from .label_metrics import LabelMetrics

PATIENCE = 5.0
"""Timeout in seconds of a call for a worker's metrics."""


class ProcessMetrics:
    """Metrics of these collectors and of the process. `find_label_metrics` returns the counts by label, None if not
    configured."""

    def __init__(self, collectors: Iterable[Collector], find_label_metrics: Callable[[], LabelMetrics | None]) -> None:
        self.registry, self.find_label_metrics = registry(*collectors), find_label_metrics

    def gather(self) -> Iterator[None]:
        """Yield during the gathering of metrics that are not updated continuously."""
        label_metrics = self.find_label_metrics()
        if label_metrics is not None:
            yield from label_metrics.gather()

    def scraped(self) -> Iterator[bytes]:
        """Yield the text for Prometheus, in pieces."""
        yield from (b"" for _ in self.gather())
        yield from exposition(self.registry)

    async def samples(self) -> list[MetricSamples]:
        await in_turns(self.gather())
        found: list[MetricSamples] = []
        await in_turns(collect_into(found, self.registry))
        return found


class WorkerMetrics:
    """Metrics of a worker, for the supervisor. `collectors`: without those of rules and of the process itself."""

    def __init__(self, collectors: Sequence[Collector], find_label_metrics: Callable[[], LabelMetrics | None]) -> None:
        self.collectors, self.find_label_metrics = collectors, find_label_metrics
        self.process = ProcessCollector(registry=None)

    @remote(PATIENCE)
    async def measure(self, growing: bool) -> list[MetricSamples]:
        """Return the metrics. `growing`: only counters and histograms, which must not be lost when the worker ends."""
        cpu = CounterMetricFamily("process_cpu_seconds", "Total user and system CPU time spent in seconds.",
                                  value=process_time())  # fmt: skip
        families = [*collect_samples(self.collectors), samples_of(cpu)]
        if not growing:  # counting thousands of open files takes milliseconds
            families += [one for one in collect_samples([self.process]) if one.kind not in GROWING]
        return families

    @remote(PATIENCE)
    async def measure_labels(self) -> LabelShare:
        label_metrics = self.find_label_metrics()
        return LabelShare() if label_metrics is None else await label_metrics.share()
