"""Base class of the checks, and the state that the checks of one view share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from kproxy.base.bounded_map import BoundedMap, SharedBudget, Value

from .candidate import CAUSING_APIS, Candidate, Candidates, Comparisons, ExpiringProducer, candidate_of, is_expired
from .cluster import KnownServers, KnownTopics
from .facts import (
    BatchFact,
    ConfigsAlteredFact,
    DeletionFact,
    Fact,
    LeaderEpochFact,
    PartitionPlace,
    ProducerFact,
    ReadFact,
    RequestFact,
    TopicFact,
    Witness,
    WriteFact,
)
from .options import VerifyTerms
from .partition import PartitionHistories, TransactionMarkers

SHARE = 4  # 1/SHARE of the memory is for everything but the histories of partitions
MOST_LEADERS = 100_000
MOST_PRODUCERS = 100_000
FactHandler = Callable[..., None]
HANDLED_KINDS: dict[FactHandler, tuple[type[Fact], ...]] = {}


class CheckState:
    """State that the checks of one view share. `compared`: comparisons that could have found a violation. `counts`:
    figures of the line "checked". `recast`: number of batches that a broker stores in another form. `unread_markers`:
    number of control batches without their record. `budget`: memory of everything but the logs. `strangers`: as in
    `Verifier`. `forgot`: evicted facts by check, without the entries of its maps."""

    def __init__(self, terms: VerifyTerms, memory: int, servers: KnownServers) -> None:
        self.terms = terms
        self.budget = SharedBudget(memory // SHARE)
        self.topics = KnownTopics(terms, self.budget)
        self.candidates = Candidates(terms, self.topics, servers)
        self.partitions = PartitionHistories(memory)
        self.markers = TransactionMarkers(self.partitions, self.budget)
        self.compared = Comparisons(self.candidates)
        self.counts: Counter[str] = Counter()
        self.forgot: Counter[str] = Counter()
        self.leaders: BoundedMap[tuple[PartitionPlace, int, int], int] = BoundedMap(
            MOST_LEADERS, budget=self.budget, weigh=some_bytes
        )
        # By producer id, the first epoch that InitProducerId gave during the record. Its batches were sent later.
        self.new_epochs: BoundedMap[int, int] = BoundedMap(MOST_PRODUCERS, budget=self.budget, weigh=some_bytes)
        self.expiring: BoundedMap[int, ExpiringProducer] = BoundedMap(
            MOST_PRODUCERS, ExpiringProducer, lambda _, producer: producer.expire(), budget=self.budget,
            weigh=lambda producer: 500 + 1000 * len(producer.candidates),
        )  # fmt: skip
        self.recast = self.unread_markers = 0
        self.strangers: int | None = None
        self.latest = 0.0

    def knows(self, topic: str) -> bool:
        """True if the record has the topic, or if some topics were evicted."""
        known = self.topics.by_name, self.partitions.histories
        return topic in known[0] or any(one.evicted for one in known) or any(
            place.topic == topic for place in known[1]
        )  # fmt: skip

    def may_be_earlier(self, place: PartitionPlace, era: int, offset: int) -> bool:
        """True if the batch at an offset may be older than the record, to which `--assume-complete` does not apply."""
        if self.topics.is_created(place.topic):
            return False
        history = self.partitions.histories.get(place)
        return history is None or history.era != era or offset < history.begin

    def is_first_attempt(self, batch: BatchFact) -> bool:
        """True if this batch was not sent before the record. Without a producer id each attempt receives an own offset.
        With one, a later attempt receives the offset of the first."""
        identity = batch.identity
        first = self.new_epochs.get(identity.producer_id)
        return identity.producer_id < 0 or (first is not None and identity.epoch >= first)

    def leads(self, place: PartitionPlace, epoch: int, node: int | None) -> bool:
        """True if this node was reported as the leader of a partition in a leader epoch."""
        leader = self.leaders.get((place, self.partitions.era(place.topic), epoch))
        return epoch >= 0 and leader is not None and leader == node


def some_bytes(entry: object) -> int:
    return 800  # a small entry with its key and an exchange


def handles(*kinds: type[Fact]) -> Callable[[FactHandler], FactHandler]:
    """Register a method of a check for facts of these kinds."""

    def register(method: FactHandler) -> FactHandler:
        HANDLED_KINDS[method] = kinds
        return method

    return register


class HistoryCheck:
    """One or several checks of the same subject in one view. Facts come ordered by time."""

    names: ClassVar[tuple[str, ...]] = ()

    def __init__(self, state: CheckState) -> None:
        self.state = state
        self.topics, self.terms, self.partitions = state.topics, state.terms, state.partitions
        self.maps: list[BoundedMap[Any, Any]] = []

    def compared(
        self, check: str, *witnesses: Witness, place: PartitionPlace | None = None, doubts: Iterable[str] = (),
        any_age: bool = False,
    ) -> None:  # fmt: skip
        """Note a comparison of these exchanges if it could have shown a violation."""
        self.state.compared.add(check, witnesses, place, tuple(doubts), any_age)

    def recent(
        self, most: int, make: Callable[[], Value] | None = None, weigh: Callable[[Value], int] = some_bytes
    ) -> BoundedMap[Any, Value]:
        """Return a map whose evictions make the checks undecided. `weigh`: approximate size of an entry in bytes."""
        made: BoundedMap[Any, Value] = BoundedMap(most, make, budget=self.state.budget, weigh=weigh)
        self.maps.append(made)
        return made

    def handlers(self) -> dict[type[Fact], FactHandler]:
        """Methods with `@handles`, by the kind of fact."""
        methods = [(name, value) for name, value in vars(type(self)).items() if callable(value)]
        return {kind: getattr(self, name) for name, method in methods for kind in HANDLED_KINDS.get(method, ())}

    def pending(self) -> Iterable[Candidate]:
        """Candidates if the record ended now."""
        return ()

    def report(
        self, check: str, about: str | PartitionPlace, says: str, *shown: tuple[Witness, str], **more: Any
    ) -> Candidate:
        """Add and return a candidate, with the arguments of `candidate_of`."""
        candidate = candidate_of(check, about, says, *shown, **more)
        self.state.candidates.add(candidate)
        return candidate


class ErasCheck(HistoryCheck):
    """Keeper of the shared facts about topics and producers. It precedes the other checks. A deleted or recreated topic
    begins a new history."""

    @handles(RequestFact)
    def requested(self, fact: RequestFact) -> None:
        """Note the clock of an exchange, and a request that may be the cause of a finding."""
        candidates = self.state.candidates
        candidates.clocks.add(fact.witness.clock)
        if fact.key in CAUSING_APIS.values():
            candidates.causes.add(fact.key)

    @handles(WriteFact)
    def wrote(self, write: WriteFact) -> None:
        """Store the producers of batches with old timestamps, and the topic's id."""
        self.named(write)
        if write.result == "failed" or write.stamped:
            return
        for batch in write.batches:
            if batch.identity.producer_id >= 0 and is_expired(batch.newest, write.witness):
                self.state.expiring[batch.identity.producer_id].expire()

    @handles(ProducerFact)
    def initialized(self, fact: ProducerFact) -> None:
        """Store a new epoch. A repeated InitProducerId with the expected epoch may return an older one."""
        if not (fact.expected or fact.ended):
            first = self.state.new_epochs.get(fact.producer_id)
            self.state.new_epochs[fact.producer_id] = fact.epoch if first is None else min(first, fact.epoch)

    @handles(LeaderEpochFact)
    def led(self, fact: LeaderEpochFact) -> None:
        self.topics.led(fact)
        if fact.leader >= 0:
            self.state.leaders[fact.place, self.partitions.era(fact.place.topic), fact.epoch] = fact.leader

    @handles(ConfigsAlteredFact)
    def altered(self, fact: ConfigsAlteredFact) -> None:
        """Note that any topic may be compacted, or have unclean elections, after this exchange."""
        for setting in fact.settings:
            self.topics.alter(setting, fact.witness)

    @handles(TopicFact)
    def topic_reported(self, fact: TopicFact) -> None:
        if self.topics.learn(fact):
            self.partitions.begin_era(fact.topic)

    @handles(DeletionFact)
    def forgotten(self, fact: DeletionFact) -> None:
        if fact.topic is not None and fact.group is None:
            self.topics.delete(fact.topic)
            self.partitions.begin_era(fact.topic)

    @handles(ReadFact)
    def named(self, fact: ReadFact | WriteFact) -> None:
        """Store the topic id of a read or write."""
        written = not isinstance(fact, WriteFact) or fact.result == "ok"
        if written and fact.topic_id and self.topics.named(fact.place.topic, fact.topic_id, fact.witness):
            self.partitions.begin_era(fact.place.topic)
