"""Readiness to serve clients: what is missing for all of them, and what for those of each cluster."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec
import trio
from structlog.typing import FilteringBoundLogger

LOOK = 0.25
"""Seconds between two looks while it is not ready, so that it is said when it is true."""
LOOK_AGAIN = 1.0
"""Seconds between two looks afterwards."""

DRAINING = "nothing, it is draining"
GOING_TO_END = "nothing, it is going to end"
"""Reasons for not being ready after a signal to end. The log has lines of its own for them."""

ClusterNeed = Literal["any", "all"]
"""Clusters that have to answer."""


class Readiness(msgspec.Struct, frozen=True):
    """Missing conditions: `own` whatever clients want, `clusters` by cluster; none: its brokers answer."""

    own: Sequence[str]
    clusters: Mapping[str, Sequence[str]]

    def waiting_for(self, need: ClusterNeed) -> list[str]:
        """Return what is missing of the whole; empty when it is ready."""
        dead = [reason for reasons in self.clusters.values() for reason in reasons]
        return [*self.own, *(dead if need == "all" or all(self.clusters.values()) else ())]

    def of(self, cluster: str) -> list[str]:
        """Return what is missing for the clients of that cluster. Raises KeyError when there is none."""
        return [*self.own, *self.clusters[cluster]]


def together(own: Sequence[str], clusters: Sequence[str], workers: Mapping[int, Readiness | str]) -> Readiness:
    """Combine the readiness of several processes; a worker that gives none is a reason of its own."""
    missing: list[str] = [*own]
    by_cluster: dict[str, list[str]] = {name: [] for name in clusters}
    for index, readiness in workers.items():
        if isinstance(readiness, str):
            missing.append(f"worker {index}: {readiness}")
            continue
        missing += [f"worker {index}: {reason}" for reason in readiness.own]
        for name, reasons in readiness.clusters.items():
            by_cluster[name] += [f"worker {index}: {reason}" for reason in reasons]
    return Readiness(missing, by_cluster)


async def tell(ask: Callable[[], Awaitable[list[str]]], log: FilteringBoundLogger, fields: Mapping[str, Any]) -> None:
    """Log when kproxy becomes ready, and when it is not any more, until cancelled."""
    before: list[str] | None = None
    while True:
        missing = await ask()
        if not missing and before != []:
            log.info("ready", **fields)
        elif missing and before == [] and not {DRAINING, GOING_TO_END}.intersection(missing):
            log.warning("not ready", waiting_for=missing)
        if not missing or before is not None:
            before = missing
        await trio.sleep(LOOK if missing else LOOK_AGAIN)
