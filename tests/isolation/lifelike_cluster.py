"""What a Kafka cluster keeps from one request to the next: sessions with their records, types of groups, who logged in.

    cluster = LifelikeCluster({"a.mine": MINE, "b.secret": SECRET}, users={"x": "right"})
    cluster.answer(connection, asked)       # the body of the answer; None: of this API nothing is kept

It answers Fetch, ShareFetch, JoinGroup, SaslHandshake and SaslAuthenticate as brokers do. A topic's records say whose
they are (`record_of`), so whoever is sent them has read the topic, whichever way the request was spelled.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from kproxy.protocol import Message
from kproxy.protocol.table import layout

FETCH, JOIN_GROUP, SYNC_GROUP, HANDSHAKE, AUTHENTICATE, SHARE_FETCH = 1, 11, 14, 17, 36, 78
UNKNOWN_TOPIC, UNKNOWN_TOPIC_ID, INCONSISTENT_GROUP_PROTOCOL = 3, 100, 23
NO_FETCH_SESSION, WRONG_FETCH_EPOCH, WRONG_KIND_OF_ID = 70, 71, 106
NO_SHARE_SESSION, WRONG_SHARE_EPOCH = 122, 123
UNSUPPORTED_MECHANISM, AUTHENTICATION_FAILED = 33, 58
OPENING, CLOSING = 0, -1
IDS_FROM, SESSIONS_FROM = 13, 7
CONSUMER = "consumer"
Part = tuple[str | UUID, int]


def record_of(topic: str) -> bytes:
    return f"<record of {topic}>".encode()


@dataclass
class HeldSession:
    """Partitions that the next request of a session need not list; `epoch` is what it has to say."""

    parts: dict[Part, None]
    by_id: bool = True
    epoch: int = 1

    def go_on(self, asked: Message) -> None:
        """Brokers add what a request lists before they forget what it forgets."""
        self.parts |= dict.fromkeys(listed(asked))
        for part in forgotten(asked):
            self.parts.pop(part, None)
        self.epoch += 1


@dataclass
class LifelikeCluster:
    """One broker of it. `who`: the user of each connection."""

    topics: Mapping[str, UUID]
    users: Mapping[str, str] = field(default_factory=dict)
    fetch_sessions: dict[int, HeldSession] = field(default_factory=dict)
    share_sessions: dict[tuple[Hashable, str, str], HeldSession] = field(default_factory=dict)
    groups: dict[str, str] = field(default_factory=dict)
    who: dict[Hashable, str] = field(default_factory=dict)
    made: int = 100

    def answer(self, connection: Hashable, asked: Message) -> dict[str, Any] | None:
        """The fields of an answer that its version has."""
        found = self.kept(connection, asked)
        if found is None:
            return None
        slots = layout.body(asked.api.key, asked.version, "response").slots
        return {slot.name: found[slot.name] for slot in slots if slot.name in found}

    def kept(self, connection: Hashable, asked: Message) -> dict[str, Any] | None:
        match asked.api.key:
            case 1:
                return self.fetched(asked)
            case 78:
                return self.shared(connection, asked)
            case 11:
                return self.joined(asked)
            case 17:
                known = asked.body["mechanism"] == "PLAIN"
                return {"error_code": 0 if known else UNSUPPORTED_MECHANISM, "mechanisms": ["PLAIN"]}
            case 36:
                right = self.login(connection, asked.body["auth_bytes"] or b"")
                return {"error_code": 0 if right else AUTHENTICATION_FAILED, "session_lifetime_ms": 60_000}
        return None

    def open_session(self, parts: Iterator[Part], by_id: bool = True) -> int:
        """The number of a new fetch session."""
        self.made += 1
        self.fetch_sessions[self.made] = HeldSession(dict.fromkeys(parts), by_id)
        return self.made

    def fetched(self, asked: Message) -> dict[str, Any]:
        body, by_id = asked.body, asked.version >= IDS_FROM
        number, epoch = body.get("session_id", 0), body.get("session_epoch", CLOSING)
        if epoch in (OPENING, CLOSING):
            self.fetch_sessions.pop(number, None)
            number = self.open_session(listed(asked), by_id) if epoch == OPENING else 0
            return {"session_id": number, "responses": self.records(listed(asked))}
        session = self.fetch_sessions.get(number)
        if session is None or session.epoch != epoch:
            return {"error_code": NO_FETCH_SESSION if session is None else WRONG_FETCH_EPOCH}
        if session.by_id != by_id:
            return {"error_code": WRONG_KIND_OF_ID}
        session.go_on(asked)
        return {"session_id": number, "responses": self.records(iter(session.parts))}

    def shared(self, connection: Hashable, asked: Message) -> dict[str, Any]:
        owner = connection, asked.body["group_id"], asked.body["member_id"]
        epoch = asked.body["share_session_epoch"]
        if epoch == OPENING:
            self.share_sessions[owner] = HeldSession(dict.fromkeys(listed(asked)))
            return {"responses": self.records(listed(asked))}
        session = self.share_sessions.get(owner)
        if session is None:
            return {"error_code": NO_SHARE_SESSION}
        if epoch == CLOSING:
            del self.share_sessions[owner]
            return {}
        if session.epoch != epoch:
            return {"error_code": WRONG_SHARE_EPOCH}
        session.go_on(asked)
        return {"responses": self.records(iter(session.parts))}

    def records(self, parts: Iterator[Part]) -> list[dict[str, Any]]:
        """A topic's records for each partition of it."""
        names = {topic_id: name for name, topic_id in self.topics.items()}
        found = []
        for topic, number in parts:
            by_id = isinstance(topic, UUID)
            name = names.get(topic) if isinstance(topic, UUID) else topic if topic in self.topics else None
            error = 0 if name else UNKNOWN_TOPIC_ID if by_id else UNKNOWN_TOPIC
            part = {"partition_index": number, "error_code": error, "records": record_of(name) if name else None}
            found.append({"topic_id" if by_id else "topic": topic, "partitions": [part]})
        return found

    def joined(self, asked: Message) -> dict[str, Any] | None:
        """A group keeps the type that its first member has."""
        kind = asked.body["protocol_type"]
        refused = self.groups.setdefault(asked.body["group_id"], kind) != kind
        return {"error_code": INCONSISTENT_GROUP_PROTOCOL} if refused else None

    def kind_of(self, asked: Message) -> str | None:
        """The protocol as which the bytes of a JoinGroup or SyncGroup are read; None: they are not."""
        said, kind = asked.body.get("protocol_type"), self.groups.get(asked.body["group_id"])
        return kind if said in (None, kind) else None

    def login(self, connection: Hashable, token: bytes) -> bool:
        """Whether a PLAIN token has a right password."""
        _, _, rest = bytes(token).partition(b"\0")
        user, _, password = rest.decode("utf-8", "replace").partition("\0")
        if self.users.get(user) != password:
            return False
        self.who[connection] = user
        return True


def listed(asked: Message) -> Iterator[Part]:
    """The partitions that a Fetch or ShareFetch lists."""
    number = "partition" if asked.api.key == FETCH else "partition_index"
    for topic in asked.body["topics"] or ():
        for part in topic["partitions"] or ():
            yield topic["topic_id"] if "topic_id" in topic else topic["topic"], part[number]


def forgotten(asked: Message) -> Iterator[Part]:
    """The partitions that it takes out of its session."""
    for topic in asked.body.get("forgotten_topics_data") or ():
        for number in topic["partitions"] or ():
            yield topic["topic_id"] if "topic_id" in topic else topic["topic"], number
