"""Metrics of a scrape as OTLP's metrics: the same numbers, with dots in their names.

Each underscore becomes a dot, and `_total` goes, so a collector that serves them to Prometheus gives them the names
that they have at `/metrics`. All of them are cumulative, from the start of the process on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from kproxy.record.metrics.merged import Labels, MetricSamples, labels_of

from .payload import Tree, attributes, number

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
