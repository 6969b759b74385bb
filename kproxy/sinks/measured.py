"""Metrics of several processes merged into one: counters and histograms are added up, sample by sample.

Most gauges are amounts, and are added up, too. Those that are not have their names here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

Labels = tuple[tuple[str, str], ...]
Key = tuple[str, Labels]

LARGEST = frozenset((
    "kproxy_audit_last_durable_timestamp_seconds", "kproxy_audit_failing", "kproxy_audit_blocked",
))  # fmt: skip
"""What is so in some process is so: the largest number counts."""
SMALLEST = frozenset(("process_max_fds",))
FIRST = frozenset(("process_start_time_seconds", "python_info"))
"""Of the process that the user has started, which comes first."""
GROWING = frozenset(("counter", "histogram"))


class Family(msgspec.Struct, frozen=True, array_like=True):
    """Metric of one process in a form that can be sent: name, help text, type, and samples (name, labels, number)."""

    name: str
    text: str
    kind: str
    samples: list[tuple[str, dict[str, str], float]]


def measured(collectors: Iterable[Collector]) -> list[Family]:
    """Return the metrics of these collectors as they are now."""
    return [family(one) for collector in collectors for one in collector.collect()]


def family(metric: Metric) -> Family:
    """Return a metric in the form that can be sent."""
    samples = [(one.name, dict(one.labels), float(one.value)) for one in metric.samples]
    return Family(metric.name, metric.documentation, metric.type, samples)


def growing(families: Iterable[Family]) -> list[Family]:
    """Return the metrics that stay true when their process has ended."""
    return [one for one in families if one.kind in GROWING]


class Merged(Collector):
    """Collector of the metrics of all processes that `processes` gives, the first of them first."""

    def __init__(self, processes: Callable[[], Iterable[Sequence[Family]]]) -> None:
        self.processes = processes

    def collect(self) -> Iterator[Metric]:
        """Yield one metric for each name, also for one that only some processes have."""
        yield from (metric(one) for one in merged(self.processes()))


def merged(processes: Iterable[Sequence[Family]]) -> list[Family]:
    """Return one metric for each name, in the order in which they are first met; so are their samples."""
    first: dict[str, Family] = {}
    lines: dict[str, dict[Key, float]] = {}
    for families in processes:
        for one in families:
            first.setdefault(one.name, one)
            add(lines.setdefault(one.name, {}), one)
    return [
        Family(one.name, one.text, one.kind, [(name, dict(labels), number) for (name, labels), number in found.items()])
        for one, found in zip(first.values(), lines.values(), strict=True)
    ]


def add(lines: dict[Key, float], one: Family) -> None:
    for sample, labels, number in one.samples:
        key = sample, labels_of(labels)
        before = lines.get(key)
        lines[key] = number if before is None else together(one.name, before, number)


def together(name: str, before: float, number: float) -> float:
    """Return the value of a sample that two processes have."""
    if name in LARGEST:
        return max(before, number)
    if name in SMALLEST:
        return min(before, number)
    return before if name in FIRST else before + number


def labels_of(labels: Mapping[str, str]) -> Labels:
    return tuple(labels.items())


def metric(family: Family) -> Metric:
    """Return the metric in the form that the exposition wants."""
    made = Metric(family.name, family.text, family.kind)
    for sample, labels, number in family.samples:
        made.add_sample(sample, labels, number)
    return made
