"""The fetch sessions of one connection (KIP-227): which partitions a request is about, beyond those that it lists.

    sessions = FetchSessions(counters)
    sessions.request(message)              each Fetch request: its partitions, in order; None: not known
    sessions.forward(message, removed)     each that goes to the broker: the body to send; None: as it is
    sessions.response(request, response)   each answer, of the broker or of kproxy's own

A request that continues a session whose start was not seen is to be answered once with FETCH_SESSION_ID_NOT_FOUND
(`NOT_FOUND`): the client then begins anew, with all its partitions. Requests that are not forwarded need nothing: the
broker is told of what was in them, and given the epoch that it expects, with the next one that is. A request of which
rules answer all partitions is not to be forwarded: brokers close a session that has none.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from typing import Any, Final

from kproxy.wire.message import Message

from .counters import Counters
from .partition_session import CLOSING, OPENING, Key, Listing, PartitionSession

FETCH: Final = 1
NOT_FOUND: Final = 70
SESSIONS_SINCE: Final = 7  # the version of Fetch
MOST_SESSIONS: Final = 16
"""Sessions of a connection, and requests that would open one: a client has one. The one used longest ago goes."""
MOST_PARTITIONS: Final = 100_000
"""Partitions of all sessions of a connection together. A session beyond that is not remembered."""

LISTING = Listing("partition", {})


class FetchSessions:
    """See the module. Messages have the client's names and epochs, and are only read.

    `absent`: why the last request's partitions were not known. Each such is counted as `fetch_session_unknown`.
    """

    __slots__ = ("absent", "counters", "opening", "sessions")

    def __init__(self, counters: Counters) -> None:
        self.counters = counters
        self.absent = ""
        self.sessions: OrderedDict[int, PartitionSession] = OrderedDict()  # by id
        self.opening: OrderedDict[int, PartitionSession] = OrderedDict()  # by correlation id of the request

    def request(self, message: Message) -> tuple[Key, ...] | None:
        """The partitions that a Fetch request is about, in the order in which the client first named them."""
        body = message.body
        if message.version < SESSIONS_SINCE:
            return tuple(dict(LISTING.listed(body)))
        number, epoch = body["session_id"], body["session_epoch"]
        if epoch in (OPENING, CLOSING):
            self.sessions.pop(number, None)
            if epoch == OPENING:
                return self.begin(message)
            return tuple(dict(LISTING.listed(body)))
        session = self.sessions.get(number)
        if session is None:
            return self.unknown("the start of its fetch session was not seen")
        if session.client_epoch != epoch:
            return self.unknown(f"epoch {epoch} of its fetch session, expected {session.client_epoch}")
        if self.size + sum(1 for _ in LISTING.listed(body)) > MOST_PARTITIONS:
            del self.sessions[number]
            return self.unknown(f"more than {MOST_PARTITIONS} partitions in fetch sessions")
        self.sessions.move_to_end(number)
        session.update(body)
        return tuple(session.asked)

    def forward(self, message: Message, removed: Collection[Key] = ()) -> dict[str, Any] | None:
        """The body with which a request goes to the broker when rules answer for the partitions `removed`.

        To be called once after `request`, for every request that is forwarded. None: the request goes as it is. Without
        a session the partitions are taken out and that is all.
        """
        body = message.body
        session = self.session(message)
        if session is not None:
            return session.forward(body, removed)
        listed = dict(LISTING.listed(body))
        if not any(key in listed for key in removed):
            return None
        return {**body, "topics": LISTING.topics((key, one) for key, one in listed.items() if key not in removed)}

    def response(self, request: Message, response: Message) -> None:
        """An answer: the session id that the broker gave, or the end of a session."""
        if request.version < SESSIONS_SINCE:
            return
        opened = self.opening.pop(request.header["correlation_id"], None)
        number, error = response.body["session_id"], response.body["error_code"]
        if request.body["session_epoch"] > OPENING and (error == NOT_FOUND or (not error and not number)):
            self.sessions.pop(request.body["session_id"], None)
        elif opened is not None and number and not error:
            self.sessions[number] = opened
            self.sessions.move_to_end(number)
            while len(self.sessions) > MOST_SESSIONS:
                self.sessions.popitem(last=False)

    def lose(self, message: Message) -> None:
        """The session of this request is not followed any more."""
        if message.version >= SESSIONS_SINCE:
            self.sessions.pop(message.body["session_id"], None)

    # ---- inside

    def session(self, message: Message) -> PartitionSession | None:
        """The session that a request opens or continues."""
        if message.version < SESSIONS_SINCE or message.body["session_epoch"] == CLOSING:
            return None
        if message.body["session_epoch"] == OPENING:
            return self.opening.get(message.header["correlation_id"])
        return self.sessions.get(message.body["session_id"])

    def begin(self, message: Message) -> tuple[Key, ...]:
        session = PartitionSession(LISTING, message.body)
        if self.size + len(session.asked) <= MOST_PARTITIONS:
            self.opening[message.header["correlation_id"]] = session
            while len(self.opening) > MOST_SESSIONS:
                self.opening.popitem(last=False)
        else:
            self.counters.count("fetch_session_too_large")
        return tuple(session.asked)

    @property
    def size(self) -> int:
        """Partitions that are remembered."""
        return sum(len(one.asked) for group in (self.sessions, self.opening) for one in group.values())

    def unknown(self, reason: str) -> tuple[Key, ...] | None:
        self.absent = reason
        self.counters.count("fetch_session_unknown")
        return None
