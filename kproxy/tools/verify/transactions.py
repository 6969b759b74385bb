"""Checks of transactions and producers: ends, fenced epochs, and the ids and epochs from coordinators."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from kproxy.base.bounded_map import BoundedMap

from .candidate import SHORTEST_EXPIRY, Candidate
from .cluster import TRANSACTIONS_LOG
from .facts import (
    CommitFact,
    FencedFact,
    PartitionPlace,
    PartitionsAddedFact,
    ProducerFact,
    ReadFact,
    TransactionEnd,
    TransactionEndFact,
    Witness,
    WriteFact,
)
from .history_check import CheckState, HistoryCheck, handles
from .reads import delivered

SENT_AGAIN = 5  # version of EndTxn since which a repeated request gets the same response
MOST_IDS = 100_000
MOST_PRODUCERS = 50_000
MOST_FENCES = 32
MOST_EPOCHS = 256
MOST_WRITES = 64
MOST_EXPECTED = 32
MOST_UNSURE = 32  # candidates about one producer that a later transaction may confirm

# Lawful causes of two ends of one transaction: an operator aborts it in one partition, or its end was lost.
OF_ENDS = ("aborter", "unclean")
# Partition and offset of a marker, with the exchange that contains it.
MarkerPlace = tuple[PartitionPlace, int, Witness]


@dataclass(slots=True)
class EpochFence:
    """Epoch below which a producer is fenced. `certain`: all its partitions have the fence by the response."""

    epoch: int
    witness: Witness
    certain: bool


class WrittenBatch(NamedTuple):
    place: PartitionPlace
    base: int
    last: int
    epoch: int
    witness: Witness


@dataclass(slots=True)
class ProducerHistory:
    """History of one transactional producer id. `markers`: by epoch, one of each end. `ends`: by epoch, transactions
    that ended with an own epoch (KIP-890). `own_from`: first epoch of their markers, None without any. `own_to`: last
    epoch of such a transaction. `unsure`: candidates about markers of an epoch that a later `own_to` confirms.
    `writes`: batches since the last end. `expected`: by partition, batches of ended transactions, each with the end."""

    fences: deque[EpochFence] = field(default_factory=lambda: deque(maxlen=MOST_FENCES))
    markers: BoundedMap[int, dict[TransactionEnd, MarkerPlace]] = field(
        default_factory=lambda: BoundedMap(MOST_EPOCHS, dict[TransactionEnd, MarkerPlace])
    )
    ends: BoundedMap[int, TransactionEndFact] = field(default_factory=lambda: BoundedMap(MOST_EPOCHS))
    own_from: int | None = None
    own_to: int = -1
    unsure: list[tuple[Candidate, int]] = field(default_factory=list)
    writes: deque[WrittenBatch] = field(default_factory=lambda: deque(maxlen=MOST_WRITES))
    expected: BoundedMap[PartitionPlace, deque[tuple[WrittenBatch, TransactionEndFact]]] = field(
        default_factory=lambda: BoundedMap(MOST_EXPECTED, lambda: deque(maxlen=MOST_EXPECTED))
    )


def weight_of(producer: ProducerHistory) -> int:
    """Approximate size in bytes."""
    epochs = 1000 * (len(producer.markers) + len(producer.ends) + len(producer.fences))
    return 3000 + 1000 * len(producer.unsure) + epochs + 700 * len(producer.writes) + 5000 * len(producer.expected)


class TransactionsCheck(HistoryCheck):
    """Checks of transaction ends, and of writes with a fenced epoch."""

    names = ("torn-transaction", "hidden-transaction", "aborted-read", "zombie-write")

    def __init__(self, state: CheckState) -> None:
        super().__init__(state)
        self.producers: BoundedMap[int, ProducerHistory] = self.recent(MOST_PRODUCERS, ProducerHistory, weight_of)

    @handles(ProducerFact)
    def given(self, fact: ProducerFact) -> None:
        if fact.transactional_id is None:
            return
        producer = self.producers[fact.producer_id]
        producer.fences.append(EpochFence(fact.epoch, fact.witness, certain=not fact.ended))
        if not fact.ended:
            producer.writes.clear()

    @handles(FencedFact)
    def fenced(self, fact: FencedFact) -> None:
        self.producers[fact.producer_id].fences.append(EpochFence(fact.epoch + 1, fact.witness, certain=False))

    @handles(WriteFact)
    def written(self, write: WriteFact) -> None:
        """Compare an accepted write with the fences, and keep it for the end of its transaction."""
        if write.result != "ok":
            return
        for batch in write.batches:
            if not batch.transactional:
                continue
            identity = batch.identity
            producer = self.producers[identity.producer_id]
            self.behind_fence(producer, identity.producer_id, identity.epoch, write.witness, write.place)
            if write.base is not None:
                producer.writes.append(WrittenBatch(write.place, batch.base, batch.last, identity.epoch, write.witness))

    @handles(PartitionsAddedFact, CommitFact)
    def added(self, fact: PartitionsAddedFact | CommitFact) -> None:
        """Compare an accepted request of a transaction with the fences."""
        if isinstance(fact, CommitFact):
            producer_id, epoch = fact.producer or (-1, -1)
        else:
            producer_id, epoch = fact.producer_id, fact.epoch
        producer = self.producers.get(producer_id)
        if producer is not None and fact.result == "ok":
            commit = isinstance(fact, CommitFact)
            self.behind_fence(producer, producer_id, epoch, fact.witness, None, commit=commit)

    def behind_fence(
        self, producer: ProducerHistory, producer_id: int, epoch: int, witness: Witness, place: PartitionPlace | None,
        *, commit: bool = False,
    ) -> None:  # fmt: skip
        """Report an epoch that was accepted although it was fenced. `place`: the written partition; None for requests
        to a coordinator. `commit`: TxnOffsetCommit, since the offsets are in a partition as well. A
        partition has the fence by its marker. It accepts the epoch if it belongs to a new topic, has lost the marker,
        or has dropped the producer's state."""
        earlier = [one for one in producer.fences if one.witness.before(witness)]
        if earlier:
            self.compared("zombie-write", earlier[-1].witness, witness)
        fences = [one for one in earlier if epoch < one.epoch]
        if not fences:
            return
        fence = max(fences, key=lambda one: one.certain)
        doubts = ["unclean"] if place is None else ["unclean", "anew"]
        if commit or not fence.certain:
            doubts.append("race")
        if place is not None and (witness.ended or witness.began) - fence.witness.began > SHORTEST_EXPIRY:
            doubts.append("restart")
        what = "" if place is None else f" ({place})"
        says = f"{witness.api}{what} with epoch {epoch} was accepted behind a fence at epoch {fence.epoch}"
        candidate = self.report(
            "zombie-write", f"producer {producer_id}", says, (fence.witness, f"epoch {fence.epoch}"),
            (witness, f"epoch {epoch}, accepted"), doubts=doubts, place=place,
            logs=(TRANSACTIONS_LOG,) if place is None else (TRANSACTIONS_LOG, place.topic),
        )  # fmt: skip
        if place is not None:
            self.state.expiring[producer_id].doubt(candidate)

    @handles(TransactionEndFact)
    def ended(self, fact: TransactionEndFact) -> None:
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
            if fact.witness.version < SENT_AGAIN:  # a later version succeeds again when it is repeated
                self.behind_fence(producer, fact.producer_id, fact.epoch, fact.witness, None)
            for written in producer.writes:
                if written.epoch == fact.epoch and written.witness.before(fact.witness):
                    producer.expected[written.place].append((written, fact))
            if own_epoch:
                producer.ends[fact.epoch] = fact
                for end, (place, offset, witness) in (producer.markers.get(fact.epoch + 1) or {}).items():
                    self.compared("torn-transaction", fact.witness, witness)
                    if (end == "commit") != fact.committed:
                        self.sure_once(producer, fact.epoch + 1, self.torn_end(fact, place, offset, witness, end))
        if fact.result != "failed":
            producer.writes.clear()

    @handles(ReadFact)
    def read(self, read: ReadFact) -> None:
        """Compare the markers in a response, and the transactions that it lists as aborted, with earlier ends."""
        if read.committed_only and read.aborted:
            self.listed(read, frozenset(read.aborted))
        if read.committed_only:
            self.handed_out(read)
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
                fact = producer.ends.get(identity.epoch - 1)
                if fact is not None:
                    self.compared("torn-transaction", fact.witness, read.witness)
                    if (end == "commit") != fact.committed:
                        self.sure_once(producer, identity.epoch, self.torn_end(fact, *mine, end))
            if producer.own_from is None:
                self.expectations(producer, read.place)

    def listed(self, read: ReadFact, aborted: frozenset[tuple[int, int]]) -> None:
        """Report a transaction that a response lists as aborted although EndTxn committed it. The list has the first
        offset of the transaction, which an acknowledged batch has as well."""
        for producer_id in {one for one, _ in aborted}:
            producer = self.producers.get(producer_id)
            ended = producer and producer.expected.get(read.place)
            for written, fact in ended or ():
                if fact.committed:
                    self.compared("hidden-transaction", fact.witness, read.witness, place=read.place, doubts=("anew",))
                if not fact.committed or (producer_id, written.base) not in aborted or producer is None:
                    continue
                lists = f"lists the transaction of producer {producer_id} from {written.base} as aborted"
                says = f"a read_committed response {lists}, and EndTxn committed it"
                self.report_end("hidden-transaction", producer, read, written, fact, says, lists)

    def handed_out(self, read: ReadFact) -> None:
        """Report a response with a batch of a transaction that EndTxn aborted, unless the response has its marker."""
        ended = {batch.identity.producer_id for batch in read.batches if batch.marker}
        for batch in delivered(read):
            producer = self.producers.get(batch.identity.producer_id)
            if producer is None or batch.identity.producer_id in ended or not batch.last < read.last_stable:
                continue
            for written, fact in producer.expected.get(read.place) or ():
                if (written.base, written.epoch) == (batch.base, batch.identity.epoch):
                    self.compared("aborted-read", fact.witness, read.witness, place=read.place, doubts=("anew",))
                    if not fact.committed:
                        says = f"a read_committed reader received the batch at {batch.base}, and EndTxn aborted it"
                        shows = f"does not list the batch at {batch.base} as aborted"
                        self.report_end("aborted-read", producer, read, written, fact, says, shows)

    def report_end(
        self, check: str, producer: ProducerHistory, read: ReadFact, written: WrittenBatch, fact: TransactionEndFact,
        says: str, shows: str,
    ) -> None:  # fmt: skip
        """Report a response that contradicts the end of a transaction."""
        candidate = self.report(
            check, read.place, says, (written.witness, f"writes the batch at {written.base}"),
            (fact.witness, f"{'commits' if fact.committed else 'aborts'}, epoch {fact.epoch}"), (read.witness, shows),
            doubts=("lowered" if fact.own_epoch else "unseen", "anew", *OF_ENDS),
            logs=(TRANSACTIONS_LOG, read.place.topic),
        )  # fmt: skip
        if fact.own_epoch:
            self.sure_once(producer, fact.epoch + 1, candidate)

    def sure_once(self, producer: ProducerHistory, epoch: int, candidate: Candidate) -> None:
        """Keep the doubt "lowered" until a later transaction has an own epoch. If the cluster's transaction version was
        lowered, another transaction may have ended with this epoch."""
        if epoch <= producer.own_to:
            clear_lowered(candidate)
        elif len(producer.unsure) < MOST_UNSURE:
            producer.unsure.append((candidate, epoch))

    def make_sure(self, producer: ProducerHistory, epoch: int) -> None:
        """Clear the doubt "lowered" for epochs up to this one."""
        producer.own_to = max(producer.own_to, epoch)
        for candidate, of_epoch in producer.unsure:
            if of_epoch <= producer.own_to:
                clear_lowered(candidate)
        producer.unsure = [one for one in producer.unsure if one[1] > producer.own_to]

    def expectations(self, producer: ProducerHistory, place: PartitionPlace) -> None:
        """Compare the markers after batches of a partition with the ends of their transactions."""
        expected = producer.expected.get(place) or deque()
        for _ in range(len(expected)):
            written, fact = expected.popleft()
            marker = self.state.markers.next(place, fact.producer_id, written.last)
            if marker is None:
                expected.append((written, fact))
                continue
            self.compared("torn-transaction", written.witness, fact.witness, marker.witness)
            if (marker.end == "commit") != fact.committed:
                self.torn_end(fact, place, marker.offset, marker.witness, marker.end, written)

    def torn(
        self, producer_id: int, epoch: int, mine: tuple[TransactionEnd, MarkerPlace], other: MarkerPlace
    ) -> Candidate:
        """Report markers that commit a transaction in one partition and abort it in another."""
        end, (place, offset, witness) = mine
        opposite = "abort" if end == "commit" else "commit"
        says = f"the transaction of epoch {epoch} ends with {end} in {place} and with {opposite} in {other[0]}"
        return self.report(
            "torn-transaction", f"producer {producer_id}", says,
            (other[2], f"{opposite} at {other[0]}, offset {other[1]}"), (witness, f"{end} at {place}, offset {offset}"),
            doubts=("lowered", *OF_ENDS), logs=(TRANSACTIONS_LOG, place.topic, other[0].topic),
        )  # fmt: skip

    def torn_end(
        self, fact: TransactionEndFact, place: PartitionPlace, offset: int, witness: Witness, end: TransactionEnd,
        write: WrittenBatch | None = None,
    ) -> Candidate:  # fmt: skip
        """Report a marker that contradicts EndTxn. `write`: the batch before both, unless epochs connect them; then the
        record may lack another end in between."""
        result = "committed" if fact.committed else "aborted"
        says = f"EndTxn {result} the transaction, and {place} has a marker of the other end"
        shown = [(fact.witness, f"{result}, epoch {fact.epoch}"), (witness, f"{end} at {place}, offset {offset}")]
        if write is not None:
            shown.insert(0, (write.witness, f"{place}, up to offset {write.last}"))
        return self.report(
            "torn-transaction", f"producer {fact.producer_id}", says, *shown, place=place,
            doubts=("lowered", *OF_ENDS) if write is None else ("unseen", "anew", *OF_ENDS),
            logs=(TRANSACTIONS_LOG, place.topic),
        )  # fmt: skip


