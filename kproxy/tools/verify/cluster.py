"""State of the cluster that decides whether a finding may be lawful: topics with their configs, and servers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address

from kproxy.base.bounded_map import BoundedMap, SharedBudget
from kproxy.protocol.table.api_keys import METADATA

from .facts import Fact, LeaderEpochFact, ReadFact, TopicFact, Witness, WriteFact
from .options import CONFIG_APIS, ELECTION_APIS, TOPIC_APIS, VerifyTerms
from .read_exchange import ReadExchange

MOST_TOPICS = 100_000
MOST_IDS = 4
SETTINGS = "compacted", "unclean"
MOST_EPOCHS = 4  # latest leader epochs of one partition
MOST_PARTITIONS = 10_000  # of a topic, with leader epochs
MOST_LOG_PARTITIONS = 200  # of a coordinators' log; Kafka's default is 50
MOST_NODES = 16
LAG = 10.0  # seconds that a broker may lag; the controller fences it after broker.session.timeout.ms (9 s)
# Topics that brokers create, and that no client deletes past a record.
COORDINATORS_LOGS = OFFSETS_LOG, TRANSACTIONS_LOG = "__consumer_offsets", "__transaction_state"
# First versions that name topics by id, so that requests certainly refer to the topic with this id.
BY_ID = {"Fetch": 13, "Produce": 13, "ShareFetch": 0}


@dataclass(slots=True)
class ReportedStretch:
    """Time from the end of the first response to the beginning of the last one with the same value. No response reports
    that a topic was re-created or its configs were altered.

    A broker may lag, so its last response (`by_node`) counts LAG earlier for exchanges with other nodes. The last one
    without a node, such as to a request of kproxy's own (`own`), counts as it is.
    """

    since: float = math.inf
    until: float = -math.inf
    clock: int = -1
    own: float = -math.inf
    by_node: dict[int, float] = field(default_factory=dict)

    def add(self, witness: Witness) -> None:
        if self.clock < 0:
            self.clock = witness.clock
        elif self.clock != witness.clock:
            return  # times of two clocks cannot be compared
        self.since = min(self.since, witness.began if witness.ended is None else witness.ended)
        self.until, node = max(self.until, witness.began), witness.node
        if node is None:
            self.own = max(self.own, witness.began)
        elif node in self.by_node or len(self.by_node) < MOST_NODES:
            self.by_node[node] = max(self.by_node.get(node, witness.began), witness.began)

    def meets(self, other: ReportedStretch) -> bool:
        """True if two stretches overlap or have different clocks; False for an empty one."""
        if self.clock != other.clock:
            return self.since < math.inf
        first, last = min(other.since, other.until), max(other.since, other.until)
        return min(self.since, self.until) <= last and first <= max(self.since, self.until) and self.since < math.inf

    def holds(self, witness: Witness) -> bool:
        """True if an exchange lies wholly within."""
        of_node = -math.inf if witness.node is None else self.by_node.get(witness.node, -math.inf)
        until = max(self.own, self.until - LAG, of_node)
        return witness.clock == self.clock and self.since < witness.began and (witness.ended or witness.began) < until


@dataclass(slots=True)
class ReportedSetting:
    """Config of a topic under which its log may lack records. `on`: some exchange set or returned a value that permits
    it; `off`: when responses had one that does not, None for never."""

    on: bool = False
    off: ReportedStretch | None = None

    def learn(self, value: bool | None, witness: Witness) -> None:
        if value:
            self.on = True
        elif value is not None and not witness.by_rule:
            self.off = self.off or ReportedStretch()
            self.off.add(witness)


@dataclass(slots=True)
class TopicKnowledge:
    """Topic in the responses of a record. `ids`: when each of them was returned. `own_ids`: the same in responses to
    kproxy, with the broker's ids, which may differ from those that clients see. `epochs`: by partition, when responses
    had its latest leader epochs. `made`, `deleted`: CreateTopics or DeleteTopics did it in this record."""

    ids: dict[str, ReportedStretch] = field(default_factory=dict)
    own_ids: dict[str, ReportedStretch] = field(default_factory=dict)
    epochs: dict[int, dict[int, ReportedStretch]] = field(default_factory=dict)
    settings: dict[str, ReportedSetting] = field(default_factory=lambda: {one: ReportedSetting() for one in SETTINGS})
    made: bool = False
    deleted: bool = False


class KnownTopics:
    __slots__ = ("altered", "by_name", "terms")

    def __init__(self, terms: VerifyTerms, budget: SharedBudget | None = None) -> None:
        self.terms = terms
        # By setting, the time in which it was altered to an unknown value.
        self.altered = {one: ReportedStretch() for one in SETTINGS}
        self.by_name: BoundedMap[str, TopicKnowledge] = BoundedMap(
            MOST_TOPICS,
            TopicKnowledge,
            budget=budget,
            weigh=lambda topic: 1500 + 300 * (len(topic.ids) + len(topic.own_ids)) + 800 * len(topic.epochs),
        )

    def learn(self, fact: TopicFact) -> bool:
        """Add a response; return True if it has another id than before, so the topic was re-created."""
        topic = self.by_name[fact.topic]
        topic.made = topic.made or fact.made
        for setting, value in (("compacted", fact.compacted), ("unclean", fact.unclean)):
            topic.settings[setting].learn(value, fact.witness)
        return bool(fact.topic_id) and self.named(fact.topic, fact.topic_id, fact.witness, own=fact.own)

    def named(self, name: str, topic_id: str, witness: Witness, *, own: bool = False) -> bool:
        """Add a topic id; return True if the topic had another one before. `own`: see TopicFact."""
        ids = self.by_name[name].own_ids if own else self.by_name[name].ids
        known = ids.get(topic_id)
        new = known is None
        if known is None and len(ids) < MOST_IDS:
            ids[topic_id] = known = ReportedStretch()
        if known is not None and not witness.by_rule:
            known.add(witness)
        return new and len(ids) > 1

    def alter(self, setting: str, witness: Witness) -> None:
        """Add an exchange that changed a setting to an unknown value."""
        altered = self.altered[setting]
        if altered.clock not in (-1, witness.clock):
            altered.since, altered.until = -math.inf, math.inf
        altered.add(witness)

    def is_created(self, name: str) -> bool:
        """True if the record contains everything since the creation of a topic."""
        topic = self.by_name.get(name)
        return self.terms.from_start or (topic is not None and topic.made)

    def delete(self, name: str) -> None:
        self.by_name[name].deleted = True

    def is_compacted(self, name: str, witnesses: Sequence[Witness], *, ever: bool) -> bool | None:
        """Return True if a topic was compacted during these exchanges, None if unknown. `ever`: or at any time before,
        which only the topic's creation excludes."""
        topic = self.by_name.get(name)
        if name in self.terms.compacted or (topic is not None and topic.settings["compacted"].on):
            return True
        if name in self.terms.not_compacted:
            return False
        if not self.is_off(name, "compacted", witnesses):
            return None
        return False if self.is_created(name) or not ever else None

    def led(self, fact: LeaderEpochFact) -> None:
        """Add the leader epoch of a partition in a response that no rule has changed."""
        if fact.witness.by_rule:
            return
        known = self.by_name[fact.place.topic].epochs
        if fact.place.number not in known and len(known) >= MOST_PARTITIONS:
            return
        epochs = known.setdefault(fact.place.number, {})
        epochs.setdefault(fact.epoch, ReportedStretch()).add(fact.witness)
        if len(epochs) > MOST_EPOCHS:
            del epochs[min(epochs)]

    def is_clean(self, name: str, number: int | None, witnesses: Sequence[Witness]) -> bool:
        """True if a partition certainly had no unclean leader election during these exchanges. `number`: None for all
        partitions of the topic."""
        if self.has_one_leader(name, number, witnesses):
            return True
        # ElectLeaders elects an unclean leader whatever the configs are. An operator may send it past the record.
        return self.terms.proves_absence(ELECTION_APIS) and self.is_off(name, "unclean", witnesses)

    def has_one_leader(self, name: str, number: int | None, witnesses: Sequence[Witness]) -> bool:
        """True if a partition certainly had one leader epoch during these exchanges, and so no leader election."""
        topic = self.by_name.get(name)
        if topic is None or self.may_be_another(name, witnesses):
            return False
        if number is None and len(topic.epochs) > MOST_LOG_PARTITIONS:
            return False
        found = [*topic.epochs.values()] if number is None else [topic.epochs.get(number, {})]
        return bool(found) and all(any(is_led(epoch, one, witnesses) for epoch in one) for one in found)

    def is_off(self, name: str, setting: str, witnesses: Sequence[Witness]) -> bool:
        """True if a setting of a topic was certainly off during these exchanges."""
        topic, altered = self.by_name.get(name), self.altered[setting]
        known = None if topic is None else topic.settings[setting]
        if known is None or known.on or known.off is None or self.may_be_another(name, witnesses):
            return False
        if self.terms.proves_absence(CONFIG_APIS | TOPIC_APIS):
            return altered.since == math.inf
        return all(map(known.off.holds, witnesses)) and not altered.meets(known.off)

    def may_be_another(self, name: str, witnesses: Sequence[Witness]) -> bool:
        """True if the topic may have been re-created during these exchanges."""
        topic = self.by_name.get(name)
        if self.terms.proves_absence(TOPIC_APIS) or name in COORDINATORS_LOGS:
            return topic is not None and (topic.deleted or len(topic.ids) > 1)
        if topic is None or len(topic.ids) > 1 or len(topic.own_ids) > 1 or not (topic.ids or topic.own_ids):
            return True
        reported = [*topic.ids.values(), *topic.own_ids.values()]
        if topic.ids.keys() == topic.own_ids.keys() and reported[0].clock == reported[-1].clock:
            # one id, reported to clients and to kproxy
            nodes = {node: time for one in reported for node, time in one.by_node.items()}
            since, until = min(one.since for one in reported), max(one.until for one in reported)
            reported = [ReportedStretch(since, until, reported[0].clock, max(one.own for one in reported), nodes)]
        return not all(is_by_id(one) or any(stretch.holds(one) for stretch in reported) for one in witnesses)


