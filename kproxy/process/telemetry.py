"""Clients' own metrics, put together: the inbox for what they push, and where it goes when it has been read.

Strategy. Nothing of this is imported without the section in the config. Payloads wait for the thread in which slow work
is done, where addresses take turns; a connection that has ended meanwhile loses nothing, since the last push of a
client comes just before its end. So many bytes wait at most; who comes then is told to come later.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from kproxy.config.telemetry import TelemetryConfig
from kproxy.core.session_state import SessionState
from kproxy.core.telemetry import TelemetryGateway, TelemetryPush, TelemetryTerms
from kproxy.net.connection_view import ConnectionWho
from kproxy.net.loop.turn_order import network_of
from kproxy.net.server import Server
from kproxy.sinks.audit.state_events import connection_columns
from kproxy.sinks.labels.push_reader import PushRead, PushReader
from kproxy.sinks.labels.telemetry import CLIENT_TELEMETRY

if TYPE_CHECKING:
    from kproxy.core.counters import Counters
    from kproxy.net.connection import Connection
    from kproxy.sinks.labels.totals import LabelTotals

MOST_WAITING = 16 << 20
"""Bytes of payloads that wait to be read in this process."""
EACH = 1024
"""Bytes for which a payload counts beside its own."""
PushTarget = Callable[[TelemetryPush, PushRead, dict[str, Any]], None]


class ClientTelemetry:
    """Clients' metrics in one process. `totals`: where they are added up, if they are; `also` gets each payload that
    could be read."""

    def __init__(self, config: TelemetryConfig, server: Server, counters: Counters, totals: LabelTotals | None) -> None:
        self.config, self.server, self.counters, self.totals = config, server, counters, totals
        self.reader = PushReader(config)
        self.terms = TelemetryTerms(config.serve, config.interval, config.requested, self)
        self.also: PushTarget | None = None
        self.waiting = 0

    def mode(self, listener: str) -> str:
        """Return how the clients of this listener are asked; empty where they are not."""
        named = self.config.listeners
        return self.config.serve if named is None or listener in named else ""

    def serve(self, session: SessionState) -> TelemetryGateway:
        """Return what takes the metrics of the client of this session."""
        return TelemetryGateway(session, self.terms)

    def put(self, push: TelemetryPush) -> bool:
        """Have a payload read when its turn has come; False if too many wait."""
        if self.waiting + EACH + len(push.payload) > MOST_WAITING:
            self.counters.count("telemetry_without_room")
            return False
        self.waiting += EACH + len(push.payload)
        job = PushJob(self, push, self.who(push))
        self.server.slow_work.add(network_of(push.address), job, partial(self.reader.read, push))
        return True

    def who(self, push: TelemetryPush) -> dict[str, Any]:
        """Return the columns of an event that say whose connection it is, which may end before the payload is read."""
        if self.also is None or push.owner is None:
            return {}
        connection: Connection = push.owner
        return connection_columns(ConnectionWho(connection, self.server.taps.fanout.picture(connection.facts.cluster)))

    def take(self, push: TelemetryPush, read: PushRead | None, who: dict[str, Any]) -> None:
        """Add up what was read of a payload; None: it could not be read."""
        self.waiting -= EACH + len(push.payload)
        push.done, push.unreadable = True, read is None
        if read is None:
            self.counters.count("telemetry_unreadable")
        else:
            if read.left_out:
                self.counters.count("telemetry_points_left_out", read.left_out)
            self.add(read)
            if self.also is not None:
                self.also(push, read, who)
        push.payload, push.owner = b"", None

    def add(self, read: PushRead) -> None:
        if self.totals is None or self.totals.telemetry is None:
            return
        now = monotonic()
        self.totals.tick(now)
        for series, lines in read.counters.items():
            self.totals.add(CLIENT_TELEMETRY, series, list(lines.items()), now)
        self.totals.add_gauges(read.gauges, now)


class PushJob:
    """Work of the slow-work thread on one payload, which nobody's end makes needless."""

    closed = False

    def __init__(self, telemetry: ClientTelemetry, push: TelemetryPush, who: dict[str, Any]) -> None:
        self.telemetry, self.push, self.who = telemetry, push, who

    def computed(self, result: Any) -> None:
        self.telemetry.take(self.push, result, self.who)

    def crashed(self, error: Exception) -> None:
        """Count the payload as one that cannot be read; the error is in the log."""
        if not self.push.done:
            self.telemetry.take(self.push, None, self.who)
