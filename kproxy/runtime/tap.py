"""Tap: forwards the traffic of a connection to an observer on the client side and, for captures, to one on the broker
side.

Strategy. A tap wraps the `feed` of both sides and receives every Send, so a connection without observers has no
overhead. On a connection that is already open, it begins between frames of both directions.

If all sinks are samplers (`record.fanout`) with an exhausted time budget, the tap is *asleep*: its observers are
removed, and a read costs one comparison. It wakes up with the next read after the samplers resume, in the same way as
on an open connection. A connection without traffic in that time misses nothing and stays awake. So does one with a
long-running exchange, since little can follow it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import thread_time
from typing import TYPE_CHECKING

from kproxy.protocol.scan.sketch import ANY
from kproxy.record.exchange import ObservedExchange, Who
from kproxy.record.fanout import Fanout
from kproxy.record.observer.observer import ConnectionObserver
from kproxy.record.observer.summary import Summary
from kproxy.runtime.io.scheduler import BUFFER
from kproxy.runtime.io.splice import NOT_LOOKED_AT
from kproxy.session.commands import CLIENT
from kproxy.session.frame import ANSWERED, ASKED

from .connection_view import ConnectionInfo
from .protocols import Feed

if TYPE_CHECKING:
    from kproxy.record.audit.audit_sink import RequestLines

    from .connection import Connection

SummaryFor = Callable[[Who], Summary | None]
"""Returns the summary that counts a connection, or None."""
RequestLinesFor = Callable[[Who], "RequestLines | None"]
"""Returns the object that records a connection's exchanges as lines, or None."""


LONG_WAIT = 1.0
"""Seconds after which a pending exchange keeps the tap awake; later exchanges wait for it as well."""
NOT_SEEN = -3
"""Placeholder API key of a request that passed while the tap was asleep. Its response is not reported."""


