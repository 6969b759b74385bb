"""A driver of random sessions with the taps of a real connection in it, and sinks that come and go.

    driver = Tapped(rules, chances=Random(seed), late=[…])
    driver.attach(sink)

Bytes go through the shared buffer of `net`, as those of sockets do, so that a watcher that keeps a view of it is found
out; or past it, as in a splice, where nobody has to see them. Sinks have chances of their own: the session goes the
same way with and without them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random
from types import SimpleNamespace
from typing import Any, Self, cast

import structlog

from kproxy.record.exchange import Depth, ObservedExchange, Who
from kproxy.record.fanout import Fanout, Sink
from kproxy.record.observer.summary import Summary
from kproxy.runtime.connection import Connection
from kproxy.runtime.io.scheduler import BUFFER
from kproxy.runtime.io.side import VIEW
from kproxy.runtime.io.splice import NOT_LOOKED_AT
from kproxy.runtime.protocols import ConnectionPhase, Feed
from kproxy.runtime.tap import RequestLinesFor
from kproxy.runtime.taps import Taps
from kproxy.session.commands import BROKER, CLIENT
from tests.support.chaos_session import Driver


@dataclass(eq=False)
class Hungry:
    """A sink that wants all frames of both sides in full, and keeps the exchanges."""

    broker_side: bool = True
    most: Depth = Depth.FULL
    seen: list[ObservedExchange] = field(default_factory=list)
    behind: list[ObservedExchange] = field(default_factory=list)
    open: list[Who] = field(default_factory=list)
    over: list[Who] = field(default_factory=list)

    def depth(self, key: int, version: int) -> Depth:
        return self.most

    def take(self, seen: ObservedExchange) -> None:
        self.seen.append(seen)

    def take_behind(self, seen: ObservedExchange) -> None:
        self.behind.append(seen)

    def opened(self, who: Who, now: float) -> None:
        self.open.append(who)

    def closed(self, who: Who, now: float) -> None:
        self.over.append(who)


class Out(bytearray):
    """The bytes that left on one side; `tell` gets those that the session sends by itself, before they are added."""

    tell: Callable[[bytes | bytearray | memoryview], None] = staticmethod(lambda data: None)

    def __iadd__(self, data: Any) -> Out:  # type: ignore[misc]
        self.tell(data)
        self.extend(data)
        return self


class Tapped(Driver):
    """A random session's driver with taps. `first`: sinks from the beginning on; `guests`: those that come and go at
    any moment. `summary` counts, too, and exchanges are passed to the `RequestLines` that `request_lines_for` makes.
    `samples`: guests take only what there is time for, which is over and comes again at any moment."""

    def __init__(
        self, *args: Any, chances: Random, first: Iterable[Sink] = (), guests: Iterable[Sink] = (),
        summary: Summary | None = None, request_lines_for: RequestLinesFor | None = None, samples: bool = False,
        **more: Any,
    ) -> None:  # fmt: skip
        self.fanout = Fanout(structlog.get_logger())
        self.link: Any = None
        self.taps = Taps(self.fanout, lambda: cast("Any", [] if self.link is None else [self.link]))
        self.chances, self.guests, self.samples = chances, list(guests), samples
        self.spent: list[float] = []
        if summary is not None:
            self.taps.summary_for = lambda who: summary
        if request_lines_for is not None:
            self.taps.request_lines_for = request_lines_for
        for sink in first:
            self.fanout.add(sink)
        self.ready = False
        self.trace: list[tuple[Any, ...]] = []  # what had left, who was read, and when, after each piece that came
        self.spliced = 0
        super().__init__(*args, **more)

    def obey(self) -> None:
        if not self.ready:
            self.ready = True
            self.connect()
        super().obey()

    def connect(self) -> None:
        """Put a stand-in for the connection around the session, as `net` does, and open the taps."""
        session = self.session
        self.link = Link(
            session=session, facts=session.facts, leaving=None, node=1, broker_address=("broker", 9092), since=self.now,
            listener=SimpleNamespace(name="main", tls=None), client_address=("10.0.0.1", 50000), cause="", message="",
            connected_after=0.0, phase=ConnectionPhase.OPEN,
            client=SimpleNamespace(feed=session.from_client, sock=None, mute=lambda reason: None), tap=None,
            broker=SimpleNamespace(feed=session.from_broker, sock=None), tapped=None,
        )  # fmt: skip
        for side in (CLIENT, BROKER):
            self.out[side] = out = Out()
            out.tell = self.teller(side)
        self.taps.opened(self.link)

    def teller(self, side: int) -> Callable[[Any], None]:
        return lambda data: self.taps.sent(self.link, side, data, self.now) if self.session.observer else None

    def feed(self, side: int, data: bytes, chunk: int = 0) -> Self:
        """Feed bytes as `net` does: they lie in the shared buffer, pass, and are overwritten."""
        chunk = min(chunk or 1, len(BUFFER))
        for start in range(0, len(data), chunk):
            self.come_and_go()
            part = data[start : start + chunk]
            take = self.link.client.feed if side == CLIENT else self.link.broker.feed
            if self.splices(side, len(part)):
                self.spliced += 1
                cast("Out", self.out[1 - side]).extend(part)
                if self.link.tap is None:
                    take(NOT_LOOKED_AT, len(part), self.now)
                else:
                    self.link.tap.pass_over(side, len(part), self.now)
            else:
                BUFFER[: len(part)] = part
                go = take(VIEW, len(part), self.now)
                cast("Out", self.out[1 - side]).extend(VIEW[:go])
                BUFFER[: len(part)] = b"\xee" * len(part)
            self.obey()
            sizes = [len(out) for out in self.out.values()]
            self.trace.append((sizes, tuple(self.read.values()), set(self.shut), str(self.closed), self.now))
        return self

    def splices(self, side: int, size: int) -> bool:
        """Return True if `net` may have the kernel pass on so many bytes, see `splice.pass_by`."""
        lane, tap = (self.session.requests, self.session.responses)[side], self.link.tap
        unseen = lane.skip if tap is None else min(lane.skip, tap.unseen(side))
        return lane.kept is None and unseen >= size

    def later(self, seconds: float) -> Tapped:
        self.come_and_go()
        super().later(seconds)
        return self

    def come_and_go(self) -> None:
        """Add or remove one of the guests, by chance; or samplers have had their time, or have it again."""
        if self.guests and self.chances.random() < (0.1 if self.samples else 0.3):
            guest = self.chances.choice(self.guests)
            if self.samples and self.chances.random() < 0.7:
                self.fanout.set_sampling(not self.fanout.looking)
            elif guest in (*self.fanout.steady, *self.fanout.samplers):
                self.fanout.remove(guest)
            elif self.samples:
                self.fanout.add_sampler(guest, self.spent.append)
            else:
                self.fanout.add(guest)

    def end(self) -> None:
        """End the session and close the taps of its connection."""
        self.session.commands.clear()
        self.session.end(self.now)
        self.taps.closed(self.link, self.now)


class Link(SimpleNamespace):
    """A stand-in for `net`'s connection; like that one it is equal to itself alone, whatever its attributes."""

    def __hash__(self) -> int:  # type: ignore[override]
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other

    def chain_feeds(self) -> None:
        Connection.chain_feeds(cast("Connection", self))

    def until_idle(self, feed: Feed) -> Feed:
        return Connection.until_idle(cast("Connection", self), feed)

    def watch(self, look: Callable[[], None]) -> None:
        """Call `look` at once: this connection is never put aside."""
        look()
