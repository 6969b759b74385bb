"""Fix of fetch sessions: ids and epochs as this broker gave them.

A broker remembers what a consumer fetches, and hands out an id for it; later requests name only what has changed, with
an epoch that rises by one (KIP-227). The target's id takes the place of the recorded one, with epochs counted from its
own beginning. Where the target keeps no session, or has lost it, the request is made a full one again: with all
partitions that the recorded session had at that moment, each with what the client said of it last.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from kproxy.protocol import Message
from kproxy.protocol.table.api_keys import FETCH
from kproxy.session.live.fetch_sessions import LISTING, SESSIONS_SINCE
from kproxy.session.live.partition_session import CLOSING, OPENING, PartitionSession, next_epoch

from . import OutgoingRequest

NONE = 0
UNSEEN = "asked for the partitions it lists alone: its fetch session began before the recording"


class RecordedSession:
    """Recorded fetch session: its partitions, and the target's id and next epoch for it, 0 if the target has none."""

    __slots__ = ("epoch", "number", "session")

    def __init__(self, body: dict[str, Any]) -> None:
        self.session = PartitionSession(LISTING, body)
        self.number, self.epoch = NONE, OPENING


class FetchSessionFix:
    """Fix of the fetch sessions of all links. A session belongs to the link on which it was opened."""

    requests = answers = frozenset((FETCH,))

    def __init__(self, spread: Set[int] = frozenset()) -> None:
        self.spread = spread
        """Numbers of the lines whose partitions have several leaders: they use no session."""
        self.held: dict[tuple[int, int], RecordedSession] = {}
        """(line, recorded id) → the session."""
        self.opening: dict[tuple[int, int], RecordedSession] = {}
        """(line, place of the request) → the session that it wants to open."""
        self.used: dict[int, RecordedSession] = {}
        """Place of a request → the session that it went on with or opened anew."""

    def request(self, request: OutgoingRequest) -> None:
        body = request.message.body
        if request.message.version < SESSIONS_SINCE:
            return
        line, number, epoch = request.exchange.line.number, body["session_id"], body["session_epoch"]
        old = self.held.get((line, number))
        if epoch in (OPENING, CLOSING):
            body["session_id"] = old.number if old is not None else NONE
            self.held.pop((line, number), None)
            if epoch == OPENING:
                self.opening[line, request.exchange.place] = RecordedSession(body)
            if line in self.spread:
                body |= {"session_id": NONE, "session_epoch": CLOSING}
        elif old is None:
            request.notes.append(UNSEEN)
            body |= {"session_id": NONE, "session_epoch": CLOSING, "forgotten_topics_data": []}
        else:
            self.go_on(request, old)

    def go_on(self, request: OutgoingRequest, held: RecordedSession) -> None:
        body = request.message.body
        held.session.update(body)
        self.used[request.exchange.place] = held
        if held.number and request.exchange.line.number not in self.spread:
            body |= {"session_id": held.number, "session_epoch": held.epoch}
            held.epoch = next_epoch(held.epoch)
            return
        topics = LISTING.topics(held.session.asked.items())
        epoch = CLOSING if request.exchange.line.number in self.spread else OPENING
        body |= {"session_id": NONE, "session_epoch": epoch, "topics": topics, "forgotten_topics_data": []}

    def answer(self, request: OutgoingRequest, recorded: Message | None, now: Message) -> None:
        if now.version < SESSIONS_SINCE:
            return
        line, place = request.exchange.line.number, request.exchange.place
        opened, used = self.opening.pop((line, place), None), self.used.pop(place, None)
        if opened is not None and recorded is not None and recorded.body["session_id"]:
            self.held[line, recorded.body["session_id"]] = used = opened
        if used is None:
            return
        error, number = now.body["error_code"], now.body["session_id"]
        if error or not number:
            used.number = NONE
        elif number != used.number:
            used.number, used.epoch = number, next_epoch(OPENING)
