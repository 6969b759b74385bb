"""Verification of a record: its exchanges in, and a verdict out.

verdict = verify(exchanges)                   all of a record
verifier = Verifier(); verifier.take(front, behind); verifier.verdict()     while it is made
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from kproxy.observe.exchange import ObservedExchange
from kproxy.observe.filter.view import EventView, ViewedEvent

from .broker_names import BrokerNames
from .candidate import NATURAL, rules_of
from .checks import checks
from .cluster import KnownServers
from .event_reader import EventReader, event_witness
from .facts import CommitToldFact, ConnectionKey, Fact, ReadFact, TopicToldFact, Witness, WriteFact
from .finding import LEVELS, Finding, Verdict
from .lru_map import RecentMap
from .options import VerifyTerms
from .reading import FactReader, ReadCounts, witness_of
from .view import ViewVerifier, counts_of, not_in_record, not_read, not_remembered, outcome, told_of_reading

DEFAULT_TERMS = VerifyTerms()
MOST_CONNECTIONS = 100_000
MOST_CLUSTERS = 16
"""Clusters of one record that are verified; each has names, producer ids and groups of its own."""


class TwoSides(Protocol):
    """Exchange at the client (None: kproxy asked by itself) and at the broker (None: the same bytes, or none)."""

    @property
    def front(self) -> ObservedExchange | None: ...
    @property
    def behind(self) -> ObservedExchange | None: ...


VerifiedExchange = TwoSides | EventView
"""Exchange of a record: of a capture or a tape, or as a request event tells it."""


class ClusterVerifier:
    """Verifier of what clients saw of one cluster, and of what its brokers did; None for a view not asked for."""

    def __init__(self, terms: VerifyTerms, memory: int) -> None:
        each = memory // 2 if terms.view == "both" else memory
        self.servers = KnownServers()
        self.clients = ViewVerifier("clients", terms, each, self.servers) if terms.view != "brokers" else None
        self.brokers = ViewVerifier("brokers", terms, each, self.servers) if terms.view != "clients" else None

    @property
    def views(self) -> list[ViewVerifier]:
        return [view for view in (self.clients, self.brokers) if view is not None]

    def findings(self, counts: ReadCounts) -> list[Finding]:
        """Return what is found as of now, with who did it. `counts`: what was read of the brokers' side."""
        clients = [] if self.clients is None else self.clients.findings()
        brokers = [] if self.brokers is None else self.brokers.findings()
        if self.clients is None or self.brokers is None:
            return clients + brokers
        view = self.brokers

        def blind(check: str) -> bool:
            apis = frozenset(checks()[check].apis)
            hidden = any(part.hides(apis) or part.leaves_open(apis) for part in view.terms.incomplete)
            return bool(hidden or view.obstacle(check) or not_in_record(counts, check))

        return both_sides(clients, brokers, blind)


