"""Events about connections, rules and clusters: all that are about no exchange.

Connections: opened, authenticated or refused, closed. Of rules: sets that came into force or were refused, and the
counts of each live rule by the minute. Clusters: nodes and topics, after each change and every hour.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kproxy.base.cooperative import yield_point, yielding_sort
from kproxy.protocol.table.errors import error_name
from kproxy.record.events.schema import RULE_EVENT, TOPOLOGY_EVENT
from kproxy.record.exchange import Who
from kproxy.rules.rule_set import ActiveRule

from .lines import plain, stamp

if TYPE_CHECKING:
    from kproxy.record.fanout import ClusterMetadata, KnownTopic
    from kproxy.record.metrics.client_telemetry import PushRead
    from kproxy.runtime.connection_view import ConnectionInfo
    from kproxy.session.sasl.principal import LoginOutcome
    from kproxy.session.telemetry import TelemetryPush

    from .event_sink import EventGate


@dataclass(frozen=True, slots=True)
class Ended:
    """End of a connection and totals of its traffic. `connect`: seconds until the broker's connection was
    established."""

    cause: str
    message: str
    seconds: float
    connect: float | None
    requests: int
    responses: int
    unanswered: int
    request_bytes: int
    response_bytes: int
    unread: int


def connection_columns(who: Who) -> dict[str, Any]:
    """Return the columns of `record.events.schema.CONNECTION` for a connection, absent ones left out."""
    columns = {
        "connection": who.number,
        "cluster": who.cluster,
        "listener": who.listener,
        "client_address": who.client_address,
        "client_port": who.client_port,
        "node": who.node,
        "broker": who.broker,
        "principal": plain(who.principal),
        "software_name": who.software_name,
        "software_version": who.software_version,
    }
    return {name: value for name, value in columns.items() if value is not None}


def opened(who: ConnectionInfo) -> dict[str, Any]:
    data = {"action": "open", **connection_columns(who), "tls": who.tls}
    if who.sni is not None:
        data["sni"] = plain(who.sni)
    bound = who.bound
    if bound.rules:
        pairs = zip(bound.rules[:MOST_BOUND], bound.kinds, strict=False)
        data["bound_rules"] = [{"rule": rule, "kind": kind} for rule, kind in pairs]
    return data


def authenticated(who: ConnectionInfo, outcome: LoginOutcome) -> dict[str, Any]:
    """Return the data of the event that the broker has accepted or refused the client."""
    data = {"action": "authentication", **connection_columns(who), "mechanism": outcome.mechanism}
    return data | {"error": error_name(outcome.error)} if outcome.error else data


def closed(who: ConnectionInfo, client_id: str | None) -> dict[str, Any]:
    end = who.end
    assert end is not None, "it is open"
    data: dict[str, Any] = {"action": "close", **connection_columns(who), "tls": who.tls}
    optional = {
        "client_id": plain(client_id),
        "sni": plain(who.sni),
        "mechanism": None if who.outcome is None else who.outcome.mechanism,
        "connect_ms": None if end.connect is None else round(end.connect * 1000, 3),
        "unread_frames": end.unread or None,
    }
    data |= {name: value for name, value in optional.items() if value is not None}
    return data | {
        "cause": end.cause,
        "message": plain(end.message) or "",
        "seconds": round(end.seconds, 6),
        "requests": end.requests,
        "responses": end.responses,
        "unanswered": end.unanswered,
        "request_bytes": end.request_bytes,
        "response_bytes": end.response_bytes,
    }


def telemetry_event(push: TelemetryPush, read: PushRead, who: dict[str, Any]) -> dict[str, Any]:
    """Return the data of the event that a client has told its metrics. `who`: its connection's columns."""
    data = who | {
        "client_id": plain(push.client_id),
        "client_instance_id": str(push.instance),
        "payload_bytes": len(push.payload),
        "unpacked_bytes": read.size,
        "metrics": read.names,
        "left_out": read.left_out,
    }
    return (data | {"terminating": True} if push.terminating else data) | read.standard


RuleCounts = tuple[int, int, int, int]
"""Counts of a rule: set back, matched, fired, applied."""
LiveRules = Callable[[], Iterable[ActiveRule]]
MOST_BOUND = 100  # rules in one event of a connection
MOST_MISTAKES = 100
"""Problems of a rejected set that its event lists; the log and the API have all of them."""
MINUTE = 60.0


HOUR = 3600.0
AT_MOST_EVERY = 10.0
"""Seconds between two tellings of one cluster, though it may change more often: leaders move one by one."""
MOST_LEADERS = 5000
"""Partitions in one event, about 50 kB. Larger clusters are split over several events."""


