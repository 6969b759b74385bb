"""The fetch sessions of one connection (KIP-227): which partitions a request is about, beyond those that it lists.

    sessions = FetchSessions(counters)
    session = sessions.request(message)             each Fetch request: its session, None: none, or an error code
    sessions.forward(session, message, removed)     each that goes to the broker: the body to send; None: as it is
    sessions.response(session, error, number)       each answer of the broker; `own_answer` for those of kproxy

Rules judge a partition when a request lists it; from then on the broker sends it for every request of the session. So
nobody may get a session with partitions in it that were not judged here:

- A session belongs to the exchange that opened it. Its id is known when that one's own response tells it; no number
  that a client chooses stands for a session before that.
- A request that continues a session whose start was not seen on this connection is answered with
  FETCH_SESSION_ID_NOT_FOUND (`NOT_FOUND`): brokers would let any connection continue it. The client begins anew.
- A request that continues a session while the one before is unanswered is answered in the same way. So whatever this
  side remembers of a session has been confirmed: had another connection used the session, the epoch would be wrong,
  and the broker's error ends it here. Clients know the next epoch only from the answer, none of them asks before that.
- A request that access rules have refused some partitions of leaves without these and without a session (epoch -1):
  no session of a broker holds a partition that was refused.

Requests that rules answer as a whole are not forwarded: the broker is told of what was in them, and given the epoch
that it expects, with the next one that is.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from kproxy.protocol.breath import each
from kproxy.protocol.codec.message import Message

from .partition_session import CLOSING, OPENING, Key, Listing, PartitionSession, RememberedSessions

NOT_FOUND: Final = 70
SESSIONS_SINCE: Final = 7  # the version of Fetch
MOST_SESSIONS: Final = 16
"""Sessions of a connection: a client has one. The one used longest ago goes, and cannot be continued."""
MOST_PARTITIONS: Final = 100_000
"""Partitions of all sessions of a connection together. A session beyond that is not remembered, nor one for which
the process has no room (`Room`): its request leaves without a session, which brokers do when they have no room, too."""

LISTING = Listing("partition", {})


class FetchSessions(RememberedSessions[int]):
    """Fetch sessions of one connection (see the module). Messages have the client's names and epochs, and are not
    changed. They stand by their ids; one that is not known is counted as `fetch_session_unknown`.
    """

    __slots__ = ()

    def request(self, message: Message) -> PartitionSession | int | None:
        """Return the session that a Fetch request opens or continues; None: it belongs to none. NOT_FOUND: the session
        is not known, so the request must not reach a broker, whose answer rules could not be applied to."""
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
        """Return the body to send to the broker, without the partitions `removed`; None: the request goes as it is.

        To be called once after `request`, for every request that is forwarded.
        """
        body = message.body
        if session is not None and session.followed and not removed:
            session.awaited = True
            return session.forward(body, ())
        listed = dict(LISTING.listed(body))
        kept = {key: one for key, one in each(listed.items()) if key not in removed}
        if session is None and len(kept) == len(listed):
            return None
        alone = {**body, "topics": LISTING.topics(kept.items())}
        if session is not None:
            self.forget(session)
            alone |= {"session_epoch": CLOSING, "forgotten_topics_data": []}
        return alone

    def response(self, session: PartitionSession, error: int, number: int) -> None:
        """Note the broker's answer: it opens a session, confirms the partitions that were asked of one, or ends it."""
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
        """Note an answer of kproxy's own: a session goes on with the next epoch, and none is opened by it."""
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
        """Return a session for a request that opens one; it is not followed if there is no room for its partitions."""
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
