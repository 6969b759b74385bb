"""Events about a cluster's nodes and topics: when they have changed, and every hour."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kproxy.events.schema import TOPOLOGY_EVENT
from kproxy.sinks.cluster_metadata import ClusterMetadata, KnownTopic

from .gate import EventGate

HOUR = 3600.0
AT_MOST_EVERY = 10.0
"""Seconds between two tellings of one cluster, though it may change more often: leaders move one by one."""
MOST_LEADERS = 5000
"""Partitions told in one event, some 50 kB; a cluster with more is told in parts."""


class TopologyEvents:
    """Maker of the topology events. `pictures`: the metadata that is known of each cluster."""

    def __init__(self, events: EventGate, pictures: Mapping[str, ClusterMetadata]) -> None:
        self.events, self.pictures = events, pictures
        self.reported: dict[str, tuple[int, float]] = {}  # version and time, by cluster

    def tick(self, now: float) -> None:
        """Put the events that are due at `now`, seconds since 1970. To be called every second or so."""
        for cluster, picture in self.pictures.items():
            version, when = self.reported.get(cluster, (0, 0.0))
            if picture.version and (now - when >= HOUR or (picture.version != version and now - when >= AT_MOST_EVERY)):
                self.reported[cluster] = picture.version, now
                for event in topology_events(picture):
                    self.events.put(TOPOLOGY_EVENT.name, now, event)


def topology_events(picture: ClusterMetadata) -> list[dict[str, Any]]:
    """Return the data of the events that tell all of a cluster's metadata; nodes are in each of them."""
    nodes = []
    for number, node in sorted(picture.nodes.items()):
        columns = {"node": number, "host": node.host, "port": node.port}
        nodes.append(columns if node.rack is None else columns | {"rack": node.rack})
    base: dict[str, Any] = {"cluster": picture.cluster, "nodes": nodes}
    if picture.cluster_id is not None:
        base["cluster_id"] = picture.cluster_id
    if picture.controller is not None:
        base["controller"] = picture.controller
    parts = list(in_parts(picture.topics)) or [[]]
    return [base | {"topics": topics, "part": part, "parts": len(parts)} for part, topics in enumerate(parts)]


def in_parts(topics: Mapping[str, KnownTopic]) -> Iterator[list[dict[str, Any]]]:
    """Yield topics in lists of at most MOST_LEADERS partitions, or of a single topic."""
    part: list[dict[str, Any]] = []
    size = 0
    for name, topic in sorted(topics.items()):
        if part and size + len(topic.leaders) > MOST_LEADERS:
            yield part
            part, size = [], 0
        columns = {
            "topic": name,
            "internal": topic.internal,
            "partitions": len(topic.leaders),
            "leaders": list(topic.leaders),
        }
        part.append(columns if topic.topic_id is None else columns | {"topic_id": topic.topic_id})
        size += len(topic.leaders)
    if part:
        yield part
