"""Export of metrics: a thread sends the newest snapshot; a snapshot during a request replaces the waiting one.

OTLP metrics have the numbers of a scrape. In names each underscore becomes a dot, and `_total` is removed, so a
collector that serves them to Prometheus restores the names of `/metrics`. All of them are cumulative since the start of
the process.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from kproxy.record.metrics.merged import Labels, MetricSamples, labels_of

from .export import Exporter, OtlpCounters, OtlpSettings
from .payload import Tree, attributes, nanoseconds, number

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

CUMULATIVE = 2
"""AGGREGATION_TEMPORALITY_CUMULATIVE of the proto."""
UNITS = {"seconds": "s", "bytes": "By"}
MOST_POINTS = 5000
"""Points of one request: about a megabyte of JSON; a collector takes 20."""


def dotted(name: str) -> str:
    return name.replace("_", ".")


def metric_tree(metric: MetricSamples, start: str, now: str) -> Tree:
    """Return a metric of a scrape at `now`, of a process that began at `start`, both in nanoseconds as text."""
    times = {"startTimeUnixNano": start, "timeUnixNano": now}
    tree: Tree = {"name": dotted(metric.name), "description": metric.text}
    if unit := UNITS.get(metric.name.rpartition("_")[2]):
        tree["unit"] = unit
    if metric.kind == "counter":
        points = [point for point in metric.samples if point[0] == f"{metric.name}_total"]
        tree["sum"] = {
            "dataPoints": [times | number_point(labels, value) for _, labels, value in points],
            "aggregationTemporality": CUMULATIVE,
            "isMonotonic": True,
        }
    elif metric.kind == "histogram":
        tree["histogram"] = {
            "dataPoints": [times | point for point in histogram_points(metric)], "aggregationTemporality": CUMULATIVE
        }  # fmt: skip
    elif metric.kind == "summary":
        tree["summary"] = {"dataPoints": [times | point for point in summary_points(metric)]}
    else:
        tree["gauge"] = {
            "dataPoints": [{"timeUnixNano": now} | number_point(labels, value) for _, labels, value in metric.samples]
        }
    return tree


def number_point(labels: dict[str, str], value: float) -> Tree:
    return {"attributes": attributes(labels), "asDouble": number(value)}


def by_labels(metric: MetricSamples) -> dict[Labels, dict[str, float]]:
    """Return the samples of a metric that has several of each set of labels: by those, and by name or bound."""
    found: dict[Labels, dict[str, float]] = {}
    for name, labels, value in metric.samples:
        rest = {label: text for label, text in labels.items() if label != "le"}
        found.setdefault(labels_of(rest), {})[labels.get("le") or name] = value
    return found


def histogram_points(metric: MetricSamples) -> Iterator[Tree]:
    """Yield the points of a histogram: buckets that hold only what the one before does not."""
    for labels, values in by_labels(metric).items():
        total, count = values.pop(f"{metric.name}_sum", None), values.pop(f"{metric.name}_count", 0.0)
        values.pop(f"{metric.name}_created", None)
        before, counts = 0.0, []
        for upto in values.values():
            counts.append(str(int(upto - before)))
            before = upto
        bounds = [float(bound) for bound in values if bound != "+Inf"]
        point: Tree = {"attributes": attributes(dict(labels)), "count": str(int(values.get("+Inf", count)))}
        if total is not None:
            point["sum"] = number(total)
        yield point | {"bucketCounts": counts, "explicitBounds": bounds}


def summary_points(metric: MetricSamples) -> Iterator[Tree]:
    """Yield the points of a summary, which has a sum and a count, and no quantiles."""
    for labels, values in by_labels(metric).items():
        count, total = values.get(f"{metric.name}_count", 0.0), values.get(f"{metric.name}_sum", 0.0)
        yield {"attributes": attributes(dict(labels)), "count": str(int(count)), "sum": number(total)}


def in_requests(metrics: Iterable[MetricSamples], most: int = MOST_POINTS) -> Iterator[Sequence[MetricSamples]]:
    """Yield the metrics that have samples in groups of at most `most` of these; a metric with more is alone."""
    group: list[MetricSamples] = []
    points = 0
    for metric in metrics:
        if group and points + len(metric.samples) > most:
            yield group
            group, points = [], 0
        if metric.samples:
            group.append(metric)
            points += len(metric.samples)
    if group:
        yield group


LAST_SEND = 2.0
"""Seconds at most for the last snapshot of a process that ends."""


class MetricsExport:
    """Export of the metrics of one process, from `start` to `close`."""

    def __init__(self, settings: OtlpSettings, counters: OtlpCounters, log: FilteringBoundLogger) -> None:
        self.exporter = Exporter("metrics", settings, counters, log)
        self.began = nanoseconds(time.time())
        self.exporter.drop(0)  # the metric of drops begins with 0
        self._log = log
        self._next: tuple[float, Sequence[MetricSamples]] | None = None
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._closing = False
        self._until = 0.0
        self._thread = threading.Thread(target=self._run, name="otlp metrics", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def offer(self, metrics: Sequence[MetricSamples]) -> None:
        with self._lock:
            self.exporter.drop(self._next is not None)
            self._next = time.time(), metrics
        self._wake.set()

    def close(self) -> None:
        """Send what was offered last, within `LAST_SEND` seconds. Blocks as long."""
        self._until = time.monotonic() + LAST_SEND
        self._closing = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(LAST_SEND)

    # ---- the thread

    def _run(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            closing = self._closing
            with self._lock:
                snapshot, self._next = self._next, None
            if snapshot is not None:
                try:
                    self._send(*snapshot)
                except Exception as error:  # noqa: BLE001  # the next snapshot may go
                    self.exporter.drop()
                    self._log.error("otlp: internal error, a snapshot of metrics is dropped", exc_info=error)
            if closing:
                self.exporter.close()
                return

    def _send(self, at: float, metrics: Sequence[MetricSamples]) -> None:
        """Send a snapshot. A refused part ends the whole: the next snapshot has all of it."""
        if time.monotonic() < self.exporter.ready_at:
            self.exporter.drop()
            return
        now = nanoseconds(at)
        for group in in_requests(metrics):
            trees = [metric_tree(one, self.began, now) for one in group]
            most = max(0.0, self._until - time.monotonic()) if self._closing else float("inf")
            delivery = self.exporter.send(trees, sum(len(one.samples) for one in group), most)
            if not delivery.taken:
                self.exporter.drop()
                return
