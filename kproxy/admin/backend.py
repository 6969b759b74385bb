"""What the admin API speaks for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Protocol

from structlog.typing import FilteringBoundLogger

from kproxy.net.rule_keeper import RuleKeeper
from kproxy.net.server import Server
from kproxy.sinks.captures import Captures

Reasons = Callable[[], list[str]]
"""Why kproxy is not ready; empty when it is."""


@dataclass(frozen=True, slots=True)
class Backend:
    """The running proxy, as far as it can be asked and told."""

    keeper: RuleKeeper
    server: Server
    waiting_for: Reasons
    metrics: Callable[[], bytes]
    log: FilteringBoundLogger
    began: float = field(default_factory=monotonic)
    captures: Captures | None = None

    async def missing(self) -> list[str]:
        """Why kproxy is not ready."""
        return self.waiting_for()

    async def scraped(self) -> bytes:
        """What Prometheus reads."""
        return self.metrics()


class Asked(Protocol):
    """What every backend has: that of one process (`Backend`), and that of workers (`over_workers.crew_backend`)."""

    @property
    def keeper(self) -> RuleKeeper: ...
    @property
    def log(self) -> FilteringBoundLogger: ...
    @property
    def began(self) -> float: ...

    async def missing(self) -> list[str]: ...
    async def scraped(self) -> bytes: ...


def clock(when: float) -> str:
    """A time of `monotonic()` as one of the calendar, in ISO 8601."""
    return (datetime.now(UTC) - timedelta(seconds=monotonic() - when)).isoformat(timespec="milliseconds")
