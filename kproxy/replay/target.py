"""What is known of the cluster that requests go to: nodes, leaders, coordinators, topic ids, versions.

Everything comes from the target's own answers, those to recorded requests included, so that a topic which the recording
makes is known as soon as it is there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from kproxy.wire import Message
from kproxy.wire.schema import Api, Versions

from .names import SHOWING, pairs

METADATA, FIND_COORDINATOR, API_VERSIONS, CREATE_TOPICS, DELETE_TOPICS = 3, 10, 18, 19, 20
GROUP, TRANSACTION = 0, 1
"""Key types of FindCoordinator (KIP-98)."""

Address = tuple[str, int]
Coordinator = tuple[int, str]
"""A key type, and a group or a transactional id."""


class Target:
    """Attributes: bootstrap; nodes (id → address); leaders ((topic, partition) → node id); ids (topic → id); names (id
    → topic); coordinators (→ node id); asked (topics and coordinators that an answer was had for, good or bad); made
    (topics that the replay has created, or may have), missing (those of them that never came); versions (API key →
    (first, last), empty: not known)."""

    def __init__(self, bootstrap: Address) -> None:
        self.bootstrap = bootstrap
        self.nodes: dict[int, Address] = {}
        self.leaders: dict[tuple[str, int], int] = {}
        self.ids: dict[str, UUID] = {}
        self.names: dict[UUID, str] = {}
        self.coordinators: dict[Coordinator, int] = {}
        self.asked: set[str | Coordinator] = set()
        self.made: set[str] = set()
        self.missing: set[str] = set()
        self.versions: dict[int, tuple[int, int]] = {}

    def lacks(self, key: int, version: int) -> str:
        """Why the target would not understand this request; empty if it will."""
        if not self.versions:
            return ""
        if key not in self.versions:
            return "the target does not have this API"
        first, last = self.versions[key]
        return "" if first <= version <= last else f"the target has versions {first} to {last} of it, not {version}"

    def newest(self, api: Api, most: int) -> int:
        """The newest version that both sides know, up to `most`."""
        ours: Versions = api.versions
        first, last = self.versions.get(api.key, (ours.first, ours.first))
        return max(min(last, ours.last, most), first)

    def address_of(self, node: int | None) -> Address | None:
        """None for a node that is not known, or not there."""
        return None if node is None else self.nodes.get(node)

    def learn(self, request: Message, response: Message) -> None:
        """From an answer of the target."""
        key, body = response.api.key, response.body
        if key in SHOWING:
            self.names.update(shown := dict(pairs(response)))
            self.ids.update((name, number) for number, name in shown.items())
        if key == METADATA:
            self.metadata(request, body)
        elif key == FIND_COORDINATOR:
            self.find_coordinator(request.body, body)
        elif key == API_VERSIONS and not body["error_code"]:
            self.versions = {one["api_key"]: (one["min_version"], one["max_version"]) for one in body["api_keys"]}
        elif key == CREATE_TOPICS:
            made = {topic["name"] for topic in body["topics"] or () if not topic["error_code"]}
            self.missing -= made
            self.make(made)
        elif key == DELETE_TOPICS:
            for topic in body["responses"] or ():
                if not topic["error_code"]:
                    self.forget(topic.get("name"))

    def metadata(self, request: Message, body: dict[str, Any]) -> None:
        self.nodes.update((one["node_id"], (one["host"], one["port"])) for one in body["brokers"] or ())
        creates = request.body.get("allow_auto_topic_creation", True) and request.body["topics"]
        for topic in body["topics"] or ():
            if (
                topic["error_code"]
                and creates
                and topic["name"]
                and topic["name"] not in self.missing | self.ids.keys()
            ):
                self.make([topic["name"]])  # LEADER_NOT_AVAILABLE, or not yet there: it may be being made
            if topic["error_code"] or not topic["name"]:
                continue
            leaders = {(topic["name"], one["partition_index"]): one["leader_id"] for one in topic["partitions"] or ()}
            self.leaders.update(leaders)
            if topic["name"] not in self.made or min(leaders.values(), default=-1) >= 0:
                self.asked.add(topic["name"])

    def find_coordinator(self, asked: dict[str, Any], body: dict[str, Any]) -> None:
        kind = asked.get("key_type", GROUP)
        found = body["coordinators"] if "coordinators" in body else [{**body, "key": asked["key"]}]
        for one in found or ():
            if not one["error_code"]:
                self.coordinators[kind, one["key"]] = one["node_id"]
                self.nodes.setdefault(one["node_id"], (one["host"], one["port"]))
                self.asked.add((kind, one["key"]))

    def make(self, topics: Iterable[str]) -> None:
        """Topics that requests of the replay create: they may not be there at once."""
        self.made.update(made := set(topics))
        self.asked -= made

    def give_up(self, topics: Iterable[str]) -> None:
        """Topics that have been waited for long enough."""
        self.missing.update(gone := self.made.intersection(topics))
        self.made -= gone

    def forget(self, topic: str | None) -> None:
        """A topic that is deleted."""
        if topic:
            self.ids.pop(topic, None)
            self.made.discard(topic)
            self.asked.discard(topic)
            for key in [key for key in self.leaders if key[0] == topic]:
                del self.leaders[key]
