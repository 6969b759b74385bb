"""Base class of the checks, and the state that the checks of one view share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

from .candidate import Candidate, Candidates, Comparisons, ExpiringProducer, is_expired
from .cluster import KnownServers, KnownTopics
from .facts import (
    BatchFact,
    ConfigsAlteredFact,
    Fact,
    ForgottenFact,
    LeaderEpochFact,
    PartitionPlace,
    ProducerFact,
    ReadFact,
    TopicToldFact,
    Witness,
    WriteFact,
)
from .finding import Evidence, FindingLevel
from .lru_map import Kept, RecentMap, SharedRoom
from .options import VerifyTerms
from .partition import PartitionHistories, TransactionMarkers

SHARE = 4  # 1/SHARE of the memory is for everything but the histories of partitions
MOST_LEADERS = 100_000
MOST_PRODUCERS = 100_000
FactHandler = Callable[[Any], None]


class CheckState:
    """State that the checks of one view share.

    `compared`: comparisons that could have found a violation. `counts`: figures of the line "checked". `recast`:
    batches that a broker stores in another form. `unread_markers`: control batches whose record was not kept. `room`:
    memory of everything but the logs. `forgot`: evicted facts by check, without the entries of its maps. `new_epochs`:
    by producer id, the first epoch that InitProducerId gave during the record; its batches were sent later.
    """

    def __init__(self, terms: VerifyTerms, memory: int, servers: KnownServers) -> None:
        self.terms = terms
        self.room = SharedRoom(memory // SHARE)
        self.topics = KnownTopics(terms, self.room)
        self.candidates = Candidates(terms, self.topics, servers)
        self.partitions = PartitionHistories(memory)
        self.markers = TransactionMarkers(self.partitions, self.room)
        self.compared = Comparisons(self.candidates)
        self.counts: Counter[str] = Counter()
        self.forgot: Counter[str] = Counter()
        self.leaders: RecentMap[tuple[PartitionPlace, int, int], list[int]] = RecentMap(
            MOST_LEADERS, list[int], room=self.room, weigh=some_bytes
        )
        self.new_epochs: RecentMap[int, list[int]] = RecentMap(
            MOST_PRODUCERS, list[int], room=self.room, weigh=some_bytes
        )
        self.expiring: RecentMap[int, ExpiringProducer] = RecentMap(
            MOST_PRODUCERS, ExpiringProducer, ExpiringProducer.expire, room=self.room,
            weigh=lambda producer: 500 + 1000 * len(producer.candidates),
        )  # fmt: skip
        self.recast = self.unread_markers = 0
        self.latest = 0.0

    def may_be_earlier(self, place: PartitionPlace, era: int, offset: int) -> bool:
        """True if the batch at an offset may be older than the record, and so `--complete` does not cover it."""
        if self.topics.is_created(place.topic):
            return False
        history = self.partitions.histories.get(place)
        return history is None or history.era != era or offset < history.begin

    def is_first_attempt(self, batch: BatchFact) -> bool:
        """True if this batch was not sent before the record.

        Without a producer id, each attempt receives its own offset. With one, a later attempt receives the offset of
        the first.
        """
        identity = batch.identity
        epochs = self.new_epochs.get(identity.producer_id)
        return identity.producer_id < 0 or (epochs is not None and identity.epoch >= epochs[0])

    def leads(self, place: PartitionPlace, epoch: int, node: int | None) -> bool:
        """True if this node was reported as the leader of a partition in a leader epoch."""
        leader = self.leaders.get((place, self.partitions.era(place.topic), epoch))
        return epoch >= 0 and leader == [node]


def some_bytes(entry: object) -> int:
    return 800  # a small entry with its key and an exchange


class HistoryCheck:
    """One or several checks of the same subject in one view. Facts come ordered by time."""

    names: ClassVar[tuple[str, ...]] = ()

    def __init__(self, state: CheckState) -> None:
        self.state = state
        self.topics, self.terms, self.partitions = state.topics, state.terms, state.partitions
        self.maps: list[RecentMap[Any, Any]] = []

    def compared(
        self, check: str, *witnesses: Witness, place: PartitionPlace | None = None, doubts: tuple[str, ...] = (),
        any_age: bool = False,
    ) -> None:  # fmt: skip
        """Note a comparison of these exchanges if it could have shown a violation."""
        self.state.compared.add(check, witnesses, place, doubts, any_age)

    def recent(
        self, most: int, make: Callable[[], Kept], weigh: Callable[[Kept], int] = some_bytes
    ) -> RecentMap[Any, Kept]:
        """Return an LRU map in the shared memory. The check is not sure of evicted entries. `weigh`: their bytes."""
        made: RecentMap[Any, Kept] = RecentMap(most, make, room=self.state.room, weigh=weigh)
        self.maps.append(made)
        return made

    def handlers(self) -> Mapping[type[Fact], FactHandler]:
        raise NotImplementedError

    def pending(self) -> Iterable[Candidate]:
        """Return the candidates that would exist if the record ended now."""
        return ()

    def report(
        self, check: str, about: str, says: str, *shown: tuple[Witness, str], level: FindingLevel = "proved",
        doubts: tuple[str, ...] = (), place: PartitionPlace | None = None, **more: Any,
    ) -> Candidate:  # fmt: skip
        """Add and return a candidate. `shown`: exchanges with the text about each; `more`: fields of the Candidate."""
        evidence = [Evidence(witness, text) for witness, text in shown]
        return self.suspect(Candidate(check, level, about, says, evidence, doubts, place, **more))

    def suspect(self, candidate: Candidate) -> Candidate:
        self.state.candidates.add(candidate)
        return candidate

    def violation(
        self, check: str, place: PartitionPlace, says: str, doubts: Iterable[str], *shown: tuple[Witness, str],
        **more: Any,
    ) -> Candidate:  # fmt: skip
        return self.report(check, str(place), says, *shown, doubts=tuple(doubts), place=place, **more)


class ErasCheck(HistoryCheck):
    """Keeper of the shared facts about topics and producers. It precedes the other checks.

    A deleted or recreated topic begins a new history.
    """

    def handlers(self) -> Mapping[type[Fact], FactHandler]:
        return {
            TopicToldFact: self.told,
            ConfigsAlteredFact: self.altered,
            LeaderEpochFact: self.led,
            ForgottenFact: self.forgotten,
            ReadFact: self.named,
            WriteFact: self.wrote,
            ProducerFact: self.initialized,
        }

    def wrote(self, write: WriteFact) -> None:
        """Store the producers of batches with old timestamps, and the topic's id."""
        self.named(write)
        if write.result == "failed" or write.stamped:
            return
        for batch in write.batches:
            if batch.identity.producer_id >= 0 and is_expired(batch.newest, write.witness):
                self.state.expiring[batch.identity.producer_id].expire()

    def initialized(self, fact: ProducerFact) -> None:
        # A repeated InitProducerId with the expected epoch may return an older one.
        if not (fact.expected or fact.ended):
            epochs = self.state.new_epochs[fact.producer_id]
            epochs[:] = [min([*epochs, fact.epoch])]

    def led(self, fact: LeaderEpochFact) -> None:
        if fact.leader >= 0:
            self.state.leaders[fact.place, self.partitions.era(fact.place.topic), fact.epoch][:] = [fact.leader]

    def altered(self, fact: ConfigsAlteredFact) -> None:
        for setting in fact.settings:
            self.topics.alter(setting, fact.witness)

    def told(self, fact: TopicToldFact) -> None:
        if self.topics.learn(fact):
            self.partitions.begin_era(fact.topic)

    def forgotten(self, fact: ForgottenFact) -> None:
        if fact.topic is not None and fact.group is None:
            self.topics.delete(fact.topic)
            self.partitions.begin_era(fact.topic)

    def named(self, fact: ReadFact | WriteFact) -> None:
        """Store the topic id of a read or write."""
        written = not isinstance(fact, WriteFact) or fact.result == "ok"
        if written and fact.topic_id and self.topics.named(fact.place.topic, fact.topic_id, fact.witness):
            self.partitions.begin_era(fact.place.topic)
