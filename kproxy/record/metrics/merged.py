"""Metrics of several processes merged into one: counters and histograms are added up, sample by sample.

Most gauges are amounts, and are added as well. Those that are not have their names here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

Labels = tuple[tuple[str, str], ...]
SampleKey = tuple[str, Labels]

LARGEST = frozenset((
    "kproxy_audit_last_durable_timestamp_seconds", "kproxy_audit_failing", "kproxy_audit_blocked",
))  # fmt: skip
"""Gauges that merge by maximum: true for one process means true for all."""
SMALLEST = frozenset(("process_max_fds", "kproxy_registry_up"))
"""Gauges that merge by minimum: false for one process means false for all."""
FIRST = frozenset(("process_start_time_seconds", "python_info"))
"""Gauges of the process that the user has started, which comes first."""
GROWING = frozenset(("counter", "histogram"))


class MetricSamples(msgspec.Struct, frozen=True, array_like=True):
    """Metric of one process in a form that can be sent: name, help text, type, and samples (name, labels, number)."""

    name: str
    text: str
    kind: str
    samples: list[tuple[str, dict[str, str], float]]


def collect_samples(collectors: Iterable[Collector]) -> list[MetricSamples]:
    return [samples_of(one) for collector in collectors for one in collector.collect()]


def collect_into(found: list[MetricSamples], collector: Collector) -> Iterator[None]:
    """Add the metrics of a collector or registry to a list, and yield after each: there may be thousands of samples."""
    for metric in collector.collect():
        found.append(samples_of(metric))
        yield


def samples_of(metric_of: Metric) -> MetricSamples:
    samples = [(one.name, dict(one.labels), float(one.value)) for one in metric_of.samples]
    return MetricSamples(metric_of.name, metric_of.documentation, metric_of.type, samples)


def growing_metrics(families: Iterable[MetricSamples]) -> list[MetricSamples]:
    """Return the metrics that stay true when their process has ended."""
    return [one for one in families if one.kind in GROWING]


class MergedCollector(Collector):
    """Collector of the metrics of all processes that `processes` gives, the first of them first."""

    def __init__(self, processes: Callable[[], Iterable[Sequence[MetricSamples]]]) -> None:
        self.processes = processes

    def collect(self) -> Iterator[Metric]:
        """Yield one metric for each name, also for one that only some processes have."""
        yield from (metric_of(one) for one in merge_metrics(self.processes()))


def merge_metrics(processes: Iterable[Sequence[MetricSamples]]) -> list[MetricSamples]:
    """Return one metric for each name, in the order of first occurrence, as are their samples."""
    first: dict[str, MetricSamples] = {}
    values: dict[str, dict[SampleKey, float]] = {}
    for families in processes:
        for metric in families:
            first.setdefault(metric.name, metric)
            add_samples(values.setdefault(metric.name, {}), metric)
    return [
        MetricSamples(
            metric.name,
            metric.text,
            metric.kind,
            [(name, dict(labels), number) for (name, labels), number in samples.items()],
        )
        for metric, samples in zip(first.values(), values.values(), strict=True)
    ]


def add_samples(values: dict[SampleKey, float], metric: MetricSamples) -> None:
    for sample, labels, number in metric.samples:
        key = sample, labels_of(labels)
        before = values.get(key)
        values[key] = number if before is None else merge_values(metric.name, before, number)


def merge_values(name: str, before: float, number: float) -> float:
    if name in LARGEST:
        return max(before, number)
    if name in SMALLEST:
        return min(before, number)
    return before if name in FIRST else before + number


def labels_of(labels: Mapping[str, str]) -> Labels:
    return tuple(labels.items())


def metric_of(samples_of: MetricSamples) -> Metric:
    metric = Metric(samples_of.name, samples_of.text, samples_of.kind)
    for sample, labels, number in samples_of.samples:
        metric.add_sample(sample, labels, number)
    return metric
