"""What the audit counted, as Prometheus reads it."""

from __future__ import annotations

from collections import Counter
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from kproxy.record.audit.event_sink import OutletCounters
from kproxy.record.component_collectors import AuditCollector
from kproxy.record.metrics.traffic import exposition, registry


class Written:
    """An event sink with one outlet that has had trouble."""

    blocked = True
    counters = {
        "files": OutletCounters(
            written=7,
            bytes=900,
            files=2,
            dropped=Counter(disk_full=3),
            errors=Counter(disk_full=1),
            failing=True,
            queued=4,
        )
    }

    def put(self, type_name: str, time: float, data: Any) -> None:
        """Not here."""

    def close(self, timeout: float) -> bool:
        return True


def test_every_counter_has_a_line() -> None:
    """With the outlet's name, and the reason where there is one."""
    text = b"".join(exposition(registry(AuditCollector(Written())))).decode()

    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("kproxy_audit")
    }

    assert found == {
        ("kproxy_audit_written_total", "files"): 7.0,
        ("kproxy_audit_bytes_total", "files"): 900.0,
        ("kproxy_audit_files_total", "files"): 2.0,
        ("kproxy_audit_unclean_shutdowns_total", "files"): 0.0,
        ("kproxy_audit_queued", "files"): 4.0,
        ("kproxy_audit_queued_bytes", "files"): 0.0,
        ("kproxy_audit_last_durable_timestamp_seconds", "files"): 0.0,
        ("kproxy_audit_dropped_total", "files", "disk_full"): 3.0,
        ("kproxy_audit_errors_total", "files", "disk_full"): 1.0,
        ("kproxy_audit_failing", "files"): 1.0,
        ("kproxy_audit_blocked",): 1.0,
    }