@dataclass(slots=True)
class GivenProducer:
    """First response with a producer id, and the one with the highest epoch."""

    first: ProducerFact | None = None
    highest: ProducerFact | None = None


class ProducersCheck(HistoryCheck):
    """Checks of the producer ids and epochs that InitProducerId and EndTxn return."""

    names = ("producer-id-reused", "producer-epoch-goes-back")

    def __init__(self, state: CheckState) -> None:
        super().__init__(state)
        self.producers: BoundedMap[int, GivenProducer] = self.recent(MOST_IDS, GivenProducer)

    @handles(ProducerFact)
    def given(self, fact: ProducerFact) -> None:
        if fact.producer_id < 0:
            return
        known = self.producers[fact.producer_id]
        first, highest = known.first, known.highest
        if first is None or highest is None:
            known.first = known.highest = fact
            return
        about = f"producer {fact.producer_id}"
        self.compared("producer-id-reused", first.witness, fact.witness)
        if fact.transactional_id is None or fact.transactional_id != first.transactional_id:
            # Responses that overlap may be one exchange that two proxies recorded.
            if first.witness.before(fact.witness) or fact.witness.before(first.witness):
                says = f"InitProducerId gave the producer id to {owner(first)}, and again to {owner(fact)}"
                shown = [(one.witness, f"to {owner(one)}") for one in (first, fact)]
                both = fact.transactional_id is not None and first.transactional_id is not None
                doubts = ("names",) if both and not (first.named and fact.named) else ()
                self.report("producer-id-reused", about, says, *shown, doubts=doubts)
            return
        self.compared("producer-epoch-goes-back", highest.witness, fact.witness)
        repeated = fact.epoch == highest.epoch and not (fact.expected or fact.ended)
        if (fact.epoch < highest.epoch or repeated) and highest.witness.before(fact.witness):
            says = f"{fact.witness.api} gave epoch {fact.epoch} after epoch {highest.epoch}"
            shown = [(one.witness, f"epoch {one.epoch}") for one in (highest, fact)]
            self.report("producer-epoch-goes-back", about, says, *shown, doubts=("unclean",), logs=(TRANSACTIONS_LOG,))
        if fact.epoch >= highest.epoch:
            known.highest = fact


def owner(fact: ProducerFact) -> str:
    return (
        f"transactional id {fact.transactional_id}" if fact.transactional_id is not None else "an idempotent producer"
    )


def clear_lowered(candidate: Candidate) -> None:
    candidate.doubts = tuple(doubt for doubt in candidate.doubts if doubt != "lowered")
