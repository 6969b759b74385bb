"""The fetch sessions of one connection (KIP-227): which partitions a request is about, beyond those that it lists.

    sessions = FetchSessions(counters)
    session = sessions.request(message)             each Fetch request: its session, None: none, or an error code
    sessions.forward(session, message, removed)     each that goes to the broker: the body to send; None: as it is
    sessions.response(session, error, number)       each answer of the broker; `own_answer` for those of kproxy

Rules judge a partition when a request lists it; afterwards the broker sends it for every request of the session. A
client must not get a session with partitions that were not judged here:

- A session belongs to the exchange that opened it. Its id is known only from its own response; until then a number that
  a client chooses does not identify a session.
- A request that continues a session whose start was not seen on this connection is answered with
  FETCH_SESSION_ID_NOT_FOUND (`NOT_FOUND`): brokers would let any connection continue it. The client starts over.
- A request that continues a session while the previous one is pending is answered in the same way. So the cached state
  of a session is confirmed: had another connection used the session, the epoch would be wrong, and the broker's error
  ends it here. Clients get the next epoch from the response, so they do not send such requests.
- If access rules refused some partitions of a request, it is forwarded without them and without a session (epoch -1): a
  broker's session never contains a refused partition.

Requests that rules answer as a whole are not forwarded. The next forwarded request carries their changes and the epoch
that the broker expects.

The share sessions of one connection (KIP-932): which partitions a ShareFetch or ShareAcknowledge is about.

A member of a share group has one session with each broker, known by group and member alone, whatever connection they
come on. ShareFetch opens it with epoch 0, both APIs continue it and count its epochs, and epoch -1 closes it. The trust
rules of `fetch_sessions.py` also apply here. A request that continues a session whose start was not seen, or that has a
pending request, is answered with SHARE_SESSION_NOT_FOUND (`SHARE_NOT_FOUND`). The client starts over.

A session that exceeds the limit of its connection or process is answered with SHARE_SESSION_LIMIT_REACHED, as brokers
do. A share fetch always has a session, so partitions that rules answer are left out of the broker's session, and added
when rules no longer answer them.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from kproxy.base.cooperative import yielding
from kproxy.protocol.codec.message import Message
from kproxy.protocol.table.api_keys import SHARE_ACKNOWLEDGE, SHARE_FETCH
from kproxy.session.partition_session import CLOSING, OPENING, Key, Listing, PartitionSession, SessionTable

NOT_FOUND: Final = 70
SESSIONS_SINCE: Final = 7  # the version of Fetch
MOST_SESSIONS: Final = 16
"""Sessions of a connection: a client has one. LRU; an evicted session cannot be continued."""
MOST_PARTITIONS: Final = 100_000
"""Partitions of all sessions of a connection together. A larger session is not cached, nor one that exceeds the
process's limit (`SessionPartitionLimit`). Its request is forwarded without a session, as if the broker had reached its
limit."""

LISTING = Listing("partition", {})


class FetchSessions(SessionTable[int]):
    """Fetch sessions of one connection (see the module). Messages have the client's names and epochs, and are not
    changed. They are keyed by id; an unknown id is counted as `fetch_session_unknown`.
    """

    __slots__ = ()

    def request(self, message: Message) -> PartitionSession | int | None:
        """Return the session that a Fetch request opens or continues; None: it belongs to none. NOT_FOUND: the session
        is unknown, so the request must not reach a broker, since rules could not be applied to its response."""
        body = message.body
        if message.version < SESSIONS_SINCE:
            return None
        number, epoch = body["session_id"], body["session_epoch"]
        if epoch in (OPENING, CLOSING):
            self.forget(self.sessions.get(number))
            return None if epoch == CLOSING else self.begin(body)
        session = self.sessions.get(number)
        if session is None:
            return self.unknown("the start of its fetch session was not seen")
        if session.client_epoch != epoch:
            return self.unknown(f"epoch {epoch} of its fetch session, expected {session.client_epoch}")
        if session.awaited:
            self.forget(session)
            return self.unknown("the request before it in its fetch session has not been answered")
        before = len(session.asked)
        session.update(body)
        self.grow(len(session.asked) - before)
        if self.size > MOST_PARTITIONS:
            self.forget(session)
            return self.unknown(f"more than {MOST_PARTITIONS} partitions in fetch sessions")
        if not self.room.holds(0):
            self.forget(session)
            self.counters.count("sessions_without_room")
            return self.unknown(self.room.refusal)
        self.sessions.move_to_end(number)
        return session

    def forward(
        self, session: PartitionSession | None, message: Message, removed: Collection[Key] = ()
    ) -> dict[str, Any] | None:
        """Return the body to forward, without the partitions `removed`; None: the request is unchanged.

        To be called once after `request`, for every request that is forwarded.
        """
        body = message.body
        if session is not None and session.followed and not removed:
            session.awaited = True
            return session.forward(body, ())
        listed = dict(LISTING.listed(body))
        kept = {key: one for key, one in yielding(listed.items()) if key not in removed}
        if session is None and len(kept) == len(listed):
            return None
        alone = {**body, "topics": LISTING.topics(kept.items())}
        if session is not None:
            self.forget(session)
            alone |= {"session_epoch": CLOSING, "forgotten_topics_data": []}
        return alone

    def response(self, session: PartitionSession, error: int, number: int) -> None:
        """Process the broker's response: it opens a session, confirms the requested partitions of one, or ends it."""
        session.awaited = False
        if error or not number or session.number not in (0, number):
            self.forget(session)
        elif not session.number and session.followed:
            self.forget(self.sessions.get(number))
            session.number = number
            self.sessions[number] = session
            self.grow(len(session.asked))
            while len(self.sessions) > MOST_SESSIONS or self.size > MOST_PARTITIONS:
                self.forget(next(iter(self.sessions.values())))
            if not self.room.holds(0):  # others were faster
                self.forget(session)
                self.counters.count("sessions_without_room")

    def own_answer(self, session: PartitionSession, error: int, body: dict[str, Any]) -> None:
        """Process a response made by kproxy: a session continues with the next epoch; it does not open one."""
        if error == NOT_FOUND or not session.number:
            self.forget(session)
        if not session.followed:
            body["session_id"] = 0

    def forget(self, session: PartitionSession | None) -> None:
        """Stop following this session, so that the client cannot continue it."""
        if session is not None:
            self.forget_at(session.number, session)

    def lose(self, message: Message) -> None:
        """Stop following the session of this request, which cannot be applied to it."""
        if message.version >= SESSIONS_SINCE:
            self.forget(self.sessions.get(message.body["session_id"]))

    # ---- inside

    def begin(self, body: dict[str, Any]) -> PartitionSession:
        """Return a session for a request that opens one; it is not tracked if its partitions exceed the limit."""
        session = PartitionSession(LISTING, body)
        if self.size + len(session.asked) > MOST_PARTITIONS:
            session.followed = False
            self.counters.count("fetch_session_too_large")
        elif not self.room.holds(len(session.asked)):
            session.followed = False
            self.counters.count("sessions_without_room")
        return session

    def unknown(self, reason: str) -> int:
        """Note and count that a request's session is not known; return the error code to answer with."""
        self.absent = reason
        self.counters.count("fetch_session_unknown")
        return NOT_FOUND


