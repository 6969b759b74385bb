"""Fixes: replace ids and epochs of the recorded cluster in requests by those of the target.

A fix changes requests before they are sent (`request`), and learns the target's values from responses (`answer`).
`FixChain` applies all of them. `OutgoingRequest` is a request on its way.

Fetch sessions (KIP-227): the target's session id replaces the recorded one, and epochs are counted from the target's
first. If the target has no session, the request becomes a full one, with all partitions of the recorded session.

Groups: the target's member id and generation replace those of the recording. They come from JoinGroup responses
(KIP-394), or from heartbeat responses for KIP-848, share groups (KIP-932) and streams groups (KIP-1071). An unknown
generation stays, unless the member has one.

Topics: each cluster draws its own topic ids (KIP-516). Recorded responses with name and id give the name, and the
target gives its id for that name. Captures redact config values as `*`, so topics are created with the target's values.
Leader epochs become -1, because brokers reject epochs of another cluster (KIP-320). Epochs in OffsetForLeaderEpoch
queries and in commits are data and stay.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import Any, Protocol
from uuid import UUID

from kproxy.base.errors import DecodeError, EncodeError
from kproxy.protocol import Message, decode_response, encode
from kproxy.protocol.elements import topics
from kproxy.protocol.table.api_keys import CREATE_TOPICS, FETCH, JOIN_GROUP, LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH
from kproxy.protocol.table.layout import ZERO_UUID
from kproxy.session.fetch_sessions import LISTING, SESSIONS_SINCE
from kproxy.session.partition_session import CLOSING, OPENING, PartitionSession, next_epoch
from kproxy.tools.replay.producer_fix import ProducerFix
from kproxy.tools.replay.recording import RecordedExchange

from .recording import TOPIC_ID, carriers, layout_of, of_kind, structs


@dataclass(slots=True, eq=False)
class OutgoingRequest:
    """Recorded request on its way to the target.

    `message` is what will be sent, to be changed; `link` is the number of the connection that it goes over; `notes` are
    remarks for the report.
    """

    exchange: RecordedExchange
    message: Message
    link: int
    notes: list[str] = field(default_factory=list)


class Fix(Protocol):
    """Fix of one kind of value in requests."""

    requests: frozenset[int]
    """Keys of the APIs whose requests it changes."""
    answers: frozenset[int]
    """Keys of the APIs whose responses it learns from."""

    def request(self, request: OutgoingRequest) -> None:
        """Change the body of the request's message in place."""
        ...

    def answer(self, request: OutgoingRequest, recorded: Message | None, now: Message) -> None:
        """Learn from the target's response. `recorded` is the recorded response, None if that is not known."""
        ...


NONE = 0
UNSEEN = "asked for the partitions it lists alone: its fetch session began before the recording"


class RecordedSession:
    """Recorded fetch session: its partitions, and the target's id and next epoch for it, 0 if the target has none."""

    __slots__ = ("epoch", "number", "session")

    def __init__(self, body: dict[str, Any]) -> None:
        self.session = PartitionSession(LISTING, body)
        self.number, self.epoch = NONE, OPENING


class FetchSessionFix:
    """Fix of the fetch sessions of all links. A session is bound to the link on which it was opened."""

    requests = answers = frozenset((FETCH,))

    def __init__(self, spread: Set[int] = frozenset()) -> None:
        self.spread = spread
        """Numbers of the lines whose partitions have several leaders: they do not use sessions."""
        self.held: dict[tuple[int, int], RecordedSession] = {}
        """(line, recorded id) → the session."""
        self.opening: dict[tuple[int, int], RecordedSession] = {}
        """(line, place of the request) → the session that it wants to open."""
        self.used: dict[int, RecordedSession] = {}
        """Place of a request → the session that it continued or opened."""

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


HEARTBEATS = (68, 76, 88)
"""ConsumerGroupHeartbeat, ShareGroupHeartbeat, StreamsGroupHeartbeat."""
KIND = "member_id"
GENERATIONS = ("generation_id", "generation_id_or_member_epoch", "member_epoch")


class GroupFix:
    """Fix of member ids and generations; see the module."""

    requests = carriers(KIND, "request")
    answers = frozenset((JOIN_GROUP, *HEARTBEATS))

    def __init__(self) -> None:
        self.members: dict[str, str] = {}
        """Recorded member id → the target's."""
        self.epochs: dict[tuple[str, int], int] = {}
        """(Recorded member id, recorded generation or epoch) → the target's."""
        self.latest: dict[str, int] = {}
        """Recorded member id → the target's last one."""

    def request(self, request: OutgoingRequest) -> None:
        for struct, value in structs(layout_of(request.message), request.message.body):
            for slot in of_kind(struct, KIND):
                was = value[slot.name]
                for name in GENERATIONS:
                    if value.get(name, 0) > 0:  # 0 joins, a negative epoch leaves or is not a member
                        value[name] = self.epochs.get((was, value[name]), self.latest.get(was, value[name]))
                value[slot.name] = self.members.get(was, was)

    def answer(self, request: OutgoingRequest, recorded: Message | None, now: Message) -> None:
        if recorded is None:
            return
        was, given = member(request, recorded.body), now.body.get(KIND)
        if was and given:
            self.members[was] = given
        name = next(one for one in GENERATIONS if one in now.body)
        if now.body["error_code"] or recorded.body["error_code"] or not was:
            return
        self.latest[was] = now.body[name]
        self.epochs[was, recorded.body[name]] = now.body[name]


