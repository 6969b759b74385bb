"""Prometheus metrics of what was counted by label."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, SummaryMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from .shares import overflows
from .table import LabelTable
from .totals import METRICS, LabelledMetric, LabelTotals


class LabelCollector(Collector):
    """Collector of the totals by label, and of how full their tables are."""

    def __init__(self, totals: LabelTotals) -> None:
        self.totals = totals

    def collect(self) -> Iterator[Metric]:
        if not self.totals.tables:  # a config has turned off what another one had told
            return
        for label, table in self.totals.tables.items():
            for metric in METRICS[label]:
                yield summary(metric, label, table) if metric.kind == "summary" else counter(metric, label, table)
        lags = self.totals.lags
        if lags is not None:
            family = GaugeMetricFamily(
                "kproxy_group_lag",
                "Records between what a group has committed and the ends of its partitions, as far as seen here.",
                labels=["group", "topic"],
            )
            for pair, lag in lags.lags().items():
                family.add_metric(pair, lag)
            yield family
        used = GaugeMetricFamily("kproxy_label_series", "Names with series of their own, by label.", labels=["label"])
        for label, table in self.totals.tables.items():
            used.add_metric([label], len(table.series))
        yield used
        overflow = CounterMetricFamily(
            "kproxy_label_overflow",
            "What was counted as other for want of room: records of topics, requests of clients and principals, "
            "commits and joins of groups, and partitions of groups that were forgotten.",
            labels=["label"],
        )
        for label, number in overflows(self.totals).items():
            overflow.add_metric([label], number)
        yield overflow


def counter(metric: LabelledMetric, label: str, table: LabelTable) -> Metric:
    family = CounterMetricFamily(metric.name, metric.text, labels=[label, *([metric.second] if metric.second else [])])
    sample = f"{metric.name}_total"
    for series in table.everything():
        for (name, second), number in list(series.values.items()):
            if name == sample:
                family.add_metric([series.name, second] if metric.second else [series.name], number)
    return family


def summary(metric: LabelledMetric, label: str, table: LabelTable) -> Metric:
    family = SummaryMetricFamily(metric.name, metric.text, labels=[label, metric.second])
    for series in table.everything():
        for (name, second), number in list(series.values.items()):
            if name == f"{metric.name}_count":
                seconds = series.values.get((f"{metric.name}_sum", second), 0.0)
                family.add_metric([series.name, second], int(number), seconds)
    return family
