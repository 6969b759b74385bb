"""Metrics by topic, client, principal and group, put together: the sink, and the schedule for gathering its counts.

Strategy. If the config has no labels, no sink is made; if it has no clients' own metrics, their modules are not
imported. Otherwise connections are observed as for an audit summary; with an audit, its summaries are used. Their
counts are gathered for each scrape and every `EVERY` seconds, because the top names are chosen by the rate over a
minute.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from time import monotonic, thread_time
from typing import TYPE_CHECKING, Any
from uuid import UUID
from weakref import WeakValueDictionary

import trio

from kproxy.app.config.document import Config
from kproxy.base.cooperative import yielding
from kproxy.base.errors import DecodeError
from kproxy.record.audit.state_events import connection_columns
from kproxy.record.exchange import Who
from kproxy.record.metrics.client_telemetry import CLIENT_TELEMETRY, PushRead, PushReader, TelemetryConfig
from kproxy.record.metrics.label_sink import LabelSink
from kproxy.record.metrics.totals import LabelTotals, MetricsConfig
from kproxy.record.metrics.worker_totals import LabelShare, make_share
from kproxy.record.observer.summary import Summary
from kproxy.rules.values.address import network_of
from kproxy.runtime.connection_view import ConnectionInfo
from kproxy.runtime.io.reactor import SlowWork
from kproxy.runtime.io.scheduler import SLICE, in_a_turn, in_turns
from kproxy.runtime.server import Server
from kproxy.runtime.upstreams.own_connection import MAX_METADATA, own_connection, send_request
from kproxy.runtime.upstreams.upstream import Upstream
from kproxy.session.cluster import BY_ID_VERSION, named_topics_request, read_topics
from kproxy.session.session_state import SessionState
from kproxy.session.telemetry import TelemetryGateway, TelemetryPush, TelemetrySettings

if TYPE_CHECKING:
    from kproxy.record.audit.audit_sink import AuditSink
    from kproxy.runtime.connection import Connection
    from kproxy.session.counters import Counters

EVERY = 10.0
"""Seconds between two runs."""


class LabelMetrics:
    """Counting by label in one process, from `start` on. `tells`: this process publishes the numbers itself."""

    def __init__(self, server: Server, *, tells: bool) -> None:
        self.server, self.reactor = server, server.reactor
        self.totals = LabelTotals(MetricsConfig(), rests=tells)
        self.sink: LabelSink | None = None
        self.audit: AuditSink | None = None
        """The audit that provides the summaries, or None."""
        self.started = False

    def prepare(self, config: Config) -> Callable[[], None]:
        """Return a callback that counts by the labels of this config and cannot fail."""
        tells, metrics = config.exports_labels, config.metrics
        use = self.totals.prepare(metrics if tells else MetricsConfig(), config.telemetry if tells else None)

        def commit() -> None:
            before = set(self.totals.tables)
            if self.sink is not None and not (tells and "topic" in metrics.by):
                self.sink.unnamed.give_up(monotonic())
            use()
            if self.sink is not None and not (tells and metrics.by):
                self.drop_sink(self.sink)
            elif self.sink is not None:
                self.sink.use_labels()
                # otherwise observers would forget the names that they have learned
                if self.totals.tables.keys() != before:
                    self.server.taps.fanout.renew_depths()
            elif tells and metrics.by:
                self.sink = LabelSink(self.totals, monotonic, self.server.taps.fanout.pictures)
                self.count_in(self.sink)

        return commit

    def start(self) -> None:
        """Start to count; connections without an audit summary get one."""
        self.started = True
        if self.sink is not None:
            self.server.taps.fanout.add(self.sink)
        self.reactor.call_at(monotonic() + EVERY, self.tick)

    def count_in(self, sink: LabelSink) -> None:
        """Count traffic in this sink, from the audit's summaries if they exist."""
        if self.audit is not None:
            self.audit.labels = sink
        else:
            self.server.taps.summary_for = sink.summary_for
        if self.started:
            self.server.taps.fanout.add(sink, slowly=True)

    def drop_sink(self, sink: LabelSink) -> None:
        self.sink = None
        sink.close()
        if self.audit is not None:
            self.audit.labels = None
        else:
            self.server.taps.summary_for = uncounted
        self.server.taps.fanout.remove(sink, slowly=True)

    def tick(self) -> None:
        """Gather the counts; called every `EVERY` seconds."""
        self.gather_in_slices(self.gather())

    def gather(self) -> Iterator[None]:
        """Add the counts of connections to the totals, one connection a step."""
        if self.sink is None:
            self.totals.tick(monotonic())
        else:
            yield from self.sink.gather()
            self.ask_names(self.sink)

    def ask_names(self, sink: LabelSink) -> None:
        """Ask brokers for topic names of ids without a known name."""
        for name, topic_ids in sink.unnamed.to_ask(monotonic()).items():
            upstream = self.server.upstreams.get(name)
            if upstream is not None:
                self.reactor.spawn(self.learn_names, upstream, topic_ids)

    async def learn_names(self, upstream: Upstream, topic_ids: Sequence[bytes]) -> None:
        """Learn the names of these topics from a broker's answer, ignoring the rest of it. A broker that does not
        answer kproxy teaches no names; then only names in responses to clients are known."""
        with suppress(OSError, DecodeError), trio.move_on_after(EVERY):
            async with own_connection(upstream) as sock:
                frame = await send_request(sock, named_topics_request(topic_ids), MAX_METADATA)
            names = await in_a_turn(self.reactor, f"cluster {upstream.name}", lambda: names_of(topic_ids, frame))
            if self.server.upstreams.get(upstream.name) is upstream:  # otherwise another cluster has the name by now
                self.server.taps.fanout.picture(upstream.name).learn_names(names)

    def gather_in_slices(self, steps: Iterator[None]) -> None:
        """Gather a few milliseconds at a time, so that traffic goes on in between."""
        until = thread_time() + SLICE
        for _ in steps:
            if thread_time() > until:
                self.reactor.soon(partial(self.gather_in_slices, steps))
                return
        self.reactor.call_at(monotonic() + EVERY, self.tick)

    async def share(self) -> LabelShare:
        """Return all counts so far, for the process that adds up the workers' totals."""
        made: list[LabelShare] = []
        await in_turns(self.gather())
        await in_turns(make_share(self.totals, monotonic(), made))
        return made[0]


