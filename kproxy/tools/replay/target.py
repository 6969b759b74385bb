"""Target cluster as far as it is known: nodes, leaders, coordinators, topic ids, versions.

Everything comes from the target's own responses, those to recorded requests included, so that a topic which the
recording makes is known as soon as it is there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from kproxy.protocol import Message
from kproxy.protocol.elements import partitions_of, topics
from kproxy.protocol.table.api_keys import API_VERSIONS, CREATE_TOPICS, DELETE_TOPICS, FIND_COORDINATOR, METADATA
from kproxy.protocol.table.schema import Api, Versions

from .structs import SHOWING, pairs

GROUP, TRANSACTION = 0, 1
"""Key types of FindCoordinator (KIP-98)."""

NodeAddress = tuple[str, int]
CoordinatorKey = tuple[int, str]
"""A key type, and a group or a transactional id."""


class TargetCluster:
    """Target cluster of a replay.

    Attributes: bootstrap; recorded (it is the recorded cluster itself, and `bootstrap` an address that its requests
    came to: all goes there, and nothing is asked before); nodes (id → address); leaders ((topic, partition) → node id);
    ids (topic → id); names (id → topic); coordinators (→ node id); looked_up (topics and coordinators that the target
    has answered about, well or not); created (topics that the replay has created, or may have), missing (those of them
    that never came); versions (API key → (first, last), empty: not known).
    """

    def __init__(self, bootstrap: NodeAddress, *, recorded: bool = False) -> None:
        self.bootstrap, self.recorded = bootstrap, recorded
        self.nodes: dict[int, NodeAddress] = {}
        self.leaders: dict[tuple[str, int], int] = {}
        self.ids: dict[str, UUID] = {}
        self.names: dict[UUID, str] = {}
        self.coordinators: dict[CoordinatorKey, int] = {}
        self.looked_up: set[str | CoordinatorKey] = set()
        self.created: set[str] = set()
        self.missing: set[str] = set()
        self.versions: dict[int, tuple[int, int]] = {}

    def lacks(self, key: int, version: int) -> str:
        """Return why the target would not understand this request; empty if it will."""
        if not self.versions:
            return ""
        if key not in self.versions:
            return "the target does not have this API"
        first, last = self.versions[key]
        return "" if first <= version <= last else f"the target has versions {first} to {last} of it, not {version}"

    def newest(self, api: Api, most: int) -> int:
        """Return the newest version that both sides know, up to `most`."""
        ours: Versions = api.versions
        first, last = self.versions.get(api.key, (ours.first, ours.first))
        return max(min(last, ours.last, most), first)

    def address_of(self, node: int | None) -> NodeAddress | None:
        """Return a node's address; None for a node that is not known, or not there."""
        return None if node is None else self.nodes.get(node)

    def learn(self, request: Message, response: Message) -> None:
        """Take in what a response of the target shows."""
        key, body = response.api.key, response.body
        if key in SHOWING:
            self.names.update(shown := dict(pairs(response)))
            self.ids.update((name, number) for number, name in shown.items())
        if key == METADATA:
            self.metadata(request, response)
        elif key == FIND_COORDINATOR:
            self.find_coordinator(request.body, body)
        elif key == API_VERSIONS and not body["error_code"]:
            self.versions = {one["api_key"]: (one["min_version"], one["max_version"]) for one in body["api_keys"]}
        elif key == CREATE_TOPICS:
            created = {topic.name for topic in topics(response) if topic.name and not topic.fields["error_code"]}
            self.missing -= created
            self.make(created)
        elif key == DELETE_TOPICS:
            for topic in topics(response):
                if not topic.fields["error_code"]:
                    self.forget(topic.name)

    def metadata(self, request: Message, response: Message) -> None:
        self.nodes.update((one["node_id"], (one["host"], one["port"])) for one in response.body["brokers"] or ())
        creates = request.body.get("allow_auto_topic_creation", True) and request.body["topics"]
        for topic in topics(response):
            name, failed = topic.name, topic.fields["error_code"]
            if failed and creates and name and name not in self.missing | self.ids.keys():
                self.make([name])  # LEADER_NOT_AVAILABLE, or not yet there: it may be being made
            if failed or not name:
                continue
            leaders = {(name, one.number): one.fields["leader_id"] for one in partitions_of(response, topic)}
            self.leaders.update(leaders)
            if name not in self.created or min(leaders.values(), default=-1) >= 0:
                self.looked_up.add(name)

    def find_coordinator(self, request: dict[str, Any], body: dict[str, Any]) -> None:
        kind = request.get("key_type", GROUP)
        coordinators = body["coordinators"] if "coordinators" in body else [{**body, "key": request["key"]}]
        for coordinator in coordinators or ():
            if not coordinator["error_code"]:
                self.coordinators[kind, coordinator["key"]] = coordinator["node_id"]
                self.nodes.setdefault(coordinator["node_id"], (coordinator["host"], coordinator["port"]))
                self.looked_up.add((kind, coordinator["key"]))

    def make(self, topics: Iterable[str]) -> None:
        """Note topics that requests of the replay create: they may not be there at once."""
        self.created.update(created := set(topics))
        self.looked_up -= created

    def give_up(self, topics: Iterable[str]) -> None:
        """Note topics as missing that have been waited for long enough."""
        self.missing.update(gone := self.created.intersection(topics))
        self.created -= gone

    def forget(self, topic: str | None) -> None:
        """Forget a topic that is deleted."""
        if topic:
            self.ids.pop(topic, None)
            self.created.discard(topic)
            self.looked_up.discard(topic)
            for key in [key for key in self.leaders if key[0] == topic]:
                del self.leaders[key]
