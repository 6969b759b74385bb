"""The share sessions of one connection (KIP-932): which partitions a ShareFetch or ShareAcknowledge is about.

A member of a share group has one session with each broker, known by group and member alone. ShareFetch opens it with
epoch 0, both APIs continue it and count its epochs, and epoch -1 closes it. A request that continues a session whose
start was not seen is to be answered with SHARE_SESSION_NOT_FOUND (`NOT_FOUND`); the client then begins anew.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from typing import Any, Final

from kproxy.wire.message import Message

from .counters import Counters
from .fetch_sessions import MOST_PARTITIONS, MOST_SESSIONS
from .partition_session import CLOSING, OPENING, Key, Listing, PartitionSession

SHARE_FETCH: Final = 78
SHARE_ACKNOWLEDGE: Final = 79
NOT_FOUND: Final = 122
WRONG_EPOCH: Final = 123

LISTING = Listing("partition_index", {"acknowledgement_batches": []})
Owner = tuple[str | None, str | None]
"""Group and member."""


class ShareSessions:
    """As `FetchSessions`, for both APIs of share sessions, which must both be shown to it."""

    __slots__ = ("absent", "counters", "sessions")

    def __init__(self, counters: Counters) -> None:
        self.counters = counters
        self.absent = ""
        self.sessions: OrderedDict[Owner, PartitionSession] = OrderedDict()

    def request(self, message: Message) -> tuple[Key, ...] | None:
        """The partitions that it is about: those of the session, then others of which it only acknowledges records.

        A ShareAcknowledge is about those that it lists.
        """
        body, owner = message.body, self.owner(message)
        epoch = body["share_session_epoch"]
        listed = tuple(dict(LISTING.listed(body)))
        if epoch == CLOSING:
            self.sessions.pop(owner, None)
            return listed
        if epoch == OPENING:
            if message.api.key == SHARE_FETCH:
                self.begin(owner, body)
            return listed
        session = self.sessions.get(owner)
        if session is None:
            return self.unknown("the start of its share session was not seen")
        if session.client_epoch != epoch:
            return self.unknown(f"epoch {epoch} of its share session, expected {session.client_epoch}")
        if self.size + len(listed) > MOST_PARTITIONS:
            del self.sessions[owner]
            return self.unknown(f"more than {MOST_PARTITIONS} partitions in share sessions")
        self.sessions.move_to_end(owner)
        if message.api.key == SHARE_ACKNOWLEDGE:
            session.pass_epoch()
            return listed
        session.update(body)
        return tuple(dict.fromkeys((*session.asked, *listed)))

    def forward(self, message: Message, removed: Collection[Key] = ()) -> dict[str, Any] | None:
        """The body with which a request goes to the broker when rules answer for the partitions `removed`.

        To be called once after `request`, for every request that is forwarded. None: the request goes as it is.
        """
        body = message.body
        session = None if body["share_session_epoch"] == CLOSING else self.sessions.get(self.owner(message))
        if session is not None and message.api.key == SHARE_FETCH:
            return session.forward(body, removed)
        listed = dict(LISTING.listed(body))
        epoch = body["share_session_epoch"] if session is None else session.broker_takes()
        if epoch == body["share_session_epoch"] and not any(key in listed for key in removed):
            return None
        kept = ((key, one) for key, one in listed.items() if key not in removed)
        return {**body, "share_session_epoch": epoch, "topics": LISTING.topics(kept)}

    def response(self, request: Message, response: Message) -> None:
        """An answer: the broker may know of no session, or may not have opened one."""
        error = response.body["error_code"]
        opening = request.body["share_session_epoch"] == OPENING
        if error in (NOT_FOUND, WRONG_EPOCH) or (error and opening):
            self.sessions.pop(self.owner(request), None)

    def lose(self, message: Message) -> None:
        """The session of this request is not followed any more."""
        self.sessions.pop(self.owner(message), None)

    # ---- inside

    @staticmethod
    def owner(message: Message) -> Owner:
        return message.body["group_id"], message.body["member_id"]

    @property
    def size(self) -> int:
        """Partitions that are remembered."""
        return sum(len(one.asked) for one in self.sessions.values())

    def begin(self, owner: Owner, body: dict[str, Any]) -> None:
        self.sessions.pop(owner, None)
        session = PartitionSession(LISTING, body)
        if self.size + len(session.asked) > MOST_PARTITIONS:
            self.counters.count("fetch_session_too_large")
            return
        self.sessions[owner] = session
        while len(self.sessions) > MOST_SESSIONS:
            self.sessions.popitem(last=False)

    def unknown(self, reason: str) -> tuple[Key, ...] | None:
        self.absent = reason
        self.counters.count("fetch_session_unknown")
        return None
