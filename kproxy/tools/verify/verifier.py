"""Verification of a record: exchanges in, verdict out.

verdict = verify(exchanges)                                                 a complete record
verifier = Verifier(); verifier.take(front, behind); verifier.verdict()     a growing record
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kproxy.base.bounded_map import BoundedMap
from kproxy.base.errors import plural
from kproxy.record.captures.pairs import BothSides
from kproxy.record.exchange import ObservedExchange
from kproxy.record.filters import EventView, ViewedEvent

from .candidate import NATURAL, rules_of
from .cluster import KnownServers
from .event_reader import EventReader, api_of, event_witness
from .facts import ConnectionKey, Fact, FetchedCommitFact, LeaderEpochFact, ReadFact, TopicFact, Witness, WriteFact
from .finding import LEVELS, Finding, Verdict, checks
from .options import VerifyTerms
from .read_exchange import BrokerNames
from .reading import FactReader, ReadCounts, witness_of
from .view import ViewVerifier, counts_of, not_in_record, not_read, not_remembered, outcome, reading_remarks

DEFAULT_TERMS = VerifyTerms()
MOST_CONNECTIONS = 100_000
MOST_CLUSTERS = 16  # each has its own names, producer ids and groups
CLEAN_BROKERS = "Brokers' view: clean."
BOTH = "Brokers' view: the same, so the cluster did it, or the client that sent it."
BROKERS_ONLY = "Clients' view: clean."
NOT_ALL_OF_BROKERS = "Brokers' view: not all of it is in the record."
VerifiedExchange = BothSides | EventView


class ClusterVerifier:
    """Verifier of one cluster. `clients`, `brokers`: its views; None if the terms exclude the view."""

    def __init__(self, terms: VerifyTerms, memory: int) -> None:
        each = memory // 2 if terms.view == "both" else memory
        self.servers = KnownServers()
        self.clients = ViewVerifier("clients", terms, each, self.servers) if terms.view != "brokers" else None
        self.brokers = ViewVerifier("brokers", terms, each, self.servers) if terms.view != "clients" else None
        self.views = [view for view in (self.clients, self.brokers) if view is not None]

    def findings(self, counts: ReadCounts) -> list[Finding]:
        """Return the current findings of both views. `counts`: of the broker side's reader."""
        if self.clients is None or self.brokers is None:
            return [finding for view in self.views for finding in view.findings()]
        view = self.brokers

        def blind(check: str) -> bool:
            apis = frozenset(checks()[check].apis)
            hidden = any(part.hides(apis) or part.leaves_open(apis) for part in view.terms.incomplete)
            return bool(hidden or view.obstacle(check) or not_in_record(counts, check))

        return both_sides(self.clients.findings(), view.findings(), blind)


