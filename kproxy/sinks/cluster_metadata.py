"""Metadata of a cluster, put together from Metadata responses: topics with their ids and leaders, and nodes.

Names are the broker's. It only grows by what responses about some topics show; a response about "all topics" that came
from the broker's side replaces it, so that topics which are gone leave it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

NO_ID = UUID(int=0)
MOST_TOPICS = 200_000
"""Topics that are remembered of a cluster, some 60 MB; Kafka's own limit of partitions is about there."""

MOST_MISSING = 100
"""Partitions of a topic that an answer may leave out. Kafka's answers name all of them, from 0 on; in a damaged one an
index may be 2^31 - 1, and that many leaders would stop everything."""


class KnownTopic(NamedTuple):
    """Topic of a cluster. `leaders`: node id by partition, -1: none or not told."""

    topic_id: str | None
    internal: bool
    leaders: tuple[int, ...]


class KnownNode(NamedTuple):
    """Broker of a cluster, as it advertises itself."""

    host: str
    port: int
    rack: str | None


@dataclass(slots=True)
class ClusterMetadata:
    """Metadata of one cluster. `version` counts changes. `by_id`: names by topic id in hex and dashes."""

    cluster: str
    cluster_id: str | None = None
    controller: int | None = None
    topics: dict[str, KnownTopic] = field(default_factory=dict)
    nodes: dict[int, KnownNode] = field(default_factory=dict)
    by_id: dict[str, str] = field(default_factory=dict)
    version: int = 0

    def learn(self, body: Mapping[str, Any], broker_name: Callable[[str], str | None], own: bool = False) -> None:
        """Take in the body of a Metadata response.

        `broker_name`: the broker's name of a topic, None: the same. `own`: it came straight from a broker, names all
        topics, and its addresses are the brokers' own.
        """
        listed = {}
        for topic in body.get("topics") or ():
            name = topic.get("name")
            if name and not topic["error_code"]:
                listed[broker_name(name) or name] = topic_metadata(topic)
        if own:
            self.learn_nodes(body)
            if listed.keys() != self.topics.keys():
                self.version += 1
                self.topics = {name: one for name, one in self.topics.items() if name in listed}
        for name, metadata in listed.items():
            known = self.topics.get(name)
            if known != metadata and (known is not None or len(self.topics) < MOST_TOPICS):
                self.topics[name] = metadata
                self.version += 1
                if metadata.topic_id is not None:
                    self.by_id[metadata.topic_id] = name
        if len(self.by_id) > 2 * MOST_TOPICS:  # ids of topics that are gone
            self.by_id = {one.topic_id: name for name, one in self.topics.items() if one.topic_id is not None}

    def learn_nodes(self, body: Mapping[str, Any]) -> None:
        nodes = {
            broker["node_id"]: KnownNode(broker["host"], broker["port"], broker.get("rack"))
            for broker in body.get("brokers") or ()
        }
        learnt = nodes, body.get("controller_id"), body.get("cluster_id")
        if learnt != (self.nodes, self.controller, self.cluster_id):
            self.nodes, self.controller, self.cluster_id = learnt
            self.version += 1


def topic_metadata(topic: Mapping[str, Any]) -> KnownTopic:
    """Return the metadata of one topic of a Metadata response."""
    partitions = {one["partition_index"]: one["leader_id"] for one in topic["partitions"] or ()}
    most = min(max(partitions, default=-1) + 1, len(partitions) + MOST_MISSING)
    leaders = tuple(partitions.get(index, -1) for index in range(most))
    topic_id = topic.get("topic_id", NO_ID)
    return KnownTopic(None if topic_id == NO_ID else str(topic_id), bool(topic.get("is_internal")), leaders)
