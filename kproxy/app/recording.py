"""Recording, put together: the sinks that observe the traffic, and the destinations of their events.

Strategy. Without an `audit` section, captures or tails, there are no sinks, connections have no tap, and recording
costs no time. With an audit, a tick each second closes summaries, records changes of rules and topology, and follows
the wall clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from time import monotonic, thread_time, time
from typing import TYPE_CHECKING, Any, cast
from uuid import uuid4

import trio
from structlog.typing import FilteringBoundLogger

from kproxy.app.config.document import Config
from kproxy.record.audit.audit_sink import AuditSink
from kproxy.record.audit.event_sink import EventGate
from kproxy.record.audit.outlets import make_recorder
from kproxy.record.audit.state_events import RuleEvents, TopologyEvents, telemetry_event
from kproxy.record.events.schema import TELEMETRY_EVENT
from kproxy.rules.rule_set import ActiveRule
from kproxy.runtime.io.scheduler import SLICE, Background, a_few_at_a_time, in_a_turn
from kproxy.runtime.server import Server
from kproxy.runtime.upstreams.upstream import MetadataPoller, Upstream

from .main import WallClock, instance

if TYPE_CHECKING:
    from kproxy.record.audit.config import AuditConfig
    from kproxy.record.captures.running_captures import Captures
    from kproxy.record.exchange import ObservedExchange
    from kproxy.record.filters import ExchangeView
    from kproxy.record.metrics.client_telemetry import PushRead
    from kproxy.record.metrics.label_sink import LabelSink
    from kproxy.record.otlp.export import OtlpCounters, OtlpSettings
    from kproxy.runtime.connection_view import ConnectionInfo
    from kproxy.session.telemetry import TelemetryPush

TICK = 1.0
"""Seconds between two ticks of the audit."""
CHECK_EVERY = 0.05
"""Seconds between two checks whether events can be recorded again, while clients are not read."""
LINES_WAIT = 0.02
"""Seconds that lines of requests may wait, so that several are made together."""
LAST_WORDS = 10.0
"""Maximum seconds to write the rest after the drain; Kubernetes kills a process 30 s after SIGTERM."""


class Audit:
    """Audit of one process, from `start` to `close`. With several workers, only number 0 asks brokers for
    topologies."""

    def __init__(
        self, config: Config, audit: AuditConfig, server: Server, live: Callable[[], Iterable[ActiveRule]],
        log: FilteringBoundLogger, *, worker: int = 0, labels: LabelSink | None = None,
        otlp: tuple[OtlpSettings, OtlpCounters] | None = None,
    ) -> None:  # fmt: skip
        self.server, self.log, self.reactor = server, log, server.reactor
        self.wall = WallClock()
        source = f"{instance(config)}/{uuid4()}/{worker}"
        self.recorder = make_recorder(audit, source, log, otlp=otlp)
        self.gate = EventGate(self.recorder, self.on_blocked, self.call_later)
        self.sink = AuditSink(audit, self.gate, self.wall, labels)
        self.rules = RuleEvents(self.gate, live)
        fanout = server.taps.fanout
        self.topology, self.telling = TopologyEvents(self.gate, fanout.pictures), False
        self.every, self.polls = audit.topology_every, not worker
        self.pollers: dict[str, tuple[Upstream, Background]] = {}
        self.polled: Mapping[str, Upstream] = {}
        """Clusters with brokers to ask."""
        server.taps.summary_for, server.taps.request_lines_for = self.sink.summary_for, self.sink.request_lines_for

    def start(self, nursery: trio.Nursery) -> None:
        """Start to record. Raises OSError or KproxyError if the destination cannot be written."""
        self.recorder.start()
        self.server.taps.fanout.add(self.sink)
        self.follow_clusters(self.server.upstreams)
        self.reactor.call_at(monotonic() + TICK, self.tick)

    def follow_clusters(self, upstreams: Mapping[str, Upstream]) -> None:
        """Ask the brokers of exactly these clusters for their topics periodically; a few begin at a time."""
        if self.polls:
            self.polled = upstreams
            self.reactor.spawn(a_few_at_a_time, self.poll())

    def poll(self) -> Iterator[None]:
        """Stop and start to ask, one cluster in each step. Another config may be put in force between steps."""
        for name, (upstream, task) in list(self.pollers.items()):
            if self.polled.get(name) is not upstream and self.pollers.get(name) == (upstream, task):
                task.stop()
                del self.pollers[name]
                yield
        for name, upstream in list(self.polled.items()):
            if name not in self.pollers and self.polled.get(name) is upstream:
                poller = MetadataPoller(upstream, self.server.taps.fanout.picture(name), self.every, self.log)
                self.pollers[name] = upstream, Background(self.reactor.spawn, poller.run)
                yield

    def tick(self) -> None:
        """Follow the wall clock and record changes; called once a second."""
        self.wall.adjust()
        self.write_lines(self.sink.tick(monotonic()))

    def write_lines(self, lines: Iterator[None]) -> None:
        """Work through the tick's lines, a few milliseconds at a time, so that traffic goes on in between."""
        until = thread_time() + SLICE
        for _ in lines:
            if thread_time() > until:
                self.reactor.soon(partial(self.write_lines, lines))
                return
        self.rules.tick(time())
        if not self.telling and self.topology.due(time()):
            self.telling = True
            self.reactor.spawn(self.record_topology)
        self.reactor.call_at(monotonic() + TICK, self.tick)

    async def record_topology(self) -> None:
        """Put the events of changed clusters, in turns with others."""
        try:
            await in_a_turn(self.reactor, "topology", lambda: self.topology.tick(time()))
        finally:
            self.telling = False

    def call_later(self, call: Callable[[], None]) -> None:
        self.reactor.call_at(monotonic() + LINES_WAIT, call)

    @property
    def trouble(self) -> str:
        """Return why clients are not read; an empty text if they are read."""
        return "audit: events cannot be written, and when_full is block" if self.gate.shut else ""

    def on_blocked(self) -> None:
        """Stop reading clients, because events cannot be recorded, until recording works again."""
        self.log.warning("clients are not read, because events cannot be recorded", policy="block")
        self.server.taps.stop_reading()
        self.reactor.call_at(monotonic() + CHECK_EVERY, self.check_again)

    def check_again(self) -> None:
        if self.gate.is_open():
            self.log.info("clients are read again, events can be recorded")
            self.server.taps.read_again()
        else:
            self.reactor.call_at(monotonic() + CHECK_EVERY, self.check_again)

    def take_push(self, push: TelemetryPush, read: PushRead, who: dict[str, Any]) -> None:
        self.gate.put(TELEMETRY_EVENT.name, time(), telemetry_event(push, read, who))

    async def close(self) -> None:
        """Write the remaining events, after all connections have ended; log those that cannot be written."""
        self.rules.report()
        self.topology.tick(time())
        self.gate.time_is_over()
        done = await trio.to_thread.run_sync(self.recorder.close, LAST_WORDS)
        if not done:
            lost = {name: dict(counters.dropped) for name, counters in self.recorder.counters.items()}
            self.log.error("events were left behind", timeout=LAST_WORDS, dropped=lost)


def make_captures(server: Server) -> Captures:
    """Return this process's parts in captures. To be called in trio's loop."""
    from kproxy.record.audit.request_event import request_event
    from kproxy.record.captures.running_captures import Captures
    from kproxy.record.filters import ExchangeView
    from kproxy.rules.content.schemas import decoder_of

    from .capture_topics import TopicRecorder

    recorder = TopicRecorder(server, server.log)
    token = trio.lowlevel.current_trio_token()

    def view(seen: ObservedExchange) -> ExchangeView:
        cache = server.schemas(seen.who.cluster)
        shown = seen if cache is None else replace(seen, decoder=decoder_of(lambda: cache))
        return ExchangeView(shown, lambda one: request_event(one, WallClock()))

    captures = Captures(
        server.taps.fanout,
        server=lambda who: cast("ConnectionInfo", who).server,
        wall=WallClock,
        soon=token.run_sync_soon,
        view=view,
    )
    captures.begun, captures.ending = recorder.begin, recorder.end
    captures.last = recorder.end_all
    return captures
