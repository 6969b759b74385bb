"""Metrics of a proxy without workers: the same numbers for scrapes and for the export."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from prometheus_client.registry import Collector

from kproxy.record.metrics.merged import MetricSamples, collect_into
from kproxy.record.metrics.traffic import exposition, registry
from kproxy.runtime.io.scheduler import in_turns

if TYPE_CHECKING:
    from .label_metrics import Labelling


class ProcessMetrics:
    """Metrics of these collectors and of the process. `find_labelling` returns the counts by label, None if not
    configured."""

    def __init__(self, collectors: Iterable[Collector], find_labelling: Callable[[], Labelling | None]) -> None:
        self.registry, self.find_labelling = registry(*collectors), find_labelling

    def gather(self) -> Iterator[None]:
        """Yield during the gathering of metrics that are not updated continuously."""
        labelling = self.find_labelling()
        if labelling is not None:
            yield from labelling.gather()

    def scraped(self) -> Iterator[bytes]:
        """Yield the text for Prometheus, in pieces."""
        yield from (b"" for _ in self.gather())
        yield from exposition(self.registry)

    async def samples(self) -> list[MetricSamples]:
        await in_turns(self.gather())
        found: list[MetricSamples] = []
        await in_turns(collect_into(found, self.registry))
        return found
