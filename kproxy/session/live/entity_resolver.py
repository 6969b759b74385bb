"""Entities that the requests of a connection are about, with names for topic ids and all partitions of a fetch session.

Strategy. Sessions are tracked only while a rule selects Fetch or ShareFetch. A session whose start was not seen is
answered with a session error once; the client starts over with all its partitions. A session is held by the exchange
that opens or continues it, and by the id or owner that its broker has confirmed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from uuid import UUID

from kproxy.base.cooperative import defer_free, yielding
from kproxy.base.errors import DecodeError
from kproxy.protocol.codec.message import Message
from kproxy.protocol.table.api_keys import DELETE_TOPICS, FETCH, SHARE_ACKNOWLEDGE, SHARE_FETCH
from kproxy.rules.entity import Entity, entity_reader
from kproxy.rules.select.frame_match import asks_all
from kproxy.session.cluster import Cluster
from kproxy.session.fetch_sessions import NOT_FOUND, SHARE_NOT_FOUND, FetchSessions, ShareSessions, owner_of
from kproxy.session.frame import RequestView, ResponseView
from kproxy.session.partition_session import Key, PartitionSession, SessionPartitionShare
from kproxy.session.respond.error_responses import Failure
from kproxy.session.rewrite.context import NeedsLookup
from kproxy.session.rule_program import RuleProgram
from kproxy.session.session_state import SessionState

from .evaluation import EvaluatedExchange
from .selection import MOST_MATCHED, Selection, SessionSelection, key_of

SESSION_HEAD, SHARE_HEAD = 10, 6
"""Bytes after a response's header with its session: throttle_time_ms, error_code, for a Fetch session_id."""
UNREADABLE = -1
"""Stands for the error of a response that cannot be read."""


def asks_nothing(exchange: EvaluatedExchange, found: Sequence[Entity]) -> bool:
    """Return True if a request about topics names none, and does not request all of them either."""
    named = any(one.topic is not None or one.topic_id is not None for one in yielding(found))
    return not named and not asks_all(exchange.request)


