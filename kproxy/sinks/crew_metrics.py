"""Prometheus metrics of a supervisor: its workers, and clients that it refused before a worker saw them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from .metrics import counted


class Crew(Protocol):
    """Workers of a supervisor, as their metrics see them."""

    @property
    def restarts(self) -> int: ...
    @property
    def members(self) -> Sequence[object]: ...
    @property
    def ready(self) -> Sequence[object]: ...


class Refused(Protocol):
    """Counts of clients that were refused, by cause."""

    refused: dict[str, int]


class CrewCollector(Collector):
    """Collector of a supervisor's own counts.

    Beside it, workers count connections refused, too: those with a bad TLS handshake.
    """

    def __init__(self, crew: Crew, counts: Refused) -> None:
        self.crew, self.counts = crew, counts

    def collect(self) -> Iterator[Metric]:
        yield CounterMetricFamily(
            "kproxy_worker_restarts", "Worker processes that have taken the place of another.", value=self.crew.restarts
        )
        ready = len(self.crew.ready)
        workers = GaugeMetricFamily("kproxy_workers", "Worker processes, by state.", labels=["state"])
        workers.add_metric(["ready"], ready)
        workers.add_metric(["down"], len(self.crew.members) - ready)
        yield workers
        yield counted(
            "kproxy_connections_refused", "Client connections refused, by cause.", "cause", self.counts.refused
        )
