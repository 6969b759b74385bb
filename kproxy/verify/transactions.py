"""Checks of transactions as a whole: that each has one end, and that nobody writes behind a fence."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from kproxy.wire.table.api_keys import WRITE_TXN_MARKERS

from .facts import (
    Fact,
    FencedFact,
    PartitionPlace,
    ProducerFact,
    ReadFact,
    RequestFact,
    TransactionEnd,
    TransactionEndFact,
    Witness,
    WriteFact,
)
from .finding import Evidence
from .history_check import CheckState, FactHandler, HistoryCheck
from .recent import RecentMap
from .suspicion import SHORTEST_EXPIRY, Suspicion
from .topics import TRANSACTIONS_LOG

SENT_AGAIN = 5
"""Version of EndTxn from which on one that is sent again is answered as the first one was."""
MOST_PRODUCERS = 50_000
MOST_FENCES = 32
MOST_EPOCHS = 256
MOST_WRITES = 64
MOST_EXPECTED = 32
MOST_UNSURE = 32
"""Suspicions about one producer that a later end of a transaction may make sure."""

OF_ENDS = ("aborter", "unclean")
"""Lawful causes of two ends of one transaction: an operator aborts it in one partition, or its end was lost."""
MarkerPlace = tuple[PartitionPlace, int, Witness]
"""Partition and offset of a marker, with the exchange that brought it."""


@dataclass(slots=True)
class EpochFence:
    """Epoch below which a producer is fenced. `certain`: all its partitions know of it by the time of the answer."""

    epoch: int
    witness: Witness
    certain: bool


@dataclass(slots=True)
class ProducerHistory:
    """History of one transactional producer id. `markers`: by epoch, one of each end. `ends`: transactions that ended,
    by epoch, where each has its own; `own_from`: the first epoch of such markers, None if there are none; `own_to`:
    the last epoch of such a transaction; `unsure`: suspicions about markers of an epoch that only this makes sure.
    `writes`: batches since the last end, as (partition, last offset, exchange). `expected`: by partition, batches whose
    transaction has ended, and how."""

    fences: deque[EpochFence] = field(default_factory=lambda: deque(maxlen=MOST_FENCES))
    markers: RecentMap[int, dict[TransactionEnd, MarkerPlace]] = field(
        default_factory=lambda: RecentMap(MOST_EPOCHS, dict[TransactionEnd, MarkerPlace])
    )
    ends: RecentMap[int, list[TransactionEndFact]] = field(
        default_factory=lambda: RecentMap(MOST_EPOCHS, list[TransactionEndFact])
    )
    own_from: int | None = None
    own_to: int = -1
    unsure: list[tuple[Suspicion, int]] = field(default_factory=list)
    writes: deque[tuple[PartitionPlace, int, Witness]] = field(default_factory=lambda: deque(maxlen=MOST_WRITES))
    expected: RecentMap[PartitionPlace, deque[tuple[int, Witness, TransactionEndFact]]] = field(
        default_factory=lambda: RecentMap(MOST_EXPECTED, lambda: deque(maxlen=MOST_EXPECTED))
    )


def weight_of(producer: ProducerHistory) -> int:
    """Return how many bytes the history of a producer takes, roughly."""
    epochs = 1000 * (len(producer.markers) + len(producer.ends) + len(producer.fences))
    return 3000 + 1000 * len(producer.unsure) + epochs + 700 * len(producer.writes) + 5000 * len(producer.expected)


class TransactionsCheck(HistoryCheck):
    """Check of the ends of transactions, and of writes with an epoch that is fenced."""

    names = ("torn-transaction", "zombie-write")

    def __init__(self, state: CheckState) -> None:
        super().__init__(state)
        self.producers: RecentMap[int, ProducerHistory] = self.recent(MOST_PRODUCERS, ProducerHistory, weight_of)

    def handlers(self) -> Mapping[type[Fact], FactHandler]:
        """Return what is to be called with each kind of fact."""
        return {
            ProducerFact: self.given,
            FencedFact: self.fenced,
            WriteFact: self.written,
            TransactionEndFact: self.ended,
            ReadFact: self.read,
            RequestFact: self.requested,
        }

    def requested(self, fact: RequestFact) -> None:
        """Note a WriteTxnMarkers: an operator aborts a transaction in one partition."""
        self.state.suspicions.aborter |= fact.key == WRITE_TXN_MARKERS

    def given(self, fact: ProducerFact) -> None:
        """Note that older epochs of a producer id are fenced."""
        producer = self.producers[fact.producer_id]
        producer.fences.append(EpochFence(fact.epoch, fact.witness, certain=not fact.ended))
        if not fact.ended:
            producer.writes.clear()

    def fenced(self, fact: FencedFact) -> None:
        """Note that this epoch has been refused, and so are older ones."""
        self.producers[fact.producer_id].fences.append(EpochFence(fact.epoch + 1, fact.witness, certain=False))

    def written(self, write: WriteFact) -> None:
        """Look for fences before a write that was accepted, and note it for the end of its transaction."""
        if write.result != "ok":
            return
        for batch in write.batches:
            if not batch.transactional:
                continue
            identity = batch.identity
            producer = self.producers[identity.producer_id]
            self.behind_fence(producer, identity.producer_id, identity.epoch, write.witness, write.place)
            if write.base is not None:
                producer.writes.append((write.place, batch.last, write.witness))

    def behind_fence(
        self, producer: ProducerHistory, producer_id: int, epoch: int, witness: Witness, place: PartitionPlace | None
    ) -> None:
        """Keep a suspicion if an epoch was accepted although it had been fenced before. `place`: the partition that was
        written; None for the end of a transaction.

        A partition knows the fence by its marker. It accepts the epoch if it is of a new topic, has lost the marker, or
        has forgotten the producer.
        """
        earlier = [one for one in producer.fences if one.witness.before(witness)]
        if earlier:
            self.compared("zombie-write", earlier[-1].witness, witness)
        fences = [one for one in earlier if epoch < one.epoch]
        if not fences:
            return
        fence = max(fences, key=lambda one: one.certain)
        doubts = ["unclean"] if place is None else ["unclean", "anew"]
        if not fence.certain:
            doubts.append("race")
        if place is not None and (witness.ended or witness.began) - fence.witness.began > SHORTEST_EXPIRY:
            doubts.append("restart")
        what = "end its transaction" if place is None else str(place)
        self.suspect(
            Suspicion(
                "zombie-write",
                "proved",
                f"producer {producer_id}",
                f"{witness.api} ({what}) with epoch {epoch} was accepted behind a fence at epoch {fence.epoch}",
                [Evidence(fence.witness, f"epoch {fence.epoch}"), Evidence(witness, f"epoch {epoch}, accepted")],
                tuple(doubts),
                place,
                logs=(TRANSACTIONS_LOG,) if place is None else (TRANSACTIONS_LOG, place.topic),
            )
        )

    def ended(self, fact: TransactionEndFact) -> None:
        """Take in the end of a transaction as its producer asked for it."""
        producer = self.producers[fact.producer_id]
        self.state.counts["transactions"] += fact.result == "ok"
        own_epoch = fact.own_epoch
        if own_epoch:
            first = fact.epoch + 1
            producer.own_from = first if producer.own_from is None else min(first, producer.own_from)
            self.make_sure(producer, fact.epoch)
        elif fact.result == "ok" and fact.witness.version < SENT_AGAIN:  # one epoch for all of them from now on
            producer.own_from = None
        if fact.result == "ok":
            if (
                fact.witness.version < SENT_AGAIN
            ):  # else it may be one that was sent again, which has the epoch of before
                self.behind_fence(producer, fact.producer_id, fact.epoch, fact.witness, None)
            for place, offset, witness in producer.writes:
                if witness.before(fact.witness):
                    producer.expected[place].append((offset, witness, fact))
            if own_epoch:
                producer.ends[fact.epoch][:] = [fact]
                for end, (place, offset, witness) in (producer.markers.get(fact.epoch + 1) or {}).items():
                    self.compared("torn-transaction", fact.witness, witness)
                    if (end == "commit") != fact.committed:
                        self.sure_once(producer, fact.epoch + 1, self.torn_end(fact, place, offset, witness, end))
        if fact.result != "failed":
            producer.writes.clear()

    def read(self, read: ReadFact) -> None:
        """Take in the markers of an answer."""
        for batch in read.batches:
            end = batch.end
            if end is None:
                continue
            identity = batch.identity
            producer = self.producers[identity.producer_id]
            known = producer.markers[identity.epoch]
            mine = read.place, batch.base, read.witness
            if producer.own_from is not None and identity.epoch >= producer.own_from:
                for place, offset, witness in known.values():
                    if (place, offset) != mine[:2]:
                        self.compared("torn-transaction", witness, read.witness)
            other = known.get("abort" if end == "commit" else "commit")
            if end not in known:
                known[end] = mine
                if other is not None and producer.own_from is not None and identity.epoch >= producer.own_from:
                    torn = self.torn(identity.producer_id, identity.epoch, (end, mine), other)
                    self.sure_once(producer, identity.epoch, torn)
                for fact in producer.ends.get(identity.epoch - 1) or ():
                    self.compared("torn-transaction", fact.witness, read.witness)
                    if (end == "commit") != fact.committed:
                        self.sure_once(producer, identity.epoch, self.torn_end(fact, *mine, end))
            if producer.own_from is None:
                self.expectations(producer, read.place)

    def sure_once(self, producer: ProducerHistory, epoch: int, suspicion: Suspicion) -> None:
        """Leave a doubt about markers of an epoch until a later transaction is known to have one of its own, too: if
        the cluster's transaction version was lowered, a transaction of this very epoch may have ended with it."""
        if epoch <= producer.own_to:
            make_sure(suspicion)
        elif len(producer.unsure) < MOST_UNSURE:
            producer.unsure.append((suspicion, epoch))

    def make_sure(self, producer: ProducerHistory, epoch: int) -> None:
        """Clear the doubts about markers up to this epoch, whose own transaction has ended with the next one."""
        producer.own_to = max(producer.own_to, epoch)
        for suspicion, of_epoch in producer.unsure:
            if of_epoch <= producer.own_to:
                make_sure(suspicion)
        producer.unsure = [one for one in producer.unsure if one[1] > producer.own_to]

    def expectations(self, producer: ProducerHistory, place: PartitionPlace) -> None:
        """Compare the markers behind batches of a partition with how their transactions ended."""
        expected = producer.expected.get(place) or deque()
        for _ in range(len(expected)):
            offset, witness, fact = expected.popleft()
            marker = self.state.markers.next(place, fact.producer_id, offset)
            if marker is None:
                expected.append((offset, witness, fact))
                continue
            self.compared("torn-transaction", witness, fact.witness, marker.witness)
            if (marker.end == "commit") != fact.committed:
                write = Evidence(witness, f"{place}, up to offset {offset}")
                self.torn_end(fact, place, marker.offset, marker.witness, marker.end, write)

    def torn(
        self, producer_id: int, epoch: int, mine: tuple[TransactionEnd, MarkerPlace], other: MarkerPlace
    ) -> Suspicion:
        """Keep a suspicion that one transaction was committed in one place and aborted in another."""
        end, (place, offset, witness) = mine
        opposite = "abort" if end == "commit" else "commit"
        return self.suspect(
            Suspicion(
                "torn-transaction",
                "proved",
                f"producer {producer_id}",
                f"the transaction of epoch {epoch} ends with {end} in {place} and with {opposite} in {other[0]}",
                [
                    Evidence(other[2], f"{opposite} at {other[0]}, offset {other[1]}"),
                    Evidence(witness, f"{end} at {place}, offset {offset}"),
                ],
                ("lowered", *OF_ENDS),
                logs=(TRANSACTIONS_LOG, place.topic, other[0].topic),
            )
        )

    def torn_end(
        self,
        fact: TransactionEndFact,
        place: PartitionPlace,
        offset: int,
        witness: Witness,
        end: TransactionEnd,
        write: Evidence | None = None,
    ) -> Suspicion:
        """Keep a suspicion that a transaction's marker is not what its producer was told. `write`: the batch that ties
        them together, where epochs do not: an end in between may be missing in the record."""
        told = "committed" if fact.committed else "aborted"
        evidence = [
            Evidence(fact.witness, f"{told}, epoch {fact.epoch}"),
            Evidence(witness, f"{end} at {place}, offset {offset}"),
        ]
        return self.suspect(
            Suspicion(
                "torn-transaction",
                "proved",
                f"producer {fact.producer_id}",
                f"the producer was told that its transaction is {told}, and {place} has a marker of the other end",
                evidence if write is None else [write, *evidence],
                ("lowered", *OF_ENDS) if write is None else ("unseen", "anew", *OF_ENDS),
                place,
                logs=(TRANSACTIONS_LOG, place.topic),
            )
        )


def make_sure(suspicion: Suspicion) -> None:
    """Clear the doubt whether the epoch is of one transaction."""
    suspicion.doubts = tuple(one for one in suspicion.doubts if one != "lowered")
