"""Backend of the admin API: the running proxy that it shows and changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Protocol

from structlog.typing import FilteringBoundLogger

from kproxy.net.loop.turns import in_turns
from kproxy.net.readiness import ClusterNeed, Readiness
from kproxy.net.rules.keeper import RuleKeeper
from kproxy.net.server import Server
from kproxy.sinks.captures import Captures


@dataclass(frozen=True, slots=True)
class Backend:
    """Running proxy of one process, as far as it can be asked and told."""

    keeper: RuleKeeper
    server: Server
    found_readiness: Callable[[], Readiness]
    metrics: Callable[[], Iterable[bytes]]
    log: FilteringBoundLogger
    began: float = field(default_factory=monotonic)
    captures: Captures | None = None
    need: ClusterNeed = "any"

    async def readiness(self) -> Readiness:
        """Return what is missing before clients can be served."""
        return self.found_readiness()

    async def scraped(self) -> bytes:
        """Return the metrics that Prometheus reads."""
        return await joined(self.metrics())


class AnyBackend(Protocol):
    """Backend of either kind: that of one process (`Backend`), and that of workers (`process.admin.pool_backend`)."""

    @property
    def keeper(self) -> RuleKeeper: ...
    @property
    def log(self) -> FilteringBoundLogger: ...
    @property
    def began(self) -> float: ...

    @property
    def need(self) -> ClusterNeed:
        """Return which clusters have to answer for the whole to be ready."""

    async def readiness(self) -> Readiness: ...
    async def scraped(self) -> bytes: ...


async def joined(pieces: Iterable[bytes]) -> bytes:
    """Join pieces that take some time to make."""
    text = bytearray()

    def add() -> Iterator[None]:
        for piece in pieces:
            text.extend(piece)
            yield

    await in_turns(add())
    return bytes(text)


def clock(when: float) -> str:
    """Convert a time of `monotonic()` to one of the calendar, in ISO 8601."""
    return (datetime.now(UTC) - timedelta(seconds=monotonic() - when)).isoformat(timespec="milliseconds")
