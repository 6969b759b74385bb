"""Shows what passes on a connection to an observer, on the client's side and, for captures, on the broker's.

Strategy. A tap stands in front of the `feed` of both sides and is told of every Send, so a connection that nobody
watches pays nothing. One that was open before begins when no frame is under way in either direction.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kproxy.core.commands import CLIENT
from kproxy.core.inflight import ANSWERED, ASKED
from kproxy.net.loop.turns import BUFFER
from kproxy.net.socket.splice import NOT_LOOKED_AT
from kproxy.observe.exchange import ObservedExchange, Who
from kproxy.observe.journal import Journal
from kproxy.observe.observer import ConnectionObserver
from kproxy.observe.summary import Summary
from kproxy.sinks.fanout import Fanout

from .connection_view import ConnectionWho
from .driven import ConnectionPhase, Feed

if TYPE_CHECKING:
    from .connection import Connection

SummaryFor = Callable[[Who], Summary | None]
"""Returns the summary that counts a connection, or None."""
JournalFor = Callable[[Who], Journal | None]
"""Returns the journal that takes a connection's exchanges as lines, or None."""


class Tap:
    """Observer of one connection that gives what passes to its observers.

    `observer` watches the client's side, and is told by the session what rules do; `behind` watches the broker's, while
    a capture wants that. `settled`: all that is wanted has begun. `silent`: see `ExchangeBuilder`.
    """

    __slots__ = (
        "behind",
        "connection",
        "fanout",
        "from_broker",
        "from_client",
        "observer",
        "settled",
        "silent",
        "who",
    )  # fmt: skip

    def __init__(self, connection: Connection, fanout: Fanout, summary_for: SummaryFor, journal_for: JournalFor, *,
                 late: bool) -> None:  # fmt: skip
        self.connection, self.fanout = connection, fanout
        self.settled = not late
        self.who = ConnectionWho(connection, fanout.picture(connection.facts.cluster))
        summary, journal = summary_for(self.who), journal_for(self.who)
        self.observer = ConnectionObserver(self.who, fanout.depth, self.hand_out, summary=summary, journal=journal)
        self.behind: ConnectionObserver | None = None
        self.observer.began = not late
        self.silent = self.observer.silent = []
        self.from_client: Feed = connection.client.feed
        self.from_broker: Feed = connection.broker.feed
        connection.session.observer, connection.tap = self.observer, self
        self.refocus()

    # ---- what passes

    def put_in_place(self) -> None:
        """Stand before the session's feeds, with as little between as may be."""
        connection = self.connection
        if connection.leaving is not None:  # another feed stands in front already, and must stay
            return
        if connection.phase is not ConnectionPhase.OPEN:  # bytes that still come are thrown away
            return
        if self.settled and self.behind is None:
            connection.client.feed = watched_requests(self, self.from_client)
            connection.broker.feed = watched_responses(self.observer.to_client, self.from_broker)
        else:
            connection.client.feed, connection.broker.feed = self.client_feed, self.broker_feed

    def client_feed(self, view: memoryview, n: int, now: float) -> int:
        """Give bytes of the client to the observers and to the session's feed, whose result is returned."""
        if not self.settled:
            self.begin()
        if self.observer.began:
            self.observer.from_client(BUFFER, n, now)
        go = self.from_client(view, n, now)
        if self.silent:
            self.let_go()
        if go and self.behind is not None:
            self.behind.from_client(BUFFER, go, now)
        return go

    def broker_feed(self, view: memoryview, n: int, now: float) -> int:
        """Give bytes of the broker to the observers and to the session's feed, whose result is returned."""
        if not self.settled:
            self.begin()
        if self.behind is not None:
            self.behind.to_client(BUFFER, n, now)
        go = self.from_broker(view, n, now)
        if go and self.observer.began:
            self.observer.to_client(BUFFER, go, now)
        return go

    def sent(self, side: int, data: bytes | bytearray | memoryview, now: float) -> None:
        """Give the observers bytes that the session itself sends to a `side`, behind those that passed."""
        if not data:
            return
        if side == CLIENT:
            if self.observer.began:
                self.observer.to_client(data, len(data), now)
            return
        if self.silent:
            self.let_go()
        if self.behind is not None:
            self.behind.from_client(data, len(data), now)

    def unseen(self, side: int) -> int:
        """Return how many of the next bytes from a side the observers need only be told the number of."""
        if not self.settled or self.behind is not None or self.connection.leaving is not None:
            return 0
        return self.observer.unseen(side != CLIENT)

    def pass_over(self, side: int, n: int, now: float) -> None:
        """Tell session and observer of `n` bytes that go from socket to socket without being looked at."""
        if side == CLIENT:
            self.observer.pass_over(n, now, response=False)
            self.from_client(NOT_LOOKED_AT, n, now)
            if self.silent:
                self.let_go()
        else:
            self.from_broker(NOT_LOOKED_AT, n, now)
            self.observer.pass_over(n, now, response=True)

    # ---- exchanges that are over

    def let_go(self) -> None:
        """Hand out the exchanges that are due no response, unless requests wait in the session for their rules."""
        if self.connection.session.requests.kept is None:
            self.observer.let_go()

    def hand_out(self, seen: ObservedExchange) -> None:
        step = self.connection.session.plan.get(seen.key << 16 | seen.version & 0xFFFF)
        if step is not None:
            seen.depth = step.depth
        self.fanout.take(seen)

    def begin(self) -> None:
        """Begin in the middle of the connection, if no frame is under way and no raw SASL tokens may come."""
        session = self.connection.session
        if not session.between_frames or session.tokens_may_come:
            return
        awaited = session.awaited_requests
        if not self.observer.began:
            self.observer.awaiting([one for one in awaited if one[1] != ASKED])
        if self.fanout.broker_side and self.behind is None:
            self.behind = ConnectionObserver(self.who, self.fanout.depth, self.fanout.take_behind)
            self.behind.awaiting([one for one in awaited if one[1] != ANSWERED])
        self.settled = True
        self.put_in_place()

    def refocus(self) -> None:
        """Have the observers watch what the sinks want now, since sinks have come or gone."""
        fanout = self.fanout
        self.observer.refocus(fanout.depth)
        if not fanout.broker_side:
            self.behind = None
        elif self.behind is None:
            self.settled = False
        else:
            self.behind.refocus(fanout.depth)
        self.put_in_place()

    def end(self, now: float) -> None:
        """End the observers, since the connection is over; open requests count as closed if kproxy closed it."""
        ours = not self.connection.cause.startswith(("client_", "broker_"))
        self.observer.end(now, closed=ours)
        if self.behind is not None:
            self.behind.end(now, closed=ours)


Watch = Callable[[bytearray, int, float], None]


def watched_requests(tap: Tap, feed: Feed) -> Feed:
    """Return a feed that gives bytes to the tap's observer and then to `feed`."""
    watch, silent, let_go = tap.observer.from_client, tap.silent, tap.let_go

    def watched(view: memoryview, n: int, now: float) -> int:
        watch(BUFFER, n, now)
        go = feed(view, n, now)
        if silent:
            let_go()
        return go

    return watched


def watched_responses(watch: Watch, feed: Feed) -> Feed:
    """Return a feed that gives bytes to `feed`, and those that pass then to `watch`."""

    def watched(view: memoryview, n: int, now: float) -> int:
        go = feed(view, n, now)
        if go:
            watch(BUFFER, go, now)
        return go

    return watched