class Verifier:
    """Verifier of a record, exchange by exchange.

    `strangers`: responses without requests, as the record's reader counts them. None for records of kproxy, which
    closes a connection at such a response. `clusters`: by name, empty for none. `beyond`: exchanges of clusters that
    are not verified.
    """

    def __init__(self, terms: VerifyTerms = DEFAULT_TERMS) -> None:
        self.terms = terms
        self.strangers: int | None = None
        self.exchanges = self.beyond = self.events = 0
        self.connections: BoundedMap[ConnectionKey, list[ConnectionKey]] = BoundedMap(
            MOST_CONNECTIONS, list[ConnectionKey]
        )
        self.known_connections = 0
        self.clusters: dict[str, ClusterVerifier] = {}
        self.front_reader = FactReader(records=terms.records)
        self.behind_reader = FactReader("at the broker ", records=terms.records)
        self.event_reader = EventReader(self.front_reader.counts)
        # Connections with an exchange that differs at the broker. Their fetch sessions may differ too.
        self.apart: BoundedMap[ConnectionKey, list[bool]] = BoundedMap(MOST_CONNECTIONS, list[bool])
        self.names = BrokerNames()

    def add(self, exchange: VerifiedExchange) -> None:
        if isinstance(exchange, EventView):
            self.take_event(exchange.data, exchange.recording)
        else:
            self.take(exchange.front, exchange.behind)

    def take(self, front: ObservedExchange | None, behind: ObservedExchange | None) -> None:
        """Take the next exchange at the client and, if it differs there, at the broker."""
        known = front or behind
        if known is None:
            return
        self.exchanges += front is not None  # the numbers of `kproxy show`
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
                at_broker = self.behind_reader.facts(behind, other, read)
        if front is not None:
            witness = witness_of(front, self.exchanges, self.terms.skew, behind is not None, front)
            self.connected(witness)
            mine = self.front_reader.read(front, witness)
            if mine is not None and behind is not None and read is not None:
                self.names.learn(front, mine, read)
            elif mine is not None and behind is None:
                self.names.same(front, mine)
            shared = self.front_reader.facts(front, witness, mine, self.names.of(front))
            if behind is not None and at_broker is None:
                at_broker = self.behind_reader.facts(behind, other, read)
                witness.differs = other.differs = differing(shared, at_broker)
            cluster.servers.learn(witness, mine if behind is None else read, shared)
            give(cluster.clients, witness, shared)
            if behind is None and not front.answered_by_rule:
                if self.apart.get(witness.connection):
                    read = self.behind_reader.read(front, witness)
                    shared = self.behind_reader.facts(front, witness, read, self.names.of(front))
                give(cluster.brokers, witness, shared)
        if at_broker is not None:
            give(cluster.brokers, other, at_broker)
            if front is None:
                self.share_topics(cluster, other, at_broker)

    def share_topics(self, cluster: ClusterVerifier, witness: Witness, facts: Iterable[Fact]) -> None:
        """Give topics and leader epochs of kproxy's own exchange to the clients' view, with the brokers' names."""
        cluster.servers.learn(witness, None, facts)
        own = [replace(fact, own=True) for fact in facts if isinstance(fact, TopicFact)]
        for fact in own:
            self.front_reader.name(fact)
        give(cluster.clients, witness, [*own, *(one for one in facts if isinstance(one, LeaderEpochFact))])

    def take_event(self, data: ViewedEvent, recording: int = 0) -> None:
        """Take the next exchange from its request event. `recording`: its number among several recordings."""
        self.exchanges += 1
        self.events += 1
        cluster = self.cluster(data.get("cluster"))
        if cluster is None:
            return
        witness = event_witness(data, self.exchanges, self.terms.skew, recording)
        if witness is None:
            self.event_reader.counts.damaged[api_of(data)] += 1
            return
        self.connected(witness)
        facts = self.event_reader.facts(data, witness)
        cluster.servers.learn(witness, None, facts)
        give(cluster.clients, witness, facts)

    def note_summarized(self, requests: Mapping[str, int]) -> None:
        """Note the requests that the record has in summaries only, by API."""
        self.front_reader.counts.not_kept.update(requests)

    def cluster(self, name: str | None) -> ClusterVerifier | None:
        """Return the verifier of a cluster; None beyond MOST_CLUSTERS. All clusters share the memory."""
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
        """Count a new connection. Witnesses of a known one share its key, to save memory."""
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
        """Return the verdict. `so_far`: the record goes on; exchanges of the last seconds wait for the next verdict."""
        if not self.clusters:
            self.cluster(None)
        views, counts = self.views, [self.front_reader.counts]
        for view in views:
            view.state.strangers = self.strangers
            if not so_far:
                view.end()
        found, of_record = [], len(self.terms.incomplete)
        # Unreadable and evicted exchanges disprove absence.
        for reader in (self.front_reader, self.behind_reader):
            self.terms.incomplete.extend(not_read(reader.counts))
        self.terms.incomplete.extend(not_remembered(views))
        for name, cluster in self.clusters.items():
            of_cluster = cluster.findings(self.behind_reader.counts)
            if len(self.clusters) > 1:
                for finding in of_cluster:
                    finding.about = f"{finding.about} of {name or 'a cluster without a name'}"
            found += of_cluster
        del self.terms.incomplete[of_record:]
        found.sort(key=rank)
        if self.terms.view != "clients":
            counts.append(self.behind_reader.counts)
        figures = counts_of([cluster.views[0] for cluster in self.clusters.values()])
        if self.events:
            del figures["transactions"]
        clean, not_checked = outcome(self.terms, views, counts, {one.check for one in found}, events=self.events > 0)
        incomplete = [part.text for part in (*self.terms.incomplete, *not_remembered(views))]
        incomplete += reading_remarks(self.terms, views, counts)
        if self.beyond:
            incomplete.append(f"{plural(self.beyond, 'exchange')} of other clusters than the first {MOST_CLUSTERS}")
        verdict = Verdict(
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
        verdict.keep(lambda one: LEVELS.index(one.level) <= LEVELS.index(self.terms.level))
        return verdict


def give(view: ViewVerifier | None, witness: Witness, facts: list[Fact]) -> None:
    """Give an exchange's facts to a view, by the exchange's end or, without a response, by its beginning."""
    if view is not None:
        over = witness.ended is not None
        view.take(witness.ended if witness.ended is not None else witness.began, facts, over=over)


def rank(finding: Finding) -> tuple[int, float, str]:
    first = min((one.witness.began for one in finding.evidence), default=0.0)
    return LEVELS.index(finding.level), first, finding.check


def verify(exchanges: Iterable[VerifiedExchange], terms: VerifyTerms = DEFAULT_TERMS) -> Verdict:
    verifier = Verifier(terms)
    for exchange in exchanges:
        verifier.add(exchange)
    return verifier.verdict()


def differing(front: Sequence[Fact], behind: Sequence[Fact]) -> frozenset[str]:
    """Return the partitions with other batches, offsets or transactions at the client than at the broker."""
    mine, theirs = contents(front), contents(behind)
    return frozenset(about for about, content in mine.items() if about in theirs and theirs[about] != content)


def contents(facts: Sequence[Fact]) -> dict[str, Any]:
    """Return batches, offsets and transactions by partition or group's partition."""
    found: dict[str, Any] = {}
    for fact in facts:
        if isinstance(fact, WriteFact | ReadFact):
            batches = [(one.base, one.delta, one.identity, one.marker) for one in fact.batches]
            if isinstance(fact, WriteFact):
                found[str(fact.place)] = batches, fact.result, fact.base, fact.acks
            else:
                found[str(fact.place)] = batches, fact.position, fact.last_stable, fact.aborted, fact.committed_only
        elif isinstance(fact, FetchedCommitFact):
            found[f"group {fact.group}, {fact.place}"] = fact.offset
    return found


def both_sides(clients: list[Finding], brokers: list[Finding], blind: Callable[[str], bool]) -> list[Finding]:
    """Merge the findings of both views and add the cause to each. `blind`: the brokers' view cannot make a check."""
    places = {(one.check, one.about) for one in clients}
    shared = {(one.check, one.about) for one in brokers} & places
    # A place has another name at the broker if the record lacks the rename. Then the evidence decides.
    elsewhere: dict[tuple[str, int], list[Finding]] = {}
    for finding in brokers:
        if (finding.check, finding.about) not in places:
            for one in finding.evidence:
                elsewhere.setdefault((finding.check, one.witness.number), []).append(finding)
    matched: set[int] = set()
    for finding in clients:
        numbers = {(finding.check, one.witness.number) for one in finding.evidence} & elsewhere.keys()
        if (finding.check, finding.about) in shared or numbers:
            finding.view = "both"
            prepend(finding, BOTH)
        else:
            explain_clients_only(finding, blind=blind(finding.check))
        for number in numbers:
            matched.update(map(id, elsewhere[number]))
            elsewhere[number] = []
    alone = [one for one in brokers if (one.check, one.about) not in shared and id(one) not in matched]
    for finding in alone:
        prepend(finding, BROKERS_ONLY)
    return clients + alone


def explain_clients_only(finding: Finding, *, blind: bool) -> None:
    """Add the cause of a finding of the clients' view alone.

    The finding is proved if the evidence differs at the broker: natural changes of a log do not explain that.
    """
    altered = any(one.witness.made_by_kproxy or finding.about in one.witness.differs for one in finding.evidence)
    if not blind and finding.level == "suspect" and finding.doubts and altered and NATURAL.issuperset(finding.doubts):
        finding.level, finding.doubts = "proved", ()
        finding.else_ = finding.hint
    rules = rules_of(one.witness for one in finding.evidence)
    names = ", ".join(f'"{rule}"' for rule in rules)
    by = f" Something between did it: rule{'s' if len(rules) > 1 else ''} {names} fired." if rules else ""
    if not rules and any(one.witness.altered or one.witness.made_by_kproxy for one in finding.evidence):
        by = " Something between did it; the record names no rule of kproxy that fired."
    prepend(finding, (NOT_ALL_OF_BROKERS if blind else CLEAN_BROKERS) + by)


def prepend(finding: Finding, sentence: str) -> None:
    finding.else_ = " ".join(filter(None, (sentence, finding.else_)))
