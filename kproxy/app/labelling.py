"""Counting by topic, client, principal and group, put together: its sink, and when what was counted is gathered.

Strategy. Without labels in the config there is no sink, and without clients' own metrics nothing of this is imported.
With some, connections are
observed as for a summary of the audit, whose summaries are used where there is one. What they have counted is gathered
for each scrape, and every `EVERY` seconds, since names are chosen by what moves in a minute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from time import monotonic, thread_time
from typing import TYPE_CHECKING
from uuid import UUID

import trio

from kproxy.app.config.document import Config
from kproxy.base.errors import DecodeError
from kproxy.protocol.breath import each
from kproxy.record.exchange import Who
from kproxy.record.metrics.config import MetricsConfig
from kproxy.record.metrics.label_sink import LabelSink
from kproxy.record.metrics.shares import LabelShare, make_share
from kproxy.record.metrics.totals import LabelTotals
from kproxy.record.observer.summary import Summary
from kproxy.runtime.io.turns import SLICE, in_a_turn, in_turns
from kproxy.runtime.server import Server
from kproxy.runtime.upstreams.own_connection import MAX_METADATA, own_connection, send_request
from kproxy.runtime.upstreams.upstream import Upstream
from kproxy.session.cluster import BY_ID_VERSION, named_topics_request, read_topics

if TYPE_CHECKING:
    from kproxy.record.audit.audit_sink import AuditSink

EVERY = 10.0
"""Seconds from one gathering to the next."""


class Labelling:
    """Counting by label in one process, from `start` on. `tells`: this process tells the numbers itself."""

    def __init__(self, server: Server, *, tells: bool) -> None:
        self.server, self.reactor = server, server.reactor
        self.totals = LabelTotals(MetricsConfig(), rests=tells)
        self.sink: LabelSink | None = None
        self.audit: AuditSink | None = None
        """The audit, whose summaries are counted in, if there is one."""
        self.started = False

    def ready_for(self, config: Config) -> Callable[[], None]:
        """Return what counts by the labels of this config from then on, and cannot fail."""
        tells, metrics = config.tells_labels, config.metrics
        use = self.totals.ready_for(metrics if tells else MetricsConfig(), config.telemetry if tells else None)

        def follow() -> None:
            before = set(self.totals.tables)
            if self.sink is not None and not (tells and "topic" in metrics.by):
                self.sink.unnamed.give_up(monotonic())
            use()
            if self.sink is not None and not (tells and metrics.by):
                self.leave(self.sink)
            elif self.sink is not None:
                self.sink.use_labels()
                if self.totals.tables.keys() != before:  # else observers would forget for nothing what they have learnt
                    self.server.taps.fanout.look_anew()
            elif tells and metrics.by:
                self.sink = LabelSink(self.totals, monotonic, self.server.taps.fanout.pictures)
                self.count_in(self.sink)

        return follow

    def start(self) -> None:
        """Count from now on; connections that have no summary of the audit's get one."""
        self.started = True
        if self.sink is not None:
            self.server.taps.fanout.add(self.sink)
        self.reactor.call_at(monotonic() + EVERY, self.tick)

    def count_in(self, sink: LabelSink) -> None:
        """Have what passes counted by this sink, in the audit's summaries where there are some."""
        if self.audit is not None:
            self.audit.labels = sink
        else:
            self.server.taps.summary_for = sink.summary_for
        if self.started:
            self.server.taps.fanout.add(sink, slowly=True)

    def leave(self, sink: LabelSink) -> None:
        self.sink = None
        sink.leave()
        if self.audit is not None:
            self.audit.labels = None
        else:
            self.server.taps.summary_for = uncounted
        self.server.taps.fanout.remove(sink, slowly=True)

    def tick(self) -> None:
        """Gather what was counted; called every `EVERY` seconds."""
        self.go_on(self.gather())

    def gather(self) -> Iterator[None]:
        """Add what connections have counted to the totals, a connection a step."""
        if self.sink is None:
            self.totals.tick(monotonic())
        else:
            yield from self.sink.gather()
            self.ask_names(self.sink)

    def ask_names(self, sink: LabelSink) -> None:
        """Ask brokers for the names of topics of which only the ids are known."""
        for name, topic_ids in sink.unnamed.to_ask(monotonic()).items():
            upstream = self.server.upstreams.get(name)
            if upstream is not None:
                self.reactor.spawn(self.learn_names, upstream, topic_ids)

    async def learn_names(self, upstream: Upstream, topic_ids: Sequence[bytes]) -> None:
        """Learn the names of these topics from a broker, whatever else it says. From one that does not talk to kproxy
        nothing is learnt: then what clients are shown has to do."""
        with suppress(OSError, DecodeError), trio.move_on_after(EVERY):
            async with own_connection(upstream) as sock:
                frame = await send_request(sock, named_topics_request(topic_ids), MAX_METADATA)
            names = await in_a_turn(self.reactor, f"cluster {upstream.name}", lambda: names_of(topic_ids, frame))
            if self.server.upstreams.get(upstream.name) is upstream:  # else the name is another cluster's by now
                self.server.taps.fanout.picture(upstream.name).learn_names(names)

    def go_on(self, steps: Iterator[None]) -> None:
        """Gather a few milliseconds at a time, so that traffic goes on in between."""
        until = thread_time() + SLICE
        for _ in steps:
            if thread_time() > until:
                self.reactor.soon(partial(self.go_on, steps))
                return
        self.reactor.call_at(monotonic() + EVERY, self.tick)

    async def share(self) -> LabelShare:
        """Return all that was counted so far, for the process that puts the workers' totals together."""
        made: list[LabelShare] = []
        await in_turns(self.gather())
        await in_turns(make_share(self.totals, monotonic(), made))
        return made[0]


def names_of(topic_ids: Sequence[bytes], frame: bytes) -> dict[str, str]:
    """Return the names of these topics in an answer, by their ids in hex and dashes, and none of others. Raises
    DecodeError."""
    asked = set(topic_ids)
    topics = each(read_topics(frame, BY_ID_VERSION))
    return {str(UUID(bytes=one)): name.decode("utf-8", "surrogateescape") for name, one in topics if one in asked}


def uncounted(who: Who) -> Summary | None:
    """Return None: nobody counts what passes on a connection."""
    return None