def is_led(epoch: int, reported: Mapping[int, ReportedStretch], witnesses: Sequence[Witness]) -> bool:
    """True if a partition had this leader epoch during these exchanges. A lagging broker may return it after another
    broker has returned a later one."""
    stretch = reported[epoch]
    later = any(
        other > epoch and (one.clock != stretch.clock or one.since <= stretch.until) for other, one in reported.items()
    )
    return not later and all(map(stretch.holds, witnesses))


def is_by_id(witness: Witness) -> bool:
    return witness.version >= BY_ID.get(witness.api, witness.version + 1)


MOST_SERVERS = 10_000
MOST_MARKS = 200_000  # ids and addresses, some 40 MB


class KnownServers:
    """Servers by address, in sets that the record shows to be of one cluster (union-find). `apart`: number of sets;
    `many`: some server was not stored. `clusters`: the first two cluster ids in Metadata. Topic names, producer ids and
    node ids are only valid within one cluster. tcpdump's records do not name clusters."""

    def __init__(self) -> None:
        self.parents: dict[str, str] = {}
        self.marks: dict[str, str] = {}
        self.apart = 0
        self.many = False
        self.clusters: set[str] = set()

    @property
    def one_cluster(self) -> bool:
        return self.apart <= 1 and not self.many and len(self.clusters) <= 1

    def learn(self, witness: Witness, exchange: ReadExchange | None, facts: Iterable[Fact]) -> None:
        """Add an exchange with a server; `exchange` is None if it is unreadable."""
        if exchange is not None and exchange.key == METADATA and not witness.by_rule and len(self.clusters) < 2:
            name = exchange.text((exchange.response or {}).get("cluster_id"))
            self.clusters |= {name} if name else set()
        server = witness.server
        if not server:
            return
        if server not in self.parents:
            if len(self.parents) >= MOST_SERVERS:
                self.many = True
                return
            self.parents[server] = server
            self.apart += 1
            self.tie(server, server)
        for mark in marks_of(exchange, facts):
            self.tie(server, mark)

    def tie(self, server: str, mark: str) -> None:
        """Merge the set of a server with that of the first server that showed the same id or address."""
        first = self.marks.get(mark)
        if first is None:
            if len(self.marks) < MOST_MARKS:
                self.marks[mark] = server
            return
        one, other = self.root(first), self.root(server)
        if one != other:
            self.parents[other] = one
            self.apart -= 1

    def root(self, server: str) -> str:
        """Representative of the set of a server."""
        parents = self.parents
        while parents[server] != server:
            parents[server] = server = parents[parents[server]]
        return server


def marks_of(exchange: ReadExchange | None, facts: Iterable[Fact]) -> Iterable[str]:
    """Yield ids and addresses in an exchange that only servers of one cluster have."""
    if exchange is not None and exchange.key == METADATA and exchange.response is not None:
        cluster = exchange.response.get("cluster_id")
        if cluster and exchange.text(cluster):
            yield f"cluster {cluster}"
        yield from (
            f"{one['host']}:{one['port']}" for one in exchange.response.get("brokers") or () if is_address(one["host"])
        )
    yield from (
        f"topic {fact.topic_id}"
        for fact in facts
        if isinstance(fact, ReadFact | WriteFact | TopicFact) and fact.topic_id
        if not isinstance(fact, WriteFact) or fact.result == "ok"  # otherwise only the request contains the id
    )


def is_address(host: str) -> bool:
    """True if a host is an IP address other than loopback, so the same for all clients."""
    try:
        return not ip_address(host).is_loopback
    except ValueError:
        return False