class Tap:
    """Tap of one connection, which forwards traffic to its observers.

    `observer` watches the client side, and the session reports the actions of rules to it. `behind` watches the broker
    side while a sink needs it. `settled`: all required observers have begun. `silent`: see `ExchangeBuilder`. `turn`:
    the last seen turn of the fan-out. `again`: it has slept, so requests in flight at its start were only partly
    observed.
    """

    __slots__ = (
        "again",
        "asleep",
        "behind",
        "connection",
        "fanout",
        "from_broker",
        "from_client",
        "observer",
        "request_lines_for",
        "settled",
        "silent",
        "summary_for",
        "turn",
        "who",
    )

    def __init__(
        self, connection: Connection, fanout: Fanout, summary_for: SummaryFor, request_lines_for: RequestLinesFor, *,
        late: bool,
    ) -> None:  # fmt: skip
        self.connection, self.fanout = connection, fanout
        self.summary_for, self.request_lines_for = summary_for, request_lines_for
        self.who = ConnectionInfo(connection, fanout.picture(connection.facts.cluster))
        self.from_client: Feed = connection.session.from_client
        self.from_broker: Feed = connection.session.from_broker
        connection.tapped = self.feeds
        self.again = False
        self.wake(late=late)
        self.refocus()
        if not fanout.steady and not fanout.looking:
            self.sleep()

    def wake(self, *, late: bool = True) -> None:
        """Start a new observer. `late`: the connection is already open, so the observer begins between frames."""
        connection, who = self.connection, self.who
        self.asleep, self.settled = False, not late
        fanout = self.fanout
        self.observer = ConnectionObserver(
            who, fanout.depth, self.hand_out, most=fanout.frame_limit, summary=self.summary_for(who),
            request_lines=self.request_lines_for(who),
        )  # fmt: skip
        self.behind: ConnectionObserver | None = None
        self.observer.began = not late
        self.silent = self.observer.silent = []
        connection.session.observer, connection.tap = self.observer, self

    def sleep(self) -> None:
        """Stop observing until samplers resume. Open exchanges are dropped without a report."""
        self.asleep = self.again = True
        self.settled = False
        self.connection.session.observer = self.connection.tap = None
        self.observer.abandon()
        if self.behind is not None:
            self.behind.abandon()
            self.behind = None
        self.silent = []

    # ---- what passes

    def feeds(self) -> tuple[Feed, Feed]:
        """Return the cheapest feeds of client and broker around those of the session."""
        if self.fanout.samplers:
            return self.sampled_requests, self.sampled_responses
        if self.settled and self.behind is None:
            requests = watched_requests(self, self.from_client)
            return requests, watched_responses(self.observer.to_client, self.from_broker)
        return self.client_feed, self.broker_feed

    def remove(self) -> None:
        """Stop observing, and restore the session's feeds."""
        if not self.asleep:
            self.sleep()
        self.connection.tapped = None
        self.connection.chain_feeds()

    def sampled_requests(self, view: memoryview, n: int, now: float) -> int:
        """Variant of `client_feed` for samplers, which charges the observers' time to their budget."""
        fanout = self.fanout
        if fanout.turn != self.turn and view is not NOT_LOOKED_AT:
            begun = thread_time()
            self.take_turn(now)
            fanout.spend(thread_time() - begun)
        if self.asleep:
            return self.from_client(view, n, now)
        begun = thread_time()
        if not self.settled:
            self.begin()
        if self.observer.began:
            self.observer.from_client(BUFFER, n, now)
        spent = thread_time() - begun
        go = self.from_client(view, n, now)
        begun = thread_time()
        if self.silent:
            self.report_silent()
        if go and self.behind is not None:
            self.behind.from_client(BUFFER, go, now)
        fanout.spend(spent + thread_time() - begun)
        return go

    def sampled_responses(self, view: memoryview, n: int, now: float) -> int:
        """Variant of `broker_feed` for samplers, which charges the observers' time to their budget."""
        fanout = self.fanout
        if fanout.turn != self.turn and view is not NOT_LOOKED_AT:
            begun = thread_time()
            self.take_turn(now)
            fanout.spend(thread_time() - begun)
        if self.asleep:
            return self.from_broker(view, n, now)
        begun = thread_time()
        if not self.settled:
            self.begin()
        if self.behind is not None:
            self.behind.to_client(BUFFER, n, now)
        spent = thread_time() - begun
        go = self.from_broker(view, n, now)
        begun = thread_time()
        if go and self.observer.began:
            self.observer.to_client(BUFFER, go, now)
        fanout.spend(spent + thread_time() - begun)
        return go

    def take_turn(self, now: float) -> None:
        """Follow a change of the fan-out: samplers have resumed or stopped."""
        fanout = self.fanout
        self.turn = fanout.turn
        if not fanout.steady and not fanout.looking:
            if not self.asleep and not self.observer.waits_since(now - LONG_WAIT):
                self.sleep()
        elif self.asleep:
            self.wake()
        elif fanout.steady:
            self.refocus()

    def client_feed(self, view: memoryview, n: int, now: float) -> int:
        """Forward client bytes to the observers and the session's feed. Return the feed's result."""
        if not self.settled:
            self.begin()
        if self.observer.began:
            self.observer.from_client(BUFFER, n, now)
        go = self.from_client(view, n, now)
        if self.silent:
            self.report_silent()
        if go and self.behind is not None:
            self.behind.from_client(BUFFER, go, now)
        return go

    def broker_feed(self, view: memoryview, n: int, now: float) -> int:
        """Forward broker bytes to the observers and the session's feed. Return the feed's result."""
        if not self.settled:
            self.begin()
        if self.behind is not None:
            self.behind.to_client(BUFFER, n, now)
        go = self.from_broker(view, n, now)
        if go and self.observer.began:
            self.observer.to_client(BUFFER, go, now)
        return go

    def sent(self, side: int, data: bytes | bytearray | memoryview, now: float) -> None:
        """Forward bytes that the session itself sends to `side`, after the bytes that passed before."""
        if not data:
            return
        if side == CLIENT:
            if self.observer.began:
                self.observer.to_client(data, len(data), now)
            return
        if self.silent:
            self.report_silent()
        if self.behind is not None:
            self.behind.from_client(data, len(data), now)

    def unseen(self, side: int) -> int:
        """Return how many of the next bytes from a side the observers need as a count only. An observer that has not
        begun needs no bytes: it begins between frames, and long frames pass unread until then."""
        if self.connection.leaving is not None:
            return 0
        response = side != CLIENT
        unseen = self.observer.unseen(response) if self.observer.began else ANY
        return unseen if self.behind is None else min(unseen, self.behind.unseen(response))

    def pass_over(self, side: int, n: int, now: float) -> None:
        """Report `n` bytes that are spliced from socket to socket to the session and the observers."""
        began = self.observer.began
        if side == CLIENT:
            if began:
                self.observer.pass_over(n, now, response=False)
            self.from_client(NOT_LOOKED_AT, n, now)
            if self.silent:
                self.report_silent()
            if self.behind is not None:
                self.behind.pass_over(n, now, response=False)
        else:
            if self.behind is not None:
                self.behind.pass_over(n, now, response=True)
            self.from_broker(NOT_LOOKED_AT, n, now)
            if began:
                self.observer.pass_over(n, now, response=True)

    # ---- exchanges that are over

    def report_silent(self) -> None:
        """Report exchanges without a response, unless the session holds requests for their rules."""
        if self.connection.session.requests.kept is None:
            self.observer.report_silent()

    def hand_out(self, seen: ObservedExchange) -> None:
        step = self.connection.session.plan.get(seen.key << 16 | seen.version & 0xFFFF)
        if step is not None:
            seen.depth = step.depth
        self.fanout.take(seen)

    def begin(self) -> None:
        """Begin on an open connection, if it is between frames and raw SASL tokens cannot follow."""
        session = self.connection.session
        if not session.between_frames or session.tokens_may_come:
            return
        awaited = session.awaited_requests
        if self.again:
            awaited = [(correlation, key if key < 0 else NOT_SEEN, version) for correlation, key, version in awaited]
        if not self.observer.began:
            self.observer.awaiting([one for one in awaited if one[1] != ASKED])
        if self.fanout.broker_side and self.behind is None:
            fanout = self.fanout
            self.behind = ConnectionObserver(self.who, fanout.depth, fanout.take_behind, most=fanout.frame_limit)
            self.behind.awaiting([one for one in awaited if one[1] != ANSWERED])
        self.settled = True
        self.connection.chain_feeds()

    def refocus(self) -> None:
        """Update the observers after sinks were added or removed."""
        fanout = self.fanout
        self.turn = fanout.turn
        if self.asleep:
            if not fanout.steady and not fanout.looking:
                return
            self.wake()
        summary = self.summary_for(self.who)
        if summary is not None:  # otherwise it keeps its summary, which may count requests in flight
            self.observer.summary = summary
        self.observer.refocus(fanout.depth)
        if not fanout.broker_side:
            self.behind = None
        elif self.behind is None:
            self.settled = False
        else:
            self.behind.refocus(fanout.depth)
        self.connection.chain_feeds()

    def end(self, now: float) -> None:
        """End the observers at the end of the connection. Open requests count as closed if kproxy closed it."""
        if self.asleep:
            return
        ours = not self.connection.cause.startswith(("client_", "broker_"))
        self.observer.end(now, closed=ours)
        if self.behind is not None:
            self.behind.end(now, closed=ours)
        self.who.invalid = self.invalid

    @property
    def invalid(self) -> tuple[Mapping[str, int], Mapping[str, int]]:
        """Return the invalid frame lengths by direction, of the client side and of the broker side."""
        return self.observer.invalid, {} if self.behind is None else self.behind.invalid


Watch = Callable[[bytearray, int, float], None]


def watched_requests(tap: Tap, feed: Feed) -> Feed:
    """Return a feed that forwards bytes to the tap's observer and then to `feed`."""
    watch, silent, report_silent = tap.observer.from_client, tap.silent, tap.report_silent

    def watched(view: memoryview, n: int, now: float) -> int:
        watch(BUFFER, n, now)
        go = feed(view, n, now)
        if silent:
            report_silent()
        return go

    return watched


def watched_responses(watch: Watch, feed: Feed) -> Feed:
    """Return a feed that forwards bytes to `feed`, and the passed bytes to `watch`."""

    def watched(view: memoryview, n: int, now: float) -> int:
        go = feed(view, n, now)
        if go:
            watch(BUFFER, go, now)
        return go

    return watched