def member(request: OutgoingRequest, body: dict[str, Any]) -> str:
    """Return the member id that a response gives; an id that the client chose itself is only in the request."""
    given: str = body.get(KIND) or ""
    return given or (request.exchange.request.body.get(KIND) or "" if request.exchange.request is not None else "")


def ids_in(message: Message) -> Iterator[UUID]:
    if message.api.key in TopicIdFix.requests:
        for struct, value in structs(layout_of(message), message.body):
            for slot in of_kind(struct, TOPIC_ID):
                ids = value[slot.name]
                yield from (one for one in (ids or () if slot.array else (ids,)) if one != ZERO_UUID)


class TopicIdFix:
    """Fix of topic ids.

    `names`: recorded id → name. `now`: name → id of the target, which its owner keeps up to date.
    """

    requests = carriers(TOPIC_ID, "request")
    answers: frozenset[int] = frozenset()

    def __init__(self, names: Mapping[UUID, str], now: Mapping[str, UUID]) -> None:
        self.names, self.now = names, now

    def request(self, request: OutgoingRequest) -> None:
        for struct, value in structs(layout_of(request.message), request.message.body):
            for slot in of_kind(struct, TOPIC_ID):
                recorded = value[slot.name]
                value[slot.name] = [self.of(one) for one in recorded or ()] if slot.array else self.of(recorded)

    def answer(self, request: OutgoingRequest, recorded: Message | None, now: Message) -> None:
        """Do nothing: the target's ids are learnt by their owner."""

    def of(self, topic_id: Any) -> Any:
        """Return the target's id for a recorded one."""
        name = self.names.get(topic_id)
        return topic_id if name is None else self.now.get(name, topic_id)


FILLER = "*"
LEFT_OUT = "made without the configs of the topic, whose values are withheld"


class ConfigFix:
    """Fix of the withheld configs of new topics, which are made without them."""

    requests = frozenset((CREATE_TOPICS,))
    answers: frozenset[int] = frozenset()

    def request(self, request: OutgoingRequest) -> None:
        frame = request.exchange.seen.request
        if frame is None or not frame.withheld:
            return
        for topic in topics(request.message):
            configs = topic.fields["configs"] or ()
            kept = [one for one in configs if not one["value"] or one["value"].strip(FILLER)]
            if len(kept) != len(configs):
                topic.fields["configs"] = kept
                request.notes.append(LEFT_OUT)

    def answer(self, request: OutgoingRequest, recorded: Message | None, now: Message) -> None:
        """Do nothing: responses do not contain withheld values."""


EPOCHS = ("current_leader_epoch", "last_fetched_epoch")
UNKNOWN_EPOCH = -1


class LeaderEpochFix:
    """Fix of the leader epochs in requests: they name none."""

    requests = frozenset((FETCH, LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH))
    answers: frozenset[int] = frozenset()

    def request(self, request: OutgoingRequest) -> None:
        for _, value in structs(layout_of(request.message), request.message.body):
            for name in EPOCHS:
                if name in value:
                    value[name] = UNKNOWN_EPOCH

    def answer(self, request: OutgoingRequest, recorded: Message | None, now: Message) -> None:
        """Do nothing: requests take no epoch from responses."""


UNREADABLE = "sent as it was recorded: it cannot be read"
UNWRITTEN = "sent as it was recorded: "


class FixChain:
    """Chain of the fixes of one replay.

    `names`: name of a recorded topic id; `ids`: the target's id of a name; `spread`: lines whose fetches go to several
    brokers. The latter two are kept up to date by their owner.
    """

    def __init__(self, names: Mapping[UUID, str], ids: Mapping[str, UUID], spread: Set[int] = frozenset()) -> None:
        self.producers, self.groups = ProducerFix(), GroupFix()
        self.fixes: tuple[Fix, ...] = (
            TopicIdFix(names, ids),
            LeaderEpochFix(),
            FetchSessionFix(spread),
            self.producers,
            self.groups,
            ConfigFix(),
        )
        self.changed = frozenset().union(*(fix.requests for fix in self.fixes))

    def request(self, exchange: RecordedExchange, link: int) -> tuple[bytes, OutgoingRequest | None]:
        """Return the frame to send, and the request in it.

        The request is None if it is sent unchanged, because no fix applies or because it cannot be read.
        """
        if exchange.key not in self.changed:
            return exchange.request_frame, None
        message = exchange.decode_request()
        if message is None:
            return exchange.request_frame, None
        outgoing = OutgoingRequest(exchange, message, link)
        for fix in self.fixes:
            if exchange.key in fix.requests:
                fix.request(outgoing)
        try:
            return encode(message), outgoing
        except EncodeError as error:
            outgoing.notes.append(f"{UNWRITTEN}{error}")
            return exchange.request_frame, outgoing

    def answer(self, exchange: RecordedExchange, outgoing: OutgoingRequest | None, frame: bytes) -> Message | None:
        """Return the target's response after the fixes have learnt from it; None if it cannot be read."""
        try:
            now = decode_response(frame, exchange.key, exchange.version, trailing=True)
        except DecodeError:
            return None
        if exchange.request is None or now.version != exchange.version:
            return now
        outgoing = outgoing or OutgoingRequest(exchange, exchange.request, 0)
        for fix in self.fixes:
            if exchange.key in fix.answers:
                fix.answer(outgoing, exchange.response, now)
        return now
