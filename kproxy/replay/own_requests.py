"""Requests that the replay sends of its own: for versions, topics, coordinators."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from kproxy.wire import Message
from kproxy.wire.table import schema
from kproxy.wire.table.api_keys import API_VERSIONS, FIND_COORDINATOR, METADATA

from .target import GROUP, CoordinatorKey, TargetCluster

CLIENT_ID = "kproxy-replay"
METADATA_VERSION, COORDINATOR_VERSION = 12, 3
"""The newest that are asked for: topic ids are in Metadata 10, and FindCoordinator 4 asks for many at once."""


def own(key: int, version: int, body: dict[str, object]) -> Message:
    """Return a request with this body; its correlation id is set when it is sent."""
    header = {"request_api_key": key, "request_api_version": version, "correlation_id": 0, "client_id": CLIENT_ID}
    return Message(schema.load(key), version, header, body)


def ask_versions() -> Message:
    """Return a request for the target's versions, in version 0, which every broker has."""
    return own(API_VERSIONS, 0, {})


def ask_topics(target: TargetCluster, topics: Iterable[str]) -> Message:
    """Return a request for the ids of topics and the leaders of their partitions.

    It creates no topic where that can be said (v4+).
    """
    version = target.newest(schema.load(METADATA), METADATA_VERSION)
    body: dict[str, object] = {"topics": [{"name": name, "topic_id": UUID(int=0)} for name in sorted(topics)]}
    if version < 10:
        body["topics"] = [{"name": name} for name in sorted(topics)]
    if version >= 4:
        body["allow_auto_topic_creation"] = False
    return own(METADATA, version, body)


def ask_coordinator(target: TargetCluster, wanted: CoordinatorKey) -> Message:
    """Return a request for the coordinator of a group or transactional id."""
    version = target.newest(schema.load(FIND_COORDINATOR), COORDINATOR_VERSION)
    kind, key = wanted
    body: dict[str, object] = {"key": key}
    if version >= 1:
        body["key_type"] = kind
    elif kind != GROUP:
        return ask_versions()  # there are no transactions where FindCoordinator cannot tell them from groups
    return own(FIND_COORDINATOR, version, body)
