"""Clients' own metrics, put together: the inbox for what they push, and where it goes when it has been read.

Strategy. Nothing of this is imported without the section in the config. Payloads are read in a thread, which has a
share of a core, since it does not let go of the interpreter; addresses take turns. A connection that has ended
meanwhile loses nothing, since the last push of a client comes just before its end. So many bytes wait at most, and of
one address only a part of them; who comes then is told to come later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from kproxy.record.audit.state_events import connection_columns
from kproxy.record.metrics.push_reader import PushRead, PushReader
from kproxy.record.metrics.telemetry import CLIENT_TELEMETRY
from kproxy.record.metrics.telemetry_config import TelemetryConfig
from kproxy.rules.values.address import network_of
from kproxy.runtime.connection_view import ConnectionWho
from kproxy.runtime.io.slow_work import SlowWork
from kproxy.runtime.server import Server
from kproxy.session.session_state import SessionState
from kproxy.session.telemetry import TelemetryGateway, TelemetryPush, TelemetryTerms

if TYPE_CHECKING:
    from kproxy.record.metrics.totals import LabelTotals
    from kproxy.runtime.connection import Connection
    from kproxy.session.counters import Counters

MOST_WAITING = 16 << 20
"""Bytes of payloads that wait to be read in this process."""
MOST_OF_ONE = MOST_WAITING // 4
"""Bytes of them that are of one address: one that sends as much as it can leaves room for others."""
EACH = 1024
"""Bytes for which a payload counts beside its own."""
WIDEST = 4
"""Bytes of a character at most, in memory."""
ASK_AGAIN = 300.0
"""Seconds until a client asks again which is told that nothing is wanted of it: Kafka's own."""
SHARE = 0.25
"""Part of a core that reading payloads takes at most."""
PushTarget = Callable[[TelemetryPush, PushRead, dict[str, Any]], None]


