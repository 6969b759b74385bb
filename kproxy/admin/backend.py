"""What the admin API speaks for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from time import monotonic

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


def clock(when: float) -> str:
    """A time of `monotonic()` as one of the calendar, in ISO 8601."""
    return (datetime.now(UTC) - timedelta(seconds=monotonic() - when)).isoformat(timespec="milliseconds")