def names_of(topic_ids: Sequence[bytes], frame: bytes) -> dict[str, str]:
    """Return the names of these topics in an answer, by their ids in hex and dashes; other topics are skipped. Raises
    DecodeError."""
    asked = set(topic_ids)
    topics = yielding(read_topics(frame, BY_ID_VERSION))
    return {str(UUID(bytes=one)): name.decode("utf-8", "surrogateescape") for name, one in topics if one in asked}


def uncounted(who: Who) -> Summary | None:
    """Return None: this connection is not counted."""
    return None


MOST_WAITING = 16 << 20
"""Maximum bytes of payloads that wait to be read in this process."""
MOST_OF_ONE = MOST_WAITING // 4
"""Maximum of them from one address, so that one busy address leaves room for others."""
EACH = 1024
"""Overhead in bytes that each payload counts in addition to its size."""
WIDEST = 4
"""Maximum bytes of a character in memory."""
ASK_AGAIN = 300.0
"""Seconds until a client without a subscription asks again; Kafka's default."""
SHARE = 0.25
"""Maximum share of a core for reading payloads."""
PushTarget = Callable[[TelemetryPush, PushRead, dict[str, Any]], None]


# Clients' own metrics, put together: the inbox for pushed payloads, and the destinations of decoded ones.
#
# Strategy. Without the section in the config none of these modules is imported. Payloads are read in a thread with a
# share of a core, since it does not release the interpreter; addresses take turns. A payload is kept if its connection
# closes first, because the last push of a client comes just before its end. The waiting bytes are limited, in total and
# per address; clients over the limit receive an error that asks them to retry later.
class ClientTelemetry:
    """Clients' metrics in one process. `totals`: sums of the metrics, if configured; `also` gets each decoded payload.
    `audit`: records payloads, if a config enables that."""

    def __init__(self, config: TelemetryConfig, server: Server, counters: Counters, totals: LabelTotals | None) -> None:
        self.config, self.server, self.counters, self.totals = config, server, counters, totals
        self.on = True
        self.listeners = listeners_of(config)
        """Names of the listeners with subscribed clients; None: all. There may be thousands."""
        self.reader = PushReader(config)
        self.terms = WeakValueDictionary[str, TelemetrySettings]()
        """Terms of the clients of a listener, by its name, while it has clients."""
        self.also: PushTarget | None = None
        self.audit: PushTarget | None = None
        self.work = SlowWork(server.reactor, SHARE)
        self.waiting = 0
        self.by_network = Counter[str]()

    def record_in(self, audit: PushTarget) -> None:
        """Send payloads to the audit as well, if the config in force asks for it."""
        self.audit = audit
        if self.on and "audit" in self.config.to:
            self.also = audit

    def prepare(self, config: TelemetryConfig | None, totals: LabelTotals | None) -> Callable[[], None]:
        """Return a callback that follows this section of the config and cannot fail; None: no client is subscribed any
        longer."""
        reader, listeners = (None, None) if config is None else (PushReader(config), listeners_of(config))

        def commit() -> None:
            self.on, self.totals, self.also = config is not None, totals, None
            if config is not None and reader is not None:
                self.config, self.reader, self.listeners = config, reader, listeners
                self.also = self.audit if "audit" in config.to else None
            for listener, terms in self.terms.items():
                terms.use(*self.wanted(listener))

        return commit

    def mode(self, listener: str) -> str:
        """Return the mode for the clients of this listener; empty if they are not subscribed."""
        named = self.listeners
        return self.config.serve if self.on and (named is None or listener in named) else ""

    def wanted(self, listener: str) -> tuple[float, tuple[str, ...]]:
        """Return the push interval for the clients of a listener, in seconds, and the metric names. Clients subscribed
        by an earlier config get an empty subscription, because they may not know another answer."""
        config = self.config
        asks = self.mode(listener) in ("auto", "always")
        return (config.interval, config.requested) if asks else (ASK_AGAIN, ())

    def serve(self, session: SessionState) -> TelemetryGateway:
        listener = session.facts.listener
        terms = self.terms.get(listener)
        if terms is None:
            terms = self.terms[listener] = TelemetrySettings(self.config.serve, *self.wanted(listener), self.put)
        return TelemetryGateway(session, terms)

    def put(self, push: TelemetryPush) -> bool:
        """Have a payload read when its turn has come; False if too many wait. Payloads that are no longer needed are
        dropped."""
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

    def drop_push(self, push: TelemetryPush) -> None:
        size, network = size_of(push), network_of(push.address)
        self.waiting -= size
        self.by_network[network] -= size
        if not self.by_network[network]:
            del self.by_network[network]

    def who(self, push: TelemetryPush) -> dict[str, Any] | None:
        """Return the event columns that identify the connection, which may end before the payload is read; None: no
        event is recorded."""
        if self.also is None:
            return None
        if push.owner is None:
            return {}
        connection: Connection = push.owner
        return connection_columns(ConnectionInfo(connection, self.server.taps.fanout.picture(connection.facts.cluster)))

    def take(self, push: TelemetryPush, read: PushRead | None, who: dict[str, Any] | None) -> None:
        """Add up the metrics of a payload; None: it could not be read. `who`: as at its arrival."""
        self.drop_push(push)
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
        if tuple(self.totals.telemetry.labels) != read.labels:  # read for the previous config
            return
        now = monotonic()
        self.totals.tick(now)
        for series, lines in read.counters.items():
            self.totals.add(CLIENT_TELEMETRY, series, list(lines.items()), now)
        self.totals.add_gauges(read.gauges, now)


def listeners_of(config: TelemetryConfig) -> frozenset[str] | None:
    """Return the names of the listeners with subscribed clients; None for all."""
    return None if config.listeners is None else frozenset(config.listeners)


def size_of(push: TelemetryPush) -> int:
    """Return the memory that a payload takes while it waits, in bytes, including the names that its client has
    chosen."""
    return EACH + len(push.payload) + WIDEST * (len(push.client_id) + len(push.software) + len(push.principal))


class PushJob:
    """Job of the thread for one payload; not cancelled when its connection ends."""

    closed = False

    def __init__(self, telemetry: ClientTelemetry, push: TelemetryPush, who: dict[str, Any] | None) -> None:
        self.telemetry, self.push, self.who = telemetry, push, who

    def computed(self, result: Any) -> None:
        self.telemetry.take(self.push, result, self.who)

    def crashed(self, error: Exception) -> None:
        """Count the payload as unreadable; the error is in the log."""
        if not self.push.done:
            self.telemetry.take(self.push, None, self.who)
