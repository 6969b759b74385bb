"""Counting by topic, client, principal and group, put together: its sink, and when what was counted is gathered.

Strategy. Without labels in the config there is no sink, and without clients' own metrics nothing of this is imported.
With some, connections are
observed as for a summary of the audit, whose summaries are used where there is one. What they have counted is gathered
for each scrape, and every `EVERY` seconds, since names are chosen by what moves in a minute.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from time import monotonic, thread_time

from kproxy.config.document import Config
from kproxy.net.loop.turns import SLICE, in_turns
from kproxy.net.server import Server
from kproxy.sinks.labels.label_sink import LabelSink
from kproxy.sinks.labels.shares import LabelShare, share_of
from kproxy.sinks.labels.totals import LabelTotals

EVERY = 10.0
"""Seconds from one gathering to the next."""


class Labelling:
    """Counting by label in one process, from `start` on."""

    def __init__(self, config: Config, server: Server) -> None:
        self.server, self.reactor = server, server.reactor
        self.totals = LabelTotals(config.metrics, config.telemetry)
        self.sink: LabelSink | None = None
        if config.metrics.by:
            self.sink = LabelSink(self.totals, monotonic, server.taps.fanout.pictures)
            server.taps.summary_for = self.sink.summary_for

    def start(self) -> None:
        """Count from now on; connections that have no summary of the audit's get one."""
        if self.sink is not None:
            self.server.taps.fanout.add(self.sink)
        self.reactor.call_at(monotonic() + EVERY, self.tick)

    def tick(self) -> None:
        """Gather what was counted; called every `EVERY` seconds."""
        self.go_on(self.gather())

    def gather(self) -> Iterator[None]:
        """Add what connections have counted to the totals, a connection a step."""
        if self.sink is None:
            self.totals.tick(monotonic())
        else:
            yield from self.sink.gather()

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
        await in_turns(self.gather())
        return share_of(self.totals, monotonic())
