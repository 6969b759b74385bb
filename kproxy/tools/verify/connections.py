"""Checks of connections: versions, leader epochs, responses without requests, and the conformance of clients."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from kproxy.base.bounded_map import BoundedMap
from kproxy.base.errors import plural
from kproxy.protocol.table import schema
from kproxy.protocol.table.api_keys import API_VERSIONS

from .candidate import Candidate, candidate_of
from .facts import (
    ConnectionKey,
    LeaderEpochFact,
    MemberFact,
    PartitionPlace,
    PartitionsAddedFact,
    RequestFact,
    SessionFact,
    TransactionEndFact,
    VersionsFact,
    Witness,
    WriteFact,
)
from .history_check import CheckState, HistoryCheck, handles

MOST_CONNECTIONS = 20_000
MOST_EPOCHS = 100_000
MOST_MEMBERS = 20_000
MOST_PRODUCERS = 20_000
MOST_ADDED = 1000
MOST_SESSIONS = 16
ADDED_BY_PRODUCE = 12  # version of Produce since which brokers add partitions to a transaction by themselves


class VersionsCheck(HistoryCheck):
    """Check of requests against the versions that were offered on their connection."""

    names = ("unsupported-version",)

    def __init__(self, state: CheckState) -> None:
        super().__init__(state)
        self.offers: BoundedMap[ConnectionKey, list[VersionsFact]] = self.recent(
            MOST_CONNECTIONS,
            list[VersionsFact],
            lambda offers: 500 + sum(200 + 150 * len(one.offered) for one in offers),
        )

    @handles(VersionsFact)
    def offered(self, fact: VersionsFact) -> None:
        offers = self.offers[fact.witness.connection]
        offers[:] = [*offers[-1:], fact]

    @handles(RequestFact)
    def requested(self, fact: RequestFact) -> None:
        witness = fact.witness
        offers = [one for one in self.offers.get(witness.connection) or () if one.witness.before(witness)]
        if not offers or fact.key == API_VERSIONS:
            return
        self.compared("unsupported-version", offers[-1].witness, witness)
        ranges = [one.offered[fact.key] for one in offers if fact.key in one.offered]
        if any(first <= witness.version <= last for first, last in ranges):
            return
        first, last = ranges[-1] if ranges else (-1, -1)
        name = schema.load(fact.key).name if fact.key in schema.paths() else f"API {fact.key}"
        offered = f"{first} to {last}" if ranges else "none"
        says = f"a request has version {witness.version} of {name}, and its connection was offered {offered}"
        shown = (offers[-1].witness, f"offers {offered}"), (witness, f"version {witness.version}")
        self.report("unsupported-version", f"{name} {witness.version}", says, *shown)


class LeaderEpochsCheck(HistoryCheck):
    names = ("epoch-goes-back",)

    def __init__(self, state: CheckState) -> None:
        super().__init__(state)
        self.reported: BoundedMap[tuple[int, str, PartitionPlace, str], LeaderEpochFact] = self.recent(MOST_EPOCHS)

    @handles(LeaderEpochFact)
    def epoch(self, fact: LeaderEpochFact) -> None:
        node = fact.witness.node
        if node is None:
            return
        key = node, fact.witness.api, fact.place, fact.topic_id
        highest = self.reported.get(key)
        if highest is not None and highest.witness.before(fact.witness):
            self.compared("epoch-goes-back", highest.witness, fact.witness, place=fact.place)
            if fact.epoch < highest.epoch:
                says = f"node {node} reports leader epoch {fact.epoch} after {highest.epoch}"
                shown = [(one.witness, f"epoch {one.epoch}") for one in (highest, fact)]
                self.report("epoch-goes-back", fact.place, says, *shown, doubts=("lagging", "anew"), level="suspect")
        self.reported[key] = fact if highest is None or fact.epoch > highest.epoch else highest


@dataclass(slots=True)
class AddedPartitions:
    """Partitions that a producer added to its transaction. `seen`: the record has such a request."""

    places: set[PartitionPlace] = field(default_factory=set)
    seen: bool = False


class ConformanceCheck(HistoryCheck):
    """Check of clients' requests against rules of the protocol that brokers may not enforce."""

    names = ("conformance",)

    def __init__(self, state: CheckState) -> None:
        super().__init__(state)
        self.sessions: BoundedMap[ConnectionKey, dict[int, int]] = self.recent(
            MOST_CONNECTIONS, dict[int, int], lambda sessions: 500 + 100 * len(sessions)
        )
        self.left: BoundedMap[tuple[str, str], Witness] = self.recent(MOST_MEMBERS)
        self.added: BoundedMap[tuple[int, int], AddedPartitions] = self.recent(
            MOST_PRODUCERS, AddedPartitions, lambda added: 600 + 200 * len(added.places)
        )

    def note(self, about: str, says: str, witness: Witness, shows: str) -> None:
        self.report("conformance", about, says, (witness, shows), level="note")

    @handles(SessionFact)
    def session(self, fact: SessionFact) -> None:
        sessions = self.sessions[fact.witness.connection]
        if fact.epoch > 0:
            expected = sessions.pop(fact.session, None)
            if fact.error:
                return
            if expected is not None:
                self.compared("conformance", fact.witness)
            if expected is not None and fact.epoch != expected:
                says = f"a fetch session goes on with epoch {fact.epoch} in place of {expected}, and is answered"
                self.note(f"client {fact.witness.client}", says, fact.witness, f"epoch {fact.epoch}")
        if fact.given and not fact.error:
            if len(sessions) >= MOST_SESSIONS:
                sessions.clear()
            sessions[fact.given] = 1 if fact.epoch <= 0 or fact.epoch == (1 << 31) - 1 else fact.epoch + 1

    @handles(MemberFact)
    def member(self, fact: MemberFact) -> None:
        if fact.left:
            self.left[fact.group, fact.member] = fact.witness
            return
        left = self.left.get((fact.group, fact.member))
        if left is None:
            return
        self.compared("conformance", left, fact.witness)
        if left.before(fact.witness):
            says = f"member {fact.member} sends a heartbeat after it has left"
            self.note(f"group {fact.group}", says, fact.witness, "heartbeat")

    @handles(PartitionsAddedFact)
    def partitions_added(self, fact: PartitionsAddedFact) -> None:
        if not fact.places:  # AddOffsetsToTxn
            return
        added = self.added[fact.producer_id, fact.epoch]
        added.seen = True
        if fact.result != "failed" and len(added.places) < MOST_ADDED:
            added.places.update(fact.places)

    @handles(TransactionEndFact)
    def ended(self, fact: TransactionEndFact) -> None:
        added = self.added.get((fact.producer_id, fact.epoch))
        if added is not None and fact.result == "ok":
            added.places.clear()

    @handles(WriteFact)
    def written(self, write: WriteFact) -> None:
        """Note a transactional write to a partition that was not added to its transaction."""
        if write.result != "ok" or write.witness.version >= ADDED_BY_PRODUCE:
            return
        for batch in write.batches:
            added = self.added.get((batch.identity.producer_id, batch.identity.epoch)) if batch.transactional else None
            if added is None or not added.seen or len(added.places) >= MOST_ADDED:
                continue
            self.compared("conformance", write.witness)
            if write.place not in added.places:
                says = f"a transactional batch is written to {write.place}, which is not part of its transaction"
                self.note(f"producer {batch.identity.producer_id}", says, write.witness, f"writes to {write.place}")


class AnswerOrderCheck(HistoryCheck):
    """Check of responses without a request, which the record's reader counts."""

    names = ("answer-order",)

    @handles(RequestFact)
    def requested(self, fact: RequestFact) -> None:
        if fact.witness.ended is not None and not fact.witness.made_by_kproxy:
            self.compared("answer-order", fact.witness)

    def pending(self) -> Iterable[Candidate]:
        if not self.state.strangers:
            return ()
        says = f"{plural(self.state.strangers, 'response')} came without a request, twice, or out of turn"
        doubts = () if self.terms.proves_absence() else ("gaps",)
        return (candidate_of("answer-order", "the record", says, doubts=doubts),)
