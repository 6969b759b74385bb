"""Delay between a signal to end and the drain, in which load balancers can notice and clients are still accepted."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from structlog.typing import FilteringBoundLogger

from kproxy.net.loop.reactor import Reactor


class ShutdownDelay:
    """Delay of one server, `seconds` long; 0 for none."""

    def __init__(self, seconds: float, reactor: Reactor, log: FilteringBoundLogger) -> None:
        self.seconds, self.reactor, self.log = seconds, reactor, log
        self.begun = False

    def end(self, drain: Callable[[], None]) -> None:
        """Call `drain` when the time is over, or at once if there is none or it has begun before."""
        if self.begun or not self.seconds:
            drain()
            return
        self.begun = True
        self.log.info("not ready any more, the drain begins later", shutdown_delay=self.seconds)
        self.reactor.call_at(monotonic() + self.seconds, drain)
