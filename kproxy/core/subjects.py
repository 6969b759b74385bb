"""What the requests of a connection are about: their entities, with names for topic ids and all of a fetch session's.

Strategy. Sessions are remembered only while a rule looks at Fetch or ShareFetch; one whose start was not seen is
answered with an error of sessions, once, and the client begins anew with all its partitions.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import UUID

from kproxy.errors import DecodeError
from kproxy.rules.entity import Entity
from kproxy.rules.entity_reader import entity_reader
from kproxy.wire.head import body_start
from kproxy.wire.message import Message

from . import fetch_sessions, share_sessions
from .fetch_sessions import FETCH, SESSIONS_SINCE, FetchSessions
from .names.ids import DELETE_TOPICS
from .partition_session import OPENING, Key
from .rewrite import Buffer
from .share_sessions import SHARE_ACKNOWLEDGE, SHARE_FETCH, ShareSessions

if TYPE_CHECKING:
    from .cluster import Cluster
    from .ruled_exchange import RuledExchange
    from .session import Session

SESSION_HEAD = 14
"""Bytes behind a Fetch response's header up to the end of session_id: throttle_time_ms, error_code, session_id."""


class Subjects:
    """Of one connection."""

    __slots__ = ("cluster", "fetch", "session", "share")

    def __init__(self, session: Session, cluster: Cluster) -> None:
        self.session, self.cluster = session, cluster
        self.fetch: FetchSessions | None = None
        self.share: ShareSessions | None = None

    def of(self, exchange: RuledExchange, buf: Buffer, start: int, end: int) -> tuple[Entity, ...] | int:
        """The entities of the request buf[start:end], or the error that a request of an unknown session is answered by.

        `context.incomplete` afterwards: the name of a topic has to be asked for, call again then. Raises DecodeError.
        """
        api, version = exchange.api, exchange.version
        body = body_start(buf, start, end, api.header_version("request", version), "request")
        if body is None:
            raise DecodeError("header does not end in the frame", api=api.name, version=version, offset=end - start)
        found = entity_reader(api.key, version).read(buf, body, end)
        ruled = exchange.ruled
        for entity in found if ruled.reads_topics else ():
            if entity.topic_id is not None:
                self.cluster.asks(entity.topic_id, listed=exchange.api.key == DELETE_TOPICS)
        if self.session.context.incomplete:
            return ()
        sessions = self.sessions(exchange)
        if sessions is not None:
            keys = sessions.request(exchange.request)
            if keys is None and not ruled.enforces:  # who only observes changes no answer
                sessions.lose(exchange.request)
                return self.named(exchange, found)
            if keys is None:
                return fetch_sessions.NOT_FOUND if exchange.api.key == FETCH else share_sessions.NOT_FOUND
            exchange.opens = exchange.api.key == FETCH and opens(exchange.request)
            found = self.all_of(keys, found)
        return self.named(exchange, found)

    def sessions(self, exchange: RuledExchange) -> FetchSessions | ShareSessions | None:
        """Those that the request may belong to."""
        if exchange.api.key == FETCH:
            if self.fetch is None:
                self.fetch = FetchSessions(self.session.counters)
            return self.fetch
        if exchange.api.key in (SHARE_FETCH, SHARE_ACKNOWLEDGE):
            if self.share is None:
                self.share = ShareSessions(self.session.counters)
            return self.share
        return None

    def all_of(self, keys: tuple[Key, ...], listed: tuple[Entity, ...]) -> tuple[Entity, ...]:
        """The session's partitions: those that the request lists, and those that it does not."""
        known = {(one.topic_id or one.topic, one.partition): one for one in listed}
        return tuple(known.get(key) or unlisted(key) for key in keys)

    def named(self, exchange: RuledExchange, found: tuple[Entity, ...]) -> tuple[Entity, ...]:
        """With the names of topics that are given by id. One whose name stays unknown is for no rule that selects
        topics by name, except for those that forbid: it may be the one."""
        named = tuple(one if one.topic_id is None else self.by_id(one) for one in found)
        if exchange.ruled.reads_topics and any(one.topic is None and one.topic_id for one in named):
            self.session.counters.count("topic_ids_unknown")
        return named

    def by_id(self, entity: Entity) -> Entity:
        """An entity that has an id, with the name that this id has: brokers go by ids where a request has both. One
        that says another name with it has none, since nobody can tell which of the two is meant."""
        assert entity.topic_id is not None
        name = self.cluster.topic_of(entity.topic_id)
        if entity.topic is not None and entity.topic != name:
            name = None
        return entity if name == entity.topic else replace(entity, topic=name)

    # ---- what becomes of requests and responses of sessions

    def forwarded(self, exchange: RuledExchange, removed: Iterable[Entity] = ()) -> Message | None:
        """The request goes to the broker, without some of its partitions. Gives what is to be sent if that is not the
        request itself: the broker lacks what kproxy has answered before."""
        sessions = self.sessions(exchange)
        if sessions is None:
            return None
        keys = [(one.topic_id or one.topic or "", one.partition or 0) for one in removed]
        request = exchange.request
        body = sessions.forward(request, keys)
        return None if body is None else Message(request.api, request.version, request.header, body)

    def answered(self, exchange: RuledExchange, response: Message) -> None:
        """A whole response, of the broker or of kproxy."""
        sessions = self.sessions(exchange)
        if sessions is not None:
            sessions.response(exchange.request, response)

    def opened(self, exchange: RuledExchange, buf: Buffer, pos: int, n: int) -> None:
        """The head of a response that may open a session, size included."""
        version = exchange.api.header_version("response", exchange.version)
        at = body_start(buf, pos + 4, n, version, "response")
        if at is not None and at + SESSION_HEAD - 4 <= n:
            error = int.from_bytes(buf[at + 4 : at + 6], "big", signed=True)
            number = int.from_bytes(buf[at + 6 : at + 10], "big", signed=True)
            body = {"error_code": error, "session_id": number}
            self.answered(exchange, Message(exchange.api, exchange.version, {}, body))


def opens(request: Message) -> bool:
    """Whether a Fetch wants a new session."""
    return request.version >= SESSIONS_SINCE and request.body["session_epoch"] == OPENING


def unlisted(key: Key) -> Entity:
    """A partition of the session that the request at hand does not list."""
    topic, partition = key
    if isinstance(topic, UUID):
        return Entity(topic_id=topic, partition=partition)
    return Entity(topic=topic, partition=partition)
