"""The broker-side topics of a cluster, asked for by a Metadata request of kproxy's own when a rule needs them.

Names are for patterns that the broker would evaluate, ids tell which topic a client means by one.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any, Final

from kproxy.errors import DecodeError
from kproxy.wire import Message, decode_response, encode, schema

from .counters import Counters
from .names.ids import learn

METADATA: Final = 3
VERSION: Final = 10  # from Kafka 2.8 to the newest; the first that tells ids, which no client of an older one can use
CORRELATION: Final = -0x6B70
ASK_AGAIN_AFTER: Final = 10.0
"""Seconds for which names are taken as current; a regular expression sees a new topic after that and a heartbeat."""
TOPICS: Final = "topics"


def all_topics_request() -> bytes:
    """The frame, with its size, of a request for all topics."""
    return _request(None)


def brokers_request() -> bytes:
    """The same for the brokers only."""
    return _request([])


def _request(topics: list[str] | None) -> bytes:
    header = {
        "request_api_key": METADATA,
        "request_api_version": VERSION,
        "correlation_id": CORRELATION,
        "client_id": "kproxy",
    }
    body = {
        "topics": topics,
        "allow_auto_topic_creation": False,
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": False,
    }
    frame = encode(Message(schema.load(METADATA), VERSION, header, body))
    return len(frame).to_bytes(4, "big") + frame


def remember_topics(memory: MutableMapping[str, Any], frame: bytes, now: float, counters: Counters) -> None:
    """Keep the names and ids of an answer; one that cannot be read is counted, and the names before it stay."""
    try:
        body = decode_response(frame, METADATA, VERSION).body
        topics = [((topic["name"] or "").encode("utf-8", "surrogateescape"), topic) for topic in body["topics"] or ()]
        names = [name for name, _ in topics if name]
        for name, topic in topics:
            if name:
                learn(memory, topic["topic_id"].bytes, name)
    except DecodeError:
        counters.count("own_metadata_unreadable")
        names = memory.get(TOPICS, ([], 0.0))[0]
    memory[TOPICS] = (names, now)


def fresh_topics(memory: MutableMapping[str, Any], now: float) -> list[bytes] | None:
    """The names, if they were heard not too long ago."""
    names, heard = memory.get(TOPICS, (None, 0.0))
    return names if names is not None and now - heard < ASK_AGAIN_AFTER else None