class RuleEvents:
    """Maker of the events about rules. `live` gives the live rules in force."""

    def __init__(self, events: EventGate, live: LiveRules) -> None:
        self.events, self.live = events, live
        self.reported: dict[ActiveRule, RuleCounts] = {}
        self.minute: float | None = None

    def loaded(self, now: float, origin: str, version: str, rules: int, before: str | None = None) -> None:
        """Put the event that a set came into force. `now`: seconds since 1970, here as everywhere in this class."""
        what = "loaded" if before is None else "swapped"
        data = {"action": what, "origin": origin, "version": version, "rules": rules}
        self.put(now, data if before is None else data | {"before": before})

    def rejected(self, now: float, origin: str, version: str, mistakes: Iterable[str]) -> None:
        """Put the event that a set was refused; the one of `version` stays in force."""
        first_mistakes = list(mistakes)[:MOST_MISTAKES]
        self.put(now, {"action": "rejected", "origin": origin, "version": version, "mistakes": first_mistakes})

    def changed(self, now: float, change: str, rule: str | None, version: str, rules: int) -> None:
        """Put the event of a change of one rule or of all: removed, expired, enabled, faults disabled …"""
        what = next((word for word in ("removed", "expired") if change.startswith(word)), "changed")
        data = {"action": what, "change": change, "version": version, "rules": rules}
        self.put(now, data if rule is None else data | {"rule": rule})

    def tick(self, now: float) -> None:
        """Put the events of the minute that is over, if one is. To be called every second or so."""
        minute = now // MINUTE * MINUTE
        if self.minute is None:
            self.minute = minute
        elif minute > self.minute:
            self.report()
            self.minute = minute

    def report(self) -> None:
        """Put the counts of the rules in force since the last call.

        To be called also at the end, and before the rules are replaced.
        """
        counts = {}
        for running in self.live():
            counts[running] = now = (running.resets, running.matched, running.fired, running.applied)
            then = self.reported.get(running, (0, 0, 0, 0))
            if now[0] != then[0]:  # counted from 0 again
                then = (now[0], 0, 0, 0)
            if now != then:
                self.fired(running, [a - b for a, b in zip(now[1:], then[1:], strict=True)])
        self.reported = counts

    def fired(self, running: ActiveRule, grown: list[int]) -> None:
        minute = self.minute or 0.0
        data = {
            "action": "fired",
            "rule": running.name,
            "kind": running.rule.kind,
            "origin": running.origin,
            "minute": stamp(minute),
            "matched": grown[0],
            "fired": grown[1],
            "applied": grown[2],
        }
        self.put(minute, data | {"dry_run": True} if running.dry_run else data)

    def put(self, now: float, data: dict[str, object]) -> None:
        self.events.put(RULE_EVENT.name, now, data)


class TopologyEvents:
    """Maker of the topology events. `pictures`: the metadata that is known of each cluster."""

    def __init__(self, events: EventGate, pictures: Mapping[str, ClusterMetadata]) -> None:
        self.events, self.pictures = events, pictures
        self.reported: dict[str, tuple[ClusterMetadata, int, float]] = {}
        """By cluster: reported metadata, its version, and the time of the report."""

    def due(self, now: float) -> list[ClusterMetadata]:
        """Return the clusters with a due report at `now`, seconds since 1970."""
        found = []
        for cluster, picture in self.pictures.items():
            told, version, when = self.reported.get(cluster, (picture, 0, 0.0))
            changed = told is not picture or picture.version != version
            if picture.version and (now - when >= HOUR or (changed and now - when >= AT_MOST_EVERY)):
                found.append(picture)
        return found

    def tick(self, now: float) -> None:
        """Put the events that are due, with yield points: a cluster may have 200,000 topics. To be called every
        second or so."""
        for picture in self.due(now):
            version = picture.version
            for event in topology_events(picture):
                self.events.put(TOPOLOGY_EVENT.name, now, event)
                yield_point()
            self.reported[picture.cluster] = picture, version, now


def topology_events(picture: ClusterMetadata) -> list[dict[str, Any]]:
    """Return the data of the events with all metadata of a cluster. Each event contains the nodes."""
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
    for name, topic in yielding_sort(topics.items()):
        yield_point()
        if part and size + len(topic.leaders) > MOST_LEADERS:
            yield part
            part, size = [], 0
        columns = {
            "topic": name,
            "internal": topic.internal,
            "partitions": len(topic.leaders),
            "leaders": topic.leaders,
        }
        part.append(columns if topic.topic_id is None else columns | {"topic_id": topic.topic_id})
        size += len(topic.leaders)
    if part:
        yield part
