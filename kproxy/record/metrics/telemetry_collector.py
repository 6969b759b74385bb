"""Prometheus metrics of what clients tell of themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from .telemetry import CLIENT_TELEMETRY, PREFIX, gauge_value, label_values
from .totals import LabelTotals

TEXTS = {"_max": "the largest of all", "_min": "the smallest of all"}


class TelemetryCollector(Collector):
    """Collector of clients' own metrics; each is a family. `clock`: the time by which they were added."""

    def __init__(self, totals: LabelTotals, clock: Callable[[], float]) -> None:
        self.totals, self.clock = totals, clock

    def collect(self) -> Iterator[Metric]:
        totals, telemetry = self.totals, self.totals.telemetry
        if telemetry is None:
            return
        series = totals.tables[CLIENT_TELEMETRY].everything()
        known = totals.tables[CLIENT_TELEMETRY].series
        for metric, grows in sorted(telemetry.kinds.items()):
            family: CounterMetricFamily | GaugeMetricFamily
            if grows:
                family = CounterMetricFamily(
                    PREFIX + metric, "Added up from what clients tell of themselves (KIP-714).", labels=telemetry.labels
                )
                numbers = {one.name: one.values.get((metric, "")) for one in series}
            else:
                how = TEXTS.get(metric[-4:], "the mean of all")
                family = GaugeMetricFamily(
                    PREFIX + metric, f"As clients tell it of themselves (KIP-714), {how}.", labels=telemetry.labels
                )
                rows = telemetry.rows_of(metric, known, self.clock())
                numbers = {name: gauge_value(row) for name, row in rows.items()}
            for name, number in numbers.items():
                if number is not None:
                    family.add_metric(label_values(name, len(telemetry.labels)), number)
            if family.samples:
                yield family
        refused = CounterMetricFamily(
            "kproxy_telemetry_points_refused",
            "Numbers of clients that were not taken, since their metrics have too many names, or one that is taken.",
            value=telemetry.refused,
        )
        yield refused
