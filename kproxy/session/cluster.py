"""The broker-side topics of a cluster, requested by a Metadata request made by kproxy when a rule needs them.

Patterns are evaluated by name, as the broker would; ids identify the topic that a client refers to. The name of an id
is looked up by that id; only for DeleteTopics, which is older than such lookups, all topics are requested.
"""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping
from functools import cache
from typing import Any, Final
from uuid import UUID

from kproxy.base.cooperative import free_list, yielding
from kproxy.base.errors import DecodeError
from kproxy.protocol import Message, encode
from kproxy.protocol.framing import body_start, framed
from kproxy.protocol.scan.walk import Walk, read_string, walk
from kproxy.protocol.table import schema
from kproxy.protocol.table.api_keys import METADATA
from kproxy.rules.names.composed import NameMap
from kproxy.session.rewrite.context import (
    ASKED_IDS,
    MAX_ASKED_AT_ONCE,
    TOPIC_IDS,
    Context,
    NeedsLookup,
    session_lru,
)
from kproxy.session.rewrite.names.topic_ids import ZERO, is_nobodys, learn

from .counters import Counters

VERSION: Final = 10  # from Kafka 2.8 to the newest; the first with ids, which clients of older brokers cannot use
OLD_VERSION: Final = 2  # Kafka 0.10.1 to 3.9: the first version with the cluster id, which has no other fields
CORRELATION: Final = -0x6B70
ASK_AGAIN_AFTER: Final = 10.0
"""Seconds until cached names expire; a regular expression matches a new topic after that and a heartbeat."""
TOPICS: Final = "topics"


BY_ID_VERSION: Final = 12
"""First Metadata version that maps ids to names; supported by all brokers with topic ids in requests other than
DeleteTopics."""
ENTRY: Final = "topics[].error_code", "topics[].name", "topics[].topic_id"


def all_topics_request() -> bytes:
    """Return the frame, with its size, of a request for all topics."""
    return _request(VERSION, None, include_cluster_authorized_operations=False)


def brokers_request(version: int = VERSION) -> bytes:
    """Return the frame, with its size, of a request for the brokers only, in `VERSION` or in `OLD_VERSION`."""
    if version == OLD_VERSION:
        return _request(version, [])
    return _request(version, [], include_cluster_authorized_operations=False)


def named_topics_request(topic_ids: Iterable[bytes]) -> bytes:
    """Return the frame, with its size, of a request for the topics that have these ids."""
    return _request(BY_ID_VERSION, [{"topic_id": UUID(bytes=one), "name": None} for one in yielding(topic_ids)])


def _request(version: int, topics: list[dict[str, Any]] | None, **fields: bool) -> bytes:
    header = {
        "request_api_key": METADATA,
        "request_api_version": version,
        "correlation_id": CORRELATION,
        "client_id": "kproxy",
    }
    body: dict[str, Any] = {"topics": topics, **fields}
    if version > OLD_VERSION:
        body |= {"allow_auto_topic_creation": False, "include_topic_authorized_operations": False}
    return framed(encode(Message(schema.load(METADATA), version, header, body)))


@cache
def entry_walk(version: int) -> Walk:
    """Return a walk of a Metadata response that finds the error, the name and the id of each topic."""
    return walk(METADATA, version, "response", frozenset(ENTRY))


def read_topics(frame: bytes, version: int) -> list[tuple[bytes, bytes]]:
    """Return name and id of each topic in a response that has both, and no error. Raises DecodeError."""
    body = body_start(frame, 0, len(frame), 1, "response")
    if body is None:
        raise DecodeError("header does not end in the frame", api="Metadata", version=version, offset=len(frame))
    found: list[tuple[bytes, bytes]] = []
    hits: list[tuple[int, int, int]] = []
    entries = entry_walk(version)
    entries.run(frame, body, len(frame), hits)
    code_mark, name_mark, id_mark = (entries.find("value", path) for path in ENTRY)
    code, name = b"", None
    for mark, start, end in yielding(hits):
        if mark == code_mark:
            code = frame[start:end]
        elif mark == name_mark:
            name = read_string(frame, start, end, True)
        elif mark == id_mark and name and not any(code):
            found.append((name, frame[start:end]))
    free_list(hits)
    return found


def remember_topics(memory: MutableMapping[str, Any], frame: bytes, now: float, counters: Counters) -> None:
    """Keep the names and ids of an answer; one that cannot be read is counted, and the names before it stay."""
    try:
        topics = read_topics(frame, VERSION)
        names = [name for name, _ in yielding(topics)]
        remember_ids(memory, topics)
    except DecodeError:
        counters.count("own_metadata_unreadable")
        names = memory.get(TOPICS, ([], 0.0))[0]
    memory[TOPICS] = (names, now)


def remember_named(memory: MutableMapping[str, Any], frame: bytes, counters: Counters) -> None:
    """Cache the names from a response to `named_topics_request`; ids unknown to the broker stay unknown."""
    try:
        remember_ids(memory, read_topics(frame, BY_ID_VERSION))
    except DecodeError:
        counters.count("own_metadata_unreadable")


def remember_ids(memory: MutableMapping[str, Any], topics: Iterable[tuple[bytes, bytes]]) -> None:
    """Keep the names of these topic ids for all connections of the cluster."""
    for name, topic_id in yielding(topics):
        if topic_id != ZERO:
            learn(memory, topic_id, name)


def topics_heard(memory: MutableMapping[str, Any]) -> float:
    """Return when the broker last listed all topics."""
    heard: float = memory.get(TOPICS, (None, float("-inf")))[1]
    return heard


def fresh_topics(memory: MutableMapping[str, Any], now: float) -> list[bytes] | None:
    """Return the names of all topics, if they were heard not too long ago."""
    names, heard = memory.get(TOPICS, (None, 0.0))
    return names if names is not None and now - heard < ASK_AGAIN_AFTER else None


class Cluster:
    """View of the memory that the connections of a cluster share, with the names that one connection's clients use."""

    __slots__ = ("context", "topics")

    def __init__(self, context: Context, topics: NameMap | None) -> None:
        self.context, self.topics = context, topics

    def topic_of(self, topic_id: UUID) -> str | None:
        """Return the clients' name of the topic; None: not in any response yet, or hidden from clients."""
        name = session_lru(self.context.cluster_memory, TOPIC_IDS).get(topic_id.bytes)
        if name is not None and self.topics is not None:
            name = self.topics.to_client(name)
        return None if name is None else name.decode("utf-8", "replace")

    @property
    def nodes(self) -> tuple[int, ...]:
        """Return the ids of the brokers in this connection's responses, ascending."""
        return tuple(sorted(self.context.nodes))

    def unknown(
        self, topic_ids: Iterable[UUID], *, listed: bool = False, needed: NeedsLookup | None = None
    ) -> NeedsLookup | None:
        """Return the lookup of ids without a known name, together with the lookup `needed`. A request causes one
        lookup, and a connection one of each id. `listed`: all topics are listed instead (see `VisibleIds`)."""
        context = self.context
        if context.looked_up is not None:
            return needed
        known, asked = session_lru(context.cluster_memory, TOPIC_IDS), session_lru(context.memory, ASKED_IDS)
        wanted = set() if needed is None else set(needed.ids)
        for topic_id in yielding(topic_ids):
            key = topic_id.bytes
            if not (key in known or key in asked or is_nobodys(key)):
                asked[key] = context.now
                if len(wanted) < MAX_ASKED_AT_ONCE:
                    wanted.add(key)
        all_topics = listed or (needed is not None and needed.all_topics)
        return NeedsLookup(ids=wanted, all_topics=all_topics) if wanted else needed
