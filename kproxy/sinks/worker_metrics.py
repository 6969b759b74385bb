"""Prometheus metrics of a supervisor: its workers, and clients that it refused before a worker saw them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from .metrics import counter_family


class CountedWorkers(Protocol):
    """Workers of a supervisor, as their metrics see them."""

    @property
    def restarts(self) -> int: ...
    @property
    def workers(self) -> Sequence[object]: ...
    @property
    def ready(self) -> Sequence[object]: ...


class RefusedClients(Protocol):
    """Counts of clients that were refused, by cause."""

    refused: dict[str, int]


class WorkerCollector(Collector):
    """Collector of a supervisor's own counts.

    Beside it, workers count connections refused, too: those with a bad TLS handshake.
    """

    def __init__(self, pool: CountedWorkers, counts: RefusedClients) -> None:
        self.pool, self.counts = pool, counts

    def collect(self) -> Iterator[Metric]:
        yield CounterMetricFamily(
            "kproxy_worker_restarts",
            "Worker processes that were started in place of one that ended.",
            value=self.pool.restarts,
        )
        ready = len(self.pool.ready)
        workers = GaugeMetricFamily("kproxy_workers", "Worker processes, by state.", labels=["state"])
        workers.add_metric(["ready"], ready)
        workers.add_metric(["down"], len(self.pool.workers) - ready)
        yield workers
        yield counter_family(
            "kproxy_connections_refused", "Client connections refused, by cause.", "cause", self.counts.refused
        )
