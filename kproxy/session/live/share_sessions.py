"""The share sessions of one connection (KIP-932): which partitions a ShareFetch or ShareAcknowledge is about.

A member of a share group has one session with each broker, known by group and member alone, whatever connection they
come on. ShareFetch opens it with epoch 0, both APIs continue it and count its epochs, and epoch -1 closes it. What
`fetch_sessions.py` says of trust holds here, too: a request that continues a session whose start was not seen, or of
which a request is unanswered, is to be answered with SHARE_SESSION_NOT_FOUND (`NOT_FOUND`); the client begins anew.

A session for which there is no room, on its connection or in the process, is answered as brokers do that have none:
with SHARE_SESSION_LIMIT_REACHED. There is no fetch without a session here, so partitions that rules answer for are left
out of the broker's session, and named when no rule has them any more.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from kproxy.protocol.codec.message import Message
from kproxy.protocol.table.api_keys import SHARE_ACKNOWLEDGE, SHARE_FETCH

from .fetch_sessions import MOST_PARTITIONS, MOST_SESSIONS
from .partition_session import CLOSING, OPENING, Key, Listing, PartitionSession, RememberedSessions

NOT_FOUND: Final = 122
LIMIT_REACHED: Final = 133

LISTING = Listing("partition_index", {"acknowledgement_batches": []})
Owner = tuple[str | None, str | None]
"""Group and member, by which brokers know a session, too."""


class ShareSessions(RememberedSessions[Owner]):
    """Share sessions of one connection, for both of their APIs, which must both be shown to it. Used like
    `FetchSessions`."""

    __slots__ = ()

    def request(self, message: Message) -> PartitionSession | int | None:
        """Return the session that a request opens or continues; None: it belongs to none that goes on. Or NOT_FOUND, or
        LIMIT_REACHED.

        A ShareFetch is about the session's partitions, and others of which it only acknowledges records; a
        ShareAcknowledge about those that it lists.
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
        """Return the body with which a request goes to the broker when rules answer for the partitions `removed`.

        To be called once after `request`, for every request that is forwarded. None: the request goes as it is.
        """
        body = message.body
        if session is not None:
            session.awaited = True
            if message.api.key == SHARE_FETCH:
                return session.forward(body, removed)
        listed = dict(LISTING.listed(body))
        epoch = body["share_session_epoch"] if session is None else session.broker_takes()
        kept = {key: one for key, one in listed.items() if key not in removed}
        if epoch == body["share_session_epoch"] and len(kept) == len(listed):
            return None
        return {**body, "share_session_epoch": epoch, "topics": LISTING.topics(kept.items())}

    def response(self, session: PartitionSession, request: Message, error: int) -> None:
        """Note the broker's answer, which confirms what was asked of the session, or ends it."""
        session.awaited = False
        if error:
            self.forget_at(owner_of(request), session)

    def own_answer(self, session: PartitionSession, request: Message, error: int) -> None:
        """Note an answer of kproxy's own: the session goes on, unless a start was refused."""
        if error and request.body["share_session_epoch"] == OPENING:
            self.forget_at(owner_of(request), session)

    def lose(self, message: Message) -> None:
        """Stop following the session of this request, which cannot be applied to it."""
        owner = owner_of(message)
        self.forget_at(owner, self.sessions.get(owner))

    # ---- inside

    def begin(self, owner: Owner, body: dict[str, Any]) -> PartitionSession | int:
        session = PartitionSession(LISTING, body)
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
        return NOT_FOUND


def owner_of(message: Message) -> Owner:
    return message.body["group_id"], message.body["member_id"]
