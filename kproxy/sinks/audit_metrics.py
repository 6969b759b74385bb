"""Prometheus metrics of the audit's counters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from .audit.event_sink import EventSink

GROWING = {
    "kproxy_audit_written": ("written", "Events that are durable."),
    "kproxy_audit_bytes": ("bytes", "Bytes of the lines of durable events, before compression."),
    "kproxy_audit_files": ("files", "Event files that were published."),
    "kproxy_audit_recovered": ("recovered", "Unclean ends of earlier processes whose files were recovered."),
}
PRESENT = {
    "kproxy_audit_queued": ("queued", "Events that are not durable yet."),
    "kproxy_audit_queued_bytes": ("queued_bytes", "Bytes of the lines of events that are not durable yet."),
    "kproxy_audit_last_durable_timestamp_seconds": ("last_durable", "When events last became durable; 0: never."),
}
BY_REASON = {
    "kproxy_audit_dropped": ("dropped", "Events lost, by reason."),
    "kproxy_audit_errors": ("errors", "Failed attempts to write, sync or publish, by reason."),
}


class AuditCollector(Collector):
    """Collector of the audit's counters, by outlet: files, kafka."""

    def __init__(self, events: EventSink) -> None:
        self.events = events

    def collect(self) -> Iterator[Metric]:
        outlets = self.events.counters
        for name, (field, text) in GROWING.items():
            yield filled(CounterMetricFamily(name, text, labels=["outlet"]), outlets, field)
        for name, (field, text) in PRESENT.items():
            yield filled(GaugeMetricFamily(name, text, labels=["outlet"]), outlets, field)
        for name, (field, text) in BY_REASON.items():
            family = CounterMetricFamily(name, text, labels=["outlet", "reason"])
            for outlet, counters in outlets.items():
                for reason, count in dict(getattr(counters, field)).items():
                    family.add_metric([outlet, reason], count)
            yield family
        failing = GaugeMetricFamily("kproxy_audit_failing", "1 while events cannot be written.", labels=["outlet"])
        yield filled(failing, outlets, "failing")
        yield GaugeMetricFamily(
            "kproxy_audit_blocked",
            "1 while clients are not read because events cannot be written.",
            value=int(self.events.blocked),
        )


def filled(family: CounterMetricFamily | GaugeMetricFamily, outlets: Mapping[str, object], field: str) -> Metric:
    """Return the family with one line for each outlet."""
    for outlet, counters in outlets.items():
        family.add_metric([outlet], float(getattr(counters, field)))
    return family
