"""Export of metrics: a thread sends the newest snapshot; one that comes while another is under way replaces it."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from structlog.typing import FilteringBoundLogger

from kproxy.record.metrics.merged import MetricSamples

from .export import Exporter, OtlpCounters, OtlpSettings
from .metric_points import in_requests, metric_tree
from .payload import nanoseconds

LAST_SEND = 2.0
"""Seconds at most for the last snapshot of a process that ends."""


class MetricsExport:
    """Export of the metrics of one process, from `start` to `close`."""

    def __init__(self, settings: OtlpSettings, counters: OtlpCounters, log: FilteringBoundLogger) -> None:
        self.exporter = Exporter("metrics", settings, counters, log)
        self.began = nanoseconds(time.time())
        self.dropped = 0
        """Snapshots that were not sent, since a newer one came or the collector did not take them."""
        self.counters = counters
        counters.begin("metrics", self.lost)
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
            self.dropped += self._next is not None
            self._next = time.time(), metrics
        self._wake.set()

    def close(self) -> None:
        """Send what was offered last, within `LAST_SEND` seconds. Blocks as long."""
        self._until = time.monotonic() + LAST_SEND
        self._closing = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(LAST_SEND)
        self.counters.end("metrics", self.lost)

    def lost(self) -> int:
        return self.dropped

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
                    self.dropped += 1
                    self._log.error("otlp: metrics cannot be sent, which is a mistake in kproxy", exc_info=error)
            if closing:
                self.exporter.close()
                return

    def _send(self, at: float, metrics: Sequence[MetricSamples]) -> None:
        """Send a snapshot, of which a part that is refused ends the whole: the next one has all of it."""
        if time.monotonic() < self.exporter.ready_at:
            self.dropped += 1
            return
        now = nanoseconds(at)
        for group in in_requests(metrics):
            trees = [metric_tree(one, self.began, now) for one in group]
            most = max(0.0, self._until - time.monotonic()) if self._closing else float("inf")
            delivery = self.exporter.send(trees, sum(len(one.samples) for one in group), most)
            if not delivery.taken:
                self.dropped += 1
                return