class EntityResolver:
    """Reader of the entities of one connection's requests, with its fetch and share sessions."""

    __slots__ = ("cluster", "fetch", "session", "share")

    def __init__(self, session: SessionState, cluster: Cluster) -> None:
        self.session, self.cluster = session, cluster
        self.fetch: FetchSessions | None = None
        self.share: ShareSessions | None = None

    def of(
        self, exchange: EvaluatedExchange, every: RuleProgram, frame: RequestView, needed: NeedsLookup | None
    ) -> Selection | SessionSelection | Failure | NeedsLookup:
        """Return the entities of the request by the rules of `every`, or the error of a request of an unknown session.

        The call is repeated after the lookup of topic names, which contains the lookup `needed`. Raises DecodeError.
        """
        api, version = exchange.api, exchange.version
        body = frame.body
        if body is None:
            raise DecodeError(
                "header does not end in the frame", api=api.name, version=version, offset=frame.length - 4
            )
        program = exchange.program
        found = defer_free(entity_reader(api.key, version, every.reads_offsets).read(frame.buf, body, frame.end))
        ids = [one.topic_id for one in yielding(found) if one.topic_id is not None] if program.reads_topics else ()
        if ids:
            needed = self.cluster.unknown(ids, listed=api.key == DELETE_TOPICS, needed=needed)
        if needed is not None:
            return needed
        found = self.named(exchange, found)
        sessions = self.sessions(exchange)
        if sessions is None:
            return Selection(every, found, asks_nothing=every.of_answers and asks_nothing(exchange, found))
        by_key = defer_free(
            {key_of(one): one for one in yielding(found) if one.where}
        )  # without any it is itself one entity
        session = sessions.request(exchange.request)
        if isinstance(session, PartitionSession) and exchange.api.key != SHARE_ACKNOWLEDGE:
            selection = self.selected(session, exchange, every, by_key)
            if selection is not None:
                exchange.session = session
                return selection if selection or exchange.api.key == FETCH else Selection(every, found)
            session = sessions.unknown("it has topic ids without a name, or the rules have changed")
        if isinstance(session, int):
            if program.enforces:
                return Failure(session)
            sessions.lose(exchange.request)  # rules in dry-run mode change no answer
            session = None
        exchange.session = session
        if not by_key and exchange.api.key != FETCH:  # the request opens or ends a session of a group all the same
            return Selection(every, found)
        return Selection(every, tuple(by_key.values()))

    def selected(
        self, session: PartitionSession, exchange: EvaluatedExchange, every: RuleProgram, listed: dict[Key, Entity]
    ) -> SessionSelection | None:
        """Return the entities of a session's request. None: the session's state is invalid now."""
        selection: SessionSelection | None = session.selection
        if selection is not None and selection.program is not every:
            if same(selection.program, every):
                selection.program = every
            elif selection.program.version != every.version or len(session.asked) > MOST_MATCHED:
                self.end(exchange, session)
                return None
            else:
                selection = None
        if selection is None:
            selection = session.selection = SessionSelection(every)
            body = exchange.request.body
            group, member = (None, None) if exchange.api.key == FETCH else (body["group_id"], body["member_id"])
            unlisted_ones = [
                unlisted(key, group, member, asked.get("fetch_offset"))
                for key, asked in yielding(session.asked.items())
                if key not in listed
            ]
            for entity in self.named(exchange, unlisted_ones):
                selection.add(key_of(entity), entity)
        for key in yielding(selection.passing):
            selection.discard(key)
        for key, entity in yielding(listed.items()):
            if key not in selection.partitions:
                selection.add(key, placeless(entity))
            elif every.reads_offsets:
                selection.move(key, placeless(entity))
        for key in yielding(session.forgotten):
            if key not in listed:
                selection.discard(key)
        selection.passing = [key for key in yielding(listed) if key not in session.asked]
        if selection.nameless and exchange.program.enforces:
            self.end(exchange, session)
            return selection if session.opening else None
        return selection

    def too_many(self, exchange: EvaluatedExchange, session: PartitionSession) -> Failure | None:
        """End a session with too many partitions that a rule matches, so that its requests have to list all their
        partitions. Return the error of the response. None: the request lists all partitions."""
        self.end(exchange, session)
        if session.opening:
            return None
        return Failure(NOT_FOUND if exchange.api.key == FETCH else SHARE_NOT_FOUND)

    @property
    def room(self) -> SessionPartitionShare:
        return SessionPartitionShare(self.session.shared.room, self.session.facts)

    def sessions(self, exchange: EvaluatedExchange) -> FetchSessions | ShareSessions | None:
        """Return the sessions that the request may belong to; None: its API has none."""
        if exchange.api.key == FETCH:
            if self.fetch is None:
                self.fetch = FetchSessions(self.session.counters, self.room)
            return self.fetch
        if exchange.api.key in (SHARE_FETCH, SHARE_ACKNOWLEDGE):
            if self.share is None:
                self.share = ShareSessions(self.session.counters, self.room)
            return self.share
        return None

    def named(self, exchange: EvaluatedExchange, found: Iterable[Entity]) -> tuple[Entity, ...]:
        """Return the entities with the names of topics that are given by id. Rules that select topics by name do not
        apply to a topic whose name stays unknown, except for those that forbid, as it may be a forbidden one."""
        named = tuple(one if one.topic_id is None else self.by_id(one) for one in yielding(found))
        defer_free(named)
        if exchange.program.reads_topics and any(one.topic is None and one.topic_id for one in yielding(named)):
            self.session.counters.count("topic_ids_unknown")
        return named

    def by_id(self, entity: Entity) -> Entity:
        """Return an entity that has an id with the name of this id: brokers go by ids where a request has both. If the
        request gives another name with the id, the name is None, as it is ambiguous."""
        assert entity.topic_id is not None
        name = self.cluster.topic_of(entity.topic_id)
        if entity.topic is not None and entity.topic != name:
            name = None
        return entity if name == entity.topic else replace(entity, topic=name)

    # ---- what becomes of requests and responses of sessions

    def forwarded(self, exchange: EvaluatedExchange, removed: Iterable[Entity] = ()) -> Message | None:
        """Return the request to forward, without some of its partitions; None: unchanged. It may differ because the
        broker's session lacks partitions that kproxy has answered."""
        sessions, session = self.sessions(exchange), exchange.session
        if sessions is None or (session is not None and not (session.followed or exchange.program.enforces)):
            return None
        request = exchange.request
        exchange.awaits = session is not None
        request = exchange.request
        body = sessions.forward(session, request, {key_of(one) for one in yielding(removed)})
        return None if body is None else Message(request.api, request.version, request.header, body)

    def over(self) -> None:
        """End all sessions when the connection has ended."""
        for sessions in (self.fetch, self.share):
            if sessions is not None:
                sessions.end()

    def end(self, exchange: EvaluatedExchange, session: PartitionSession) -> None:
        """Forget a session, which the client cannot continue then."""
        if exchange.api.key == FETCH:
            assert self.fetch is not None
            self.fetch.forget(session)
        else:
            assert self.share is not None
            self.share.forget_at(owner_of(exchange.request), session)

    def answered_here(self, exchange: EvaluatedExchange, response: Message) -> None:
        """Note an answer of kproxy's own to a request that a session may belong to."""
        session, error = exchange.session, response.body.get("error_code", 0)
        if session is None:
            return
        if exchange.api.key == FETCH:
            assert self.fetch is not None
            self.fetch.own_answer(session, error, response.body)
        else:
            assert self.share is not None
            self.share.own_answer(session, exchange.request, error)

    def answered(self, exchange: EvaluatedExchange, response: Message | None) -> None:
        """Note a whole response of the broker; None: it cannot be read."""
        body = {"error_code": UNREADABLE} if response is None else response.body
        self.confirm(exchange, body["error_code"], body.get("session_id", 0))

    def head(self, exchange: EvaluatedExchange, frame: ResponseView) -> None:
        """Note the head of a response to a request of a session."""
        buf, at = frame.buf, frame.body
        length = SESSION_HEAD if exchange.api.key == FETCH else SHARE_HEAD
        if at is None or at + length > frame.have:
            self.answered(exchange, None)
            return
        error = int.from_bytes(buf[at + 4 : at + 6], "big", signed=True)
        self.confirm(exchange, error, int.from_bytes(buf[at + 6 : at + 10], "big", signed=True))

    def confirm(self, exchange: EvaluatedExchange, error: int, number: int) -> None:
        """Note the broker's answer to a request of a session. `number`: the id that a Fetch response gives."""
        session = exchange.session
        assert session is not None
        if exchange.api.key == FETCH:
            assert self.fetch is not None
            self.fetch.response(session, error, number)
        else:
            assert self.share is not None
            self.share.response(session, exchange.request, error)


def placeless(entity: Entity) -> Entity:
    """Return the same entity without its place in the request, for requests that list it elsewhere or not at all."""
    return Entity(
        entity.topic, entity.topic_id, entity.partition, entity.group, entity.transactional_id, None, entity.member,
        offset=entity.offset,
    )  # fmt: skip


def same(first: RuleProgram, second: RuleProgram) -> bool:
    """Return True if these are the same rules for the same version."""
    return first.version == second.version and [part.running for part in first.parts] == [
        part.running for part in second.parts
    ]


def unlisted(key: Key, group: str | None = None, member: str | None = None, offset: int | None = None) -> Entity:
    """Return the entity of a session's partition that the current request does not list. `offset`: the client's offset
    when it last listed it."""
    topic, partition = key
    if isinstance(topic, UUID):
        return Entity(topic_id=topic, partition=partition, group=group, member=member, offset=offset)
    return Entity(topic=topic, partition=partition, offset=offset)