class Verifier:
    """Verifier of a record, exchange by exchange. `strangers`: answers without a request, as the reader counts them.
    `clusters`: by name, empty where the record has none; `beyond`: exchanges of clusters that are not verified."""

    def __init__(self, terms: VerifyTerms = DEFAULT_TERMS) -> None:
        self.terms = terms
        self.strangers = 0
        self.exchanges = self.beyond = self.events = 0
        self.connections: RecentMap[ConnectionKey, list[ConnectionKey]] = RecentMap(
            MOST_CONNECTIONS, list[ConnectionKey]
        )
        self.known_connections = 0
        self.clusters: dict[str, ClusterVerifier] = {}
        self.front_reader = FactReader(records=terms.records)
        self.behind_reader = FactReader("at the broker ", records=terms.records)
        self.event_reader = EventReader(self.front_reader.counts)
        self.apart: RecentMap[ConnectionKey, list[bool]] = RecentMap(MOST_CONNECTIONS, list[bool])
        self.names = BrokerNames()

    def add(self, exchange: VerifiedExchange) -> None:
        """Take the next exchange of a record, whatever it is made of."""
        if isinstance(exchange, EventView):
            self.take_event(exchange.data, exchange.recording)
        else:
            self.take(exchange.front, exchange.behind)

    def take(self, front: ObservedExchange | None, behind: ObservedExchange | None) -> None:
        """Take the next exchange, as it was at the client and, where that was something else, at the broker."""
        known = front or behind
        if known is None:
            return
        self.exchanges += front is not None  # so that numbers are those of `kproxy show`
        cluster = self.cluster(known.who.cluster)
        if cluster is None:
            return
        at_broker = None
        if behind is not None:
            number = self.exchanges if front is not None else 0
            other = witness_of(behind, number, self.terms.skew, True, known)
            self.apart[other.connection][:] = [True]
            read = self.behind_reader.read(behind, other)
            if front is None or read is None:
                at_broker = self.behind_reader.told(behind, other, read)
        if front is not None:
            witness = witness_of(front, self.exchanges, self.terms.skew, behind is not None, front)
            self.connected(witness)
            mine = self.front_reader.read(front, witness)
            if mine is not None and behind is not None and read is not None:
                self.names.learn(front, mine, read)
            elif mine is not None and behind is None:
                self.names.same(front, mine)
            shared = self.front_reader.told(front, witness, mine, self.names.of(front))
            if behind is not None and at_broker is None:
                at_broker = self.behind_reader.told(behind, other, read)
                witness.differs = other.differs = differing(shared, at_broker)
            if witness.server:
                cluster.servers.learn(witness.server, mine, shared)
            tell(cluster.clients, witness, shared)
            if behind is None and not front.answered_by_rule:
                if self.apart.get(witness.connection):  # fetch sessions may differ on the two sides of it
                    shared = self.behind_reader.facts(front, witness, self.names.of(front))
                tell(cluster.brokers, witness, shared)
        if at_broker is not None:
            tell(cluster.brokers, other, at_broker)
            if front is None:
                self.tell_topics(cluster, other, at_broker)

    def tell_topics(self, cluster: ClusterVerifier, witness: Witness, facts: Iterable[Fact]) -> None:
        """Give the topics of an exchange of kproxy's own to the clients' view, which uses the brokers' names."""
        if witness.server:
            cluster.servers.learn(witness.server, None, facts)
        own = [replace(fact, own=True) for fact in facts if isinstance(fact, TopicToldFact)]
        for fact in own:
            self.front_reader.name(fact)
        tell(cluster.clients, witness, [*own])

    def take_event(self, data: ViewedEvent, recording: int = 0) -> None:
        """Take the next exchange from its request event, as the client saw it, in this one of several recordings."""
        self.exchanges += 1
        self.events += 1
        cluster = self.cluster(data.get("cluster"))
        if cluster is None:
            return
        witness = event_witness(data, self.exchanges, self.terms.skew, recording)
        if witness is None:
            self.event_reader.counts.damaged[str(data.get("api"))] += 1
            return
        self.connected(witness)
        facts = self.event_reader.facts(data, witness)
        if witness.server:
            cluster.servers.learn(witness.server, None, facts)
        tell(cluster.clients, witness, facts)

    def note_not_told(self, requests: Mapping[str, int]) -> None:
        """Note how many requests, by API, the record tells in sums only."""
        self.front_reader.counts.not_kept.update(requests)

    def cluster(self, name: str | None) -> ClusterVerifier | None:
        """Return the verifier of a cluster; None if there are too many. All of them share the memory."""
        known = self.clusters.get(name or "")
        if known is None:
            if len(self.clusters) >= MOST_CLUSTERS:
                self.beyond += 1
                return None
            known = self.clusters[name or ""] = ClusterVerifier(self.terms, self.terms.memory)
            share = self.terms.memory // len(self.clusters)
            for view in self.views:
                view.limit(share // 2 if self.terms.view == "both" else share)
        return known

    def connected(self, witness: Witness) -> None:
        """Count the connection of a witness if it is a new one; of a known one, share its name."""
        connection = self.connections[witness.connection]
        if connection:
            witness.connection = connection[0]
        else:
            self.known_connections += 1
            connection.append(witness.connection)

    @property
    def views(self) -> list[ViewVerifier]:
        return [view for cluster in self.clusters.values() for view in cluster.views]

    def verdict(self, *, so_far: bool = False) -> Verdict:
        """Return what is found. `so_far`: the record goes on, so that what was over in the last seconds is left for
        the next verdict."""
        if not self.clusters:
            self.cluster(None)
        for view in self.views:
            view.answers_without_requests(self.strangers)
            if not so_far:
                view.end()
        found, of_record = [], len(self.terms.incomplete)
        for reader in (self.front_reader, self.behind_reader):
            self.terms.incomplete.extend(not_read(reader.counts))  # so that absence proves nothing
        self.terms.incomplete.extend(not_remembered(self.views))
        for name, cluster in self.clusters.items():
            of_cluster = cluster.findings(self.behind_reader.counts)
            if len(self.clusters) > 1:
                for finding in of_cluster:
                    finding.about = f"{finding.about} of {name or 'a cluster without a name'}"
            found += of_cluster
        del self.terms.incomplete[of_record:]
        lowest = LEVELS.index(self.terms.level)
        found = [one for one in found if LEVELS.index(one.level) <= lowest]
        found.sort(key=rank)
        views, counts = self.views, [self.front_reader.counts]
        if self.terms.view != "clients":
            counts.append(self.behind_reader.counts)
        figures = counts_of([cluster.views[0] for cluster in self.clusters.values()])
        if self.events:
            del figures["transactions"]
        clean, not_checked = outcome(self.terms, views, counts, {one.check for one in found}, events=self.events > 0)
        incomplete = [part.text for part in (*self.terms.incomplete, *not_remembered(views))]
        incomplete += told_of_reading(self.terms, views, counts)
        if self.beyond:
            incomplete.append(f"{self.beyond} exchanges are of other clusters than the first {MOST_CLUSTERS}")
        return Verdict(
            findings=found,
            clean=clean,
            not_checked=not_checked,
            counts=figures,
            exchanges=self.exchanges,
            connections=self.known_connections,
            incomplete=incomplete,
            views=tuple(dict.fromkeys(view.view for view in views)),
            names=self.names,
        )


def tell(view: ViewVerifier | None, witness: Witness, facts: list[Fact]) -> None:
    """Give a view the facts of an exchange, by the time at which it was over, or began if it was not."""
    if view is not None:
        over = witness.ended is not None
        view.take(witness.ended if witness.ended is not None else witness.began, facts, over=over)


def rank(finding: Finding) -> tuple[int, float, str]:
    """Return what findings are sorted by: proved ones first, then by time."""
    first = min((one.witness.began for one in finding.evidence), default=0.0)
    return LEVELS.index(finding.level), first, finding.check


def verify(exchanges: Iterable[VerifiedExchange], terms: VerifyTerms = DEFAULT_TERMS) -> Verdict:
    verifier = Verifier(terms)
    for exchange in exchanges:
        verifier.add(exchange)
    return verifier.verdict()


CLEAN_BROKERS = "Brokers' view: clean."
BOTH = "Brokers' view: the same, so the cluster did it, or the client that sent it."
BROKERS_ONLY = "Clients' view: clean."


NOT_ALL_OF_BROKERS = "Brokers' view: not all of it is in the record."


def differing(front: Sequence[Fact], behind: Sequence[Fact]) -> frozenset[str]:
    """Return the partitions of which an exchange has other batches, offsets or transactions at the client than at the
    broker."""
    mine, theirs = contents(front), contents(behind)
    return frozenset(about for about, content in mine.items() if about in theirs and theirs[about] != content)


def contents(facts: Sequence[Fact]) -> dict[str, Any]:
    """Return the batches, offsets and transactions of an exchange, by partition, and by a group's partition."""
    found: dict[str, Any] = {}
    for fact in facts:
        if isinstance(fact, WriteFact | ReadFact):
            batches = [(one.base, one.delta, one.identity, one.marker) for one in fact.batches]
            if isinstance(fact, WriteFact):
                found[str(fact.place)] = batches, fact.result, fact.base, fact.acks
            else:
                found[str(fact.place)] = batches, fact.position, fact.last_stable, fact.aborted, fact.committed_only
        elif isinstance(fact, CommitToldFact):
            found[f"group {fact.group}, {fact.place}"] = fact.offset
    return found


def both_sides(clients: list[Finding], brokers: list[Finding], blind: Callable[[str], bool]) -> list[Finding]:
    """Return the findings of both views, each once, with who did it in words. `blind`: whether the brokers' view lacks
    something that the check of this name needs."""
    places = {(one.check, one.about) for one in clients}
    shared = {(one.check, one.about) for one in brokers} & places
    elsewhere: dict[tuple[str, int], list[Finding]] = {}
    for finding in brokers:  # names that the record does not tell are others there
        if (finding.check, finding.about) not in places:
            for one in finding.evidence:
                elsewhere.setdefault((finding.check, one.witness.number), []).append(finding)
    matched: set[int] = set()
    for finding in clients:
        numbers = {(finding.check, one.witness.number) for one in finding.evidence} & elsewhere.keys()
        if (finding.check, finding.about) in shared or numbers:
            finding.view = "both"
            add(finding, BOTH)
        else:
            by_something_between(finding, blind=blind(finding.check))
        for number in numbers:
            matched.update(map(id, elsewhere[number]))
            elsewhere[number] = []
    alone = [one for one in brokers if (one.check, one.about) not in shared and id(one) not in matched]
    for finding in alone:
        add(finding, BROKERS_ONLY)
    return clients + alone


def by_something_between(finding: Finding, *, blind: bool) -> None:
    """Say who did what clients saw and brokers did not; what became of a log by itself is no reason for it if what is
    told of the partition is something else at the broker."""
    altered = any(one.witness.made_by_kproxy or finding.about in one.witness.differs for one in finding.evidence)
    if not blind and finding.level == "suspect" and finding.doubts and altered and NATURAL.issuperset(finding.doubts):
        finding.level, finding.doubts = "proved", ()
        finding.else_ = finding.hint
    rules = rules_of(one.witness for one in finding.evidence)
    names = ", ".join(f'"{rule}"' for rule in rules)
    by = f" Something between did it: rule{'s' if len(rules) > 1 else ''} {names} fired." if rules else ""
    if not rules and any(one.witness.altered or one.witness.made_by_kproxy for one in finding.evidence):
        by = " Something between did it; the record names no rule of kproxy that fired."
    add(finding, (NOT_ALL_OF_BROKERS if blind else CLEAN_BROKERS) + by)


def add(finding: Finding, sentence: str) -> None:
    """Add a sentence in front of what else a finding says."""
    finding.else_ = " ".join(filter(None, (sentence, finding.else_)))