SHARE_NOT_FOUND: Final = 122
LIMIT_REACHED: Final = 133

SHARE_LISTING = Listing("partition_index", {"acknowledgement_batches": []})
Owner = tuple[str | None, str | None]
"""Group and member, the key of a session; brokers use the same."""


class ShareSessions(SessionTable[Owner]):
    """Share sessions of one connection, for both of their APIs, which must both be shown to it. Used like
    `FetchSessions`."""

    __slots__ = ()

    def request(self, message: Message) -> PartitionSession | int | None:
        """Return the session that a request opens or continues; None: it belongs to none that goes
        on. Or SHARE_NOT_FOUND, or
        LIMIT_REACHED.

        A ShareFetch covers the session's partitions, and others for which it only acknowledges records; a
        ShareAcknowledge covers those that it lists.
        """
        body, owner = message.body, owner_of(message)
        epoch = body["share_session_epoch"]
        session = self.sessions.get(owner)
        if epoch in (OPENING, CLOSING):
            if epoch == CLOSING or message.api.key == SHARE_FETCH:
                self.forget_at(owner, session)
            return self.begin(owner, body) if epoch == OPENING and message.api.key == SHARE_FETCH else None
        if session is None:
            return self.unknown("the start of its share session was not seen")
        if session.client_epoch != epoch:
            return self.unknown(f"epoch {epoch} of its share session, expected {session.client_epoch}")
        if session.awaited:
            self.forget_at(owner, session)
            return self.unknown("the request before it in its share session has not been answered")
        self.sessions.move_to_end(owner)
        if message.api.key == SHARE_ACKNOWLEDGE:
            session.pass_epoch()
            return session
        before = len(session.asked)
        session.update(body)
        self.grow(len(session.asked) - before)
        if self.size > MOST_PARTITIONS:
            self.forget_at(owner, session)
            return self.unknown(f"more than {MOST_PARTITIONS} partitions in share sessions")
        if not self.room.holds(0):
            self.forget_at(owner, session)
            self.counters.count("sessions_without_room")
            return self.unknown(self.room.refusal)
        return session

    def forward(
        self, session: PartitionSession | None, message: Message, removed: Collection[Key] = ()
    ) -> dict[str, Any] | None:
        """Return the request body to forward when rules answer for the partitions `removed`.

        To be called once after `request`, for every request that is forwarded. None: the request is unchanged.
        """
        body = message.body
        if session is not None:
            session.awaited = True
            if message.api.key == SHARE_FETCH:
                return session.forward(body, removed)
        listed = dict(SHARE_LISTING.listed(body))
        epoch = body["share_session_epoch"] if session is None else session.broker_takes()
        kept = {key: one for key, one in listed.items() if key not in removed}
        if epoch == body["share_session_epoch"] and len(kept) == len(listed):
            return None
        return {**body, "share_session_epoch": epoch, "topics": SHARE_LISTING.topics(kept.items())}

    def response(self, session: PartitionSession, request: Message, error: int) -> None:
        """Process the broker's response, which confirms the requests to the session, or ends it."""
        session.awaited = False
        if error:
            self.forget_at(owner_of(request), session)

    def own_answer(self, session: PartitionSession, request: Message, error: int) -> None:
        """Process a response made by kproxy: the session continues, unless a start was refused."""
        if error and request.body["share_session_epoch"] == OPENING:
            self.forget_at(owner_of(request), session)

    def lose(self, message: Message) -> None:
        """Stop following the session of this request, which cannot be applied to it."""
        owner = owner_of(message)
        self.forget_at(owner, self.sessions.get(owner))

    # ---- inside

    def begin(self, owner: Owner, body: dict[str, Any]) -> PartitionSession | int:
        session = PartitionSession(SHARE_LISTING, body)
        if self.size + len(session.asked) > MOST_PARTITIONS:
            return self.refused("fetch_session_too_large", f"more than {MOST_PARTITIONS} partitions in share sessions")
        if not self.room.holds(len(session.asked)):
            return self.refused("sessions_without_room", self.room.refusal)
        self.sessions[owner] = session
        self.grow(len(session.asked))
        while len(self.sessions) > MOST_SESSIONS:
            self.forget_at(*next(iter(self.sessions.items())))
        return session

    def refused(self, event: str, reason: str) -> int:
        self.absent = reason
        self.counters.count(event)
        return LIMIT_REACHED

    def unknown(self, reason: str) -> int:
        self.absent = reason
        self.counters.count("fetch_session_unknown")
        return SHARE_NOT_FOUND


def owner_of(message: Message) -> Owner:
    return message.body["group_id"], message.body["member_id"]
