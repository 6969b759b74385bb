"""Drain of a server: start at a signal, pending connections, and outcome.

A request in flight is answered if its broker does so within `drain_timeout`, because its client cannot know whether it
took effect. A request without effects can be repeated elsewhere. So a drain waits at most `READS` seconds for the
response to such a request (long polls), and for the rest of an incomplete request. A drain does not wait for frames
that kproxy itself holds; see `Session.drain`.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Any

import trio
from structlog.typing import FilteringBoundLogger

from kproxy.protocol.table import schema
from kproxy.rules.permissions import permissions

from .protocols import show

if TYPE_CHECKING:
    from kproxy.app.supervisor import Supervisor
    from kproxy.runtime.io.reactor import Reactor

    from .connection import Connection
    from .server import Server

SOON = 1.0
"""Seconds until the pending connections are logged."""
READS = 5.0
"""Seconds for requests without effects, and for incomplete requests."""
SHOWN = 10
"""Connections listed in that log line."""
CUT = {"drain_timeout", "shutdown"}
"""Causes of connections that the drain ended."""


class Drain:
    """Drain of `server`, from the first signal to the end of the last connection."""

    def __init__(self, server: Server) -> None:
        self.server, self.log = server, server.log
        self.since = monotonic()
        self.ended = self.cut = 0
        self.finished = False

    def start(self) -> None:
        reactor, timeout = self.server.reactor, self.server.limits.drain_timeout
        reactor.call_at(self.since + min(SOON, timeout / 2), self.log_pending)
        if timeout > READS:
            reactor.call_at(self.since + READS, self.end_reads)

    def count(self, connection: Connection) -> None:
        """Count a connection that has ended, by its cause."""
        if connection.cause in CUT:
            self.cut += 1
        else:
            self.ended += 1

    def log_pending(self) -> None:
        """Log the pending connections, if any."""
        connections = self.server.connections
        if connections and not self.finished:
            oldest = sorted(connections, key=waits_since)[:SHOWN]
            self.log.info("drain waits for answers", connections=len(connections),
                          waiting=[waiting(connection) for connection in oldest])  # fmt: skip

    def end_reads(self) -> None:
        """End connections if all requests in flight can be repeated at another proxy, or if the only request is
        incomplete."""
        self.server.for_each(self.server.connections, end_read)

    def finish(self) -> None:
        """Log the outcome, at most once."""
        if not self.finished:
            self.finished = True
            seconds = round(monotonic() - self.since, 3)
            self.log.info("drained", ended=self.ended, cut=self.cut, seconds=seconds)


def end_read(connection: Connection) -> None:
    session = connection.session
    requests = session.awaited_requests
    if requests and all(is_harmless(key) for _, key, _ in requests):
        api = next((schema.load(key).name for _, key, _ in requests if key >= 0), "a lookup")
        why = f"{api} was not answered within {READS:g} s, and can be asked for elsewhere"
        connection.end("drain_timeout", why)
    elif not requests and session.cut_off:
        connection.end("drain_timeout", f"the client did not send the rest of a request within {READS:g} s")


def is_harmless(key: int) -> bool:
    """Return True if requests of this API change at most the members of a group, because clients join again. kproxy's
    own requests and answers have keys below 0; brokers store nothing for them."""
    permission = permissions().get(key)
    return key < 0 or (permission is not None and permission.changes in ("nothing", "members"))


def waits_since(connection: Connection) -> float:
    since = connection.session.awaited_since
    return connection.since if since is None else since


def waiting(connection: Connection) -> dict[str, Any]:
    session = connection.session
    requests = session.awaited_requests
    api = None
    if requests and requests[0][1] in schema.paths():
        api = f"{schema.load(requests[0][1]).name} v{requests[0][2]}"
    return {
        "client": show(connection.client_address),
        "broker": None if connection.broker_address is None else show(connection.broker_address),
        "requests": session.awaited,
        "oldest": api,
        "seconds": round(monotonic() - waits_since(connection), 3),
    }


class ShutdownDelay:
    """Delay between the first signal and the drain, in seconds. 0: no delay."""

    def __init__(self, seconds: float, reactor: Reactor, log: FilteringBoundLogger) -> None:
        self.seconds, self.reactor, self.log = seconds, reactor, log
        self.begun = False

    def end(self, drain: Callable[[], None]) -> None:
        """Call `drain` after the delay. Call it immediately if the delay is 0 or has already begun."""
        if self.begun or not self.seconds:
            drain()
            return
        self.begun = True
        self.log.info("not ready any more, the drain begins later", shutdown_delay=self.seconds)
        self.reactor.call_at(monotonic() + self.seconds, drain)


async def drain_on_signal(
    server: Server | Supervisor, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Begin a drain at the first SIGTERM or SIGINT, after `shutdown_delay` if it is set. A second signal skips the
    delay. A signal during the drain ends the drain."""
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        task_status.started()
        async for number in signals:
            server.log.info("signal", name=signal.Signals(number).name)
            if server.draining:
                server.give_up("shutdown", "kproxy received a second stop signal")
            else:
                server.shutdown_delay.end(server.drain)
