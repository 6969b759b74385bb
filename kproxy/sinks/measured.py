"""Metrics of several processes as those of one: counters and histograms added up, line by line.

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
    """A metric with its samples: name, labels, number."""

    name: str
    text: str
    kind: str
    samples: list[tuple[str, dict[str, str], float]]


def measured(collectors: Iterable[Collector]) -> list[Family]:
    """What they say now."""
    return [family(one) for collector in collectors for one in collector.collect()]


def family(metric: Metric) -> Family:
    """As it can be sent."""
    samples = [(one.name, dict(one.labels), float(one.value)) for one in metric.samples]
    return Family(metric.name, metric.documentation, metric.type, samples)


def growing(families: Iterable[Family]) -> list[Family]:
    """Those that stay true when their process has ended."""
    return [one for one in families if one.kind in GROWING]


class Merged(Collector):
    """The metrics of all processes that `processes` gives, the first of them first."""

    def __init__(self, processes: Callable[[], Iterable[Sequence[Family]]]) -> None:
        self.processes = processes

    def collect(self) -> Iterator[Metric]:
        """A family that only some have is of those."""
        yield from (metric(one) for one in merged(self.processes()))


def merged(processes: Iterable[Sequence[Family]]) -> list[Family]:
    """One family for each name, in the order in which they are first met; so are their lines."""
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
    """Two processes' numbers of the same line."""
    if name in LARGEST:
        return max(before, number)
    if name in SMALLEST:
        return min(before, number)
    return before if name in FIRST else before + number


def labels_of(labels: Mapping[str, str]) -> Labels:
    return tuple(labels.items())


def metric(family: Family) -> Metric:
    """As the exposition wants it."""
    made = Metric(family.name, family.text, family.kind)
    for sample, labels, number in family.samples:
        made.add_sample(sample, labels, number)
    return made