class ClientTelemetry:
    """Clients' metrics in one process. `totals`: where they are added up, if they are; `also` gets each payload that
    could be read. `audit`: records payloads, where a config wants that."""

    def __init__(self, config: TelemetryConfig, server: Server, counters: Counters, totals: LabelTotals | None) -> None:
        self.config, self.server, self.counters, self.totals = config, server, counters, totals
        self.on = True
        self.listeners = listeners_of(config)
        """Names of the listeners whose clients are asked; None: all. There may be thousands."""
        self.reader = PushReader(config)
        self.terms = WeakValueDictionary[str, TelemetryTerms]()
        """Terms of the clients of a listener, by its name, as long as it has any."""
        self.also: PushTarget | None = None
        self.audit: PushTarget | None = None
        self.work = SlowWork(server.reactor, SHARE)
        self.waiting = 0
        self.by_network = Counter[str]()

    def record_in(self, audit: PushTarget) -> None:
        """Give payloads to the audit, too, where the config in force wants that."""
        self.audit = audit
        if self.on and "audit" in self.config.to:
            self.also = audit

    def ready_for(self, config: TelemetryConfig | None, totals: LabelTotals | None) -> Callable[[], None]:
        """Return what follows this section of the config from then on, and cannot fail; None: nobody is asked for
        anything any more."""
        reader, listeners = (None, None) if config is None else (PushReader(config), listeners_of(config))

        def follow() -> None:
            self.on, self.totals, self.also = config is not None, totals, None
            if config is not None and reader is not None:
                self.config, self.reader, self.listeners = config, reader, listeners
                self.also = self.audit if "audit" in config.to else None
            for listener, terms in self.terms.items():
                terms.use(*self.wanted(listener))

        return follow

    def mode(self, listener: str) -> str:
        """Return how the clients of this listener are asked; empty where they are not."""
        named = self.listeners
        return self.config.serve if self.on and (named is None or listener in named) else ""

    def wanted(self, listener: str) -> tuple[float, tuple[str, ...]]:
        """Return how often the clients of a listener are to push, in seconds, and what. Those that were asked before,
        and are no more, are told that nothing is wanted: they may not know of another answer."""
        config = self.config
        asks = self.mode(listener) in ("auto", "always")
        return (config.interval, config.requested) if asks else (ASK_AGAIN, ())

    def serve(self, session: SessionState) -> TelemetryGateway:
        """Return what takes the metrics of the client of this session."""
        listener = session.facts.listener
        terms = self.terms.get(listener)
        if terms is None:
            terms = self.terms[listener] = TelemetryTerms(self.config.serve, *self.wanted(listener), self)
        return TelemetryGateway(session, terms)

    def put(self, push: TelemetryPush) -> bool:
        """Have a payload read when its turn has come; False if too many wait. One that nobody wants any more is thrown
        away."""
        if not self.mode(push.listener):
            push.done, push.payload, push.owner = True, b"", None
            return True
        size, network = size_of(push), network_of(push.address)
        if self.waiting + size > MOST_WAITING or self.by_network[network] + size > MOST_OF_ONE:
            self.counters.count("telemetry_without_room")
            return False
        self.waiting += size
        self.by_network[network] += size
        self.work.add(network, PushJob(self, push, self.who(push)), partial(self.reader.read, push))
        return True

    def leave(self, push: TelemetryPush) -> None:
        size, network = size_of(push), network_of(push.address)
        self.waiting -= size
        self.by_network[network] -= size
        if not self.by_network[network]:
            del self.by_network[network]

    def who(self, push: TelemetryPush) -> dict[str, Any] | None:
        """Return the columns of an event that say whose connection it is, which may end before the payload is read;
        None: no event is wanted of what comes now."""
        if self.also is None:
            return None
        if push.owner is None:
            return {}
        connection: Connection = push.owner
        return connection_columns(ConnectionWho(connection, self.server.taps.fanout.picture(connection.facts.cluster)))

    def take(self, push: TelemetryPush, read: PushRead | None, who: dict[str, Any] | None) -> None:
        """Add up what was read of a payload; None: it could not be read. `who`: as when it came."""
        self.leave(push)
        push.done, push.unreadable = True, read is None
        if read is None:
            self.counters.count("telemetry_unreadable")
        else:
            if read.left_out:
                self.counters.count("telemetry_points_left_out", read.left_out)
            self.add(read)
            if self.also is not None and who is not None:
                self.also(push, read, who)
        push.payload, push.owner = b"", None

    def add(self, read: PushRead) -> None:
        if self.totals is None or self.totals.telemetry is None:
            return
        if tuple(self.totals.telemetry.labels) != read.labels:  # read for the config before
            return
        now = monotonic()
        self.totals.tick(now)
        for series, lines in read.counters.items():
            self.totals.add(CLIENT_TELEMETRY, series, list(lines.items()), now)
        self.totals.add_gauges(read.gauges, now)


def listeners_of(config: TelemetryConfig) -> frozenset[str] | None:
    """Return the names of the listeners whose clients are asked; None for all."""
    return None if config.listeners is None else frozenset(config.listeners)


def size_of(push: TelemetryPush) -> int:
    """Return the bytes that a payload takes while it waits, with the names that its client has chosen."""
    return EACH + len(push.payload) + WIDEST * (len(push.client_id) + len(push.software) + len(push.principal))


class PushJob:
    """Work of the thread on one payload, which nobody's end makes needless."""

    closed = False

    def __init__(self, telemetry: ClientTelemetry, push: TelemetryPush, who: dict[str, Any] | None) -> None:
        self.telemetry, self.push, self.who = telemetry, push, who

    def computed(self, result: Any) -> None:
        self.telemetry.take(self.push, result, self.who)

    def crashed(self, error: Exception) -> None:
        """Count the payload as one that cannot be read; the error is in the log."""
        if not self.push.done:
            self.telemetry.take(self.push, None, self.who)
