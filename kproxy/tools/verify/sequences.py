"""Checks of the order of batches: sequences of idempotent producers, and writes without a producer id."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from operator import attrgetter
from typing import NamedTuple

from kproxy.base.bounded_map import BoundedMap
from kproxy.base.errors import plural

from .candidate import SHORTEST_EXPIRY, Candidate, candidate_of
from .facts import (
    ALL_REPLICAS,
    LAST_OFFSET,
    BatchFact,
    BatchIdentity,
    ConnectionKey,
    PartitionPlace,
    ReadFact,
    Witness,
    WriteFact,
)
from .finding import BatchInQuestion
from .history_check import CheckState, HistoryCheck, handles
from .partition import PartitionHistory, SequencePlace, SequenceRange

SEQUENCES = 1 << 31  # sequences wrap around to 0
HALF_RANGE = SEQUENCES // 2
MOST_PRODUCERS = 100_000
MOST_GAPS = 8  # sequence gaps of one producer in a partition
MOST_BESIDE = 8  # batches on each side of one that are searched for its producer
NOT_TOLD = -1
MOST_CONNECTIONS = 20_000
MOST_WRITES = 64  # writes of a connection to one partition


class SequencesCheck(HistoryCheck):
    """Check that each sequence of a producer epoch has one offset, and that sequences ascend with offsets."""

    names = ("duplicate-sequence", "order")

    @handles(WriteFact, ReadFact)
    def batches(self, fact: WriteFact | ReadFact) -> None:
        if isinstance(fact, WriteFact) and fact.base is None:
            return
        loose = isinstance(fact, WriteFact) and fact.acks != ALL_REPLICAS
        history = self.partitions[fact.place]
        before = history.size
        for batch in fact.batches:
            identity = batch.identity
            if identity.producer_id >= 0 and identity.sequence >= 0 and not batch.marker:
                mine = SequencePlace(
                    batch.base, identity.sequence, fact.witness, fact.log_start, loose, batch.newest, batch.delta
                )  # fmt: skip
                new = self.twice(history, fact.place, identity, mine)
                self.ascends(history, fact.place, identity, mine, new)
        self.partitions.grow(history, before)

    def twice(
        self, history: PartitionHistory, place: PartitionPlace, identity: BatchIdentity, mine: SequencePlace
    ) -> bool:
        """Report a sequence at a second offset; return True if it was unknown."""
        key = identity.producer_id, identity.epoch, identity.sequence
        known = history.sequences.get(key)
        if known is None or (known.offset == mine.offset and known.loose):
            history.sequences[key] = mine
            return known is None
        lower, higher = sorted((known, mine), key=attrgetter("offset"))
        self.compared(
            "duplicate-sequence", known.witness, mine.witness, place=place, doubts=doubts_about(lower, higher)
        )  # fmt: skip
        if known.offset != mine.offset and abs(known.offset - mine.offset) < HALF_RANGE:
            self.is_twice(place, identity, identity.sequence, lower, higher)
        return False

    def is_twice(
        self, place: PartitionPlace, identity: BatchIdentity, sequence: int, lower: SequencePlace, higher: SequencePlace
    ) -> None:
        """Report two batches with the same sequence."""
        says = (f"sequence {sequence} of producer {identity.producer_id}, epoch {identity.epoch}, is at offsets "
                f"{lower.offset + (sequence - lower.sequence) % SEQUENCES} and {higher.offset}")  # fmt: skip
        shown = [(one.witness, f"at {one.offset}") for one in (lower, higher)]
        question = BatchInQuestion(place, [(one.witness.number, one.offset) for one in (lower, higher)])
        doubts = doubts_about(lower, higher)
        candidate = self.report("duplicate-sequence", place, says, *shown, doubts=doubts, batch=question)
        self.state.expiring[identity.producer_id].doubt(candidate)

    def ascends(
        self, history: PartitionHistory, place: PartitionPlace, identity: BatchIdentity, mine: SequencePlace, new: bool
    ) -> None:
        """Compare a batch with the first and last one of its producer epoch. A new one between them is compared with
        its neighbours."""
        key = identity.producer_id, identity.epoch
        one = history.producers.get(key)
        if one is None:
            history.producers[key] = SequenceRange(mine, mine)
            return
        history.producers[key] = one  # counts as a use
        if mine.offset > one.highest.offset:
            self.compare(place, identity, one.highest, mine)
            one.highest = mine
        elif mine.offset < one.lowest.offset:
            self.compare(place, identity, mine, one.lowest)
            one.lowest = mine
        elif new:
            below, above = (beside(history, identity, mine.offset, upwards=upwards) for upwards in (False, True))
            if below is not None:
                self.compare(place, identity, below, mine)
            if above is not None:
                self.compare(place, identity, mine, above)

    def compare(
        self, place: PartitionPlace, identity: BatchIdentity, lower: SequencePlace, higher: SequencePlace
    ) -> None:
        """Report a lower sequence at a higher offset, or one that the batch below contains."""
        doubts = doubts_about(lower, higher)
        for check in self.names:
            self.compared(check, lower.witness, higher.witness, place=place, doubts=doubts)
        difference, apart = higher.sequence - lower.sequence, higher.offset - lower.offset
        if 0 < difference % SEQUENCES <= lower.delta and lower.delta < apart < HALF_RANGE:
            self.is_twice(place, identity, higher.sequence, lower, higher)
            return
        if difference >= 0 or difference < -HALF_RANGE or apart >= HALF_RANGE:
            return  # between batches that far apart sequences may have begun again at 0 behind 2³¹ − 1
        says = (f"producer {identity.producer_id}, epoch {identity.epoch}: sequence {lower.sequence} is at offset "
                f"{lower.offset}, and sequence {higher.sequence} after it, at {higher.offset}")  # fmt: skip
        shown = [(one.witness, f"sequence {one.sequence} at {one.offset}") for one in (lower, higher)]
        candidate = self.report("order", place, says, *shown, doubts=doubts)
        self.state.expiring[identity.producer_id].doubt(candidate)


def beside(history: PartitionHistory, identity: BatchIdentity, offset: int, *, upwards: bool) -> SequencePlace | None:
    """Nearest sequence of the same producer epoch above or below an offset, within MOST_BESIDE batches."""
    batches = history.batches
    near = batches.between(offset + 1, LAST_OFFSET) if upwards else batches.down_from(offset)
    for known in islice(near, MOST_BESIDE):
        other, witness = known.batch.identity, known.read or known.written
        same = (other.producer_id, other.epoch) == (identity.producer_id, identity.epoch) and other.sequence >= 0
        if same and witness is not None and not known.batch.marker:
            loose = known.read is None and known.acks != ALL_REPLICAS
            batch = known.batch
            return SequencePlace(batch.base, other.sequence, witness, NOT_TOLD, loose, batch.newest, batch.delta)
    return None


def doubts_about(lower: SequencePlace, higher: SequencePlace) -> tuple[str, ...]:
    """Lawful causes of two sequences of a producer. A broker drops the state of a producer some time after the
    timestamp of its last batch. Before Kafka 2.5 it did so when the records were deleted. Neither has happened if the
    batches are recent and the log still begins before them."""
    doubts = ["anew", "unclean"]
    ended = max(one.witness.ended or one.witness.began for one in (lower, higher))
    newest = min(lower.newest, higher.newest)
    if not 0 <= higher.log_start <= lower.offset or newest < 0 or ended - newest / 1000 > SHORTEST_EXPIRY:
        doubts.append("restart")
    if lower.loose or higher.loose:
        doubts.append("truncation")
    return tuple(doubts)


@dataclass(slots=True)
class SequenceGap:
    """Sequences of an epoch that no accepted batch has, with the writes before and after."""

    epoch: int
    first: int
    count: int
    before: Witness
    after: Witness


@dataclass(slots=True)
class AcceptedSequences:
    """Accepted batches of one producer id in one partition. `next`: expected sequence, -1 for none; `offset`: of the
    last batch, with its write."""

    epoch: int = -1
    next: int = -1
    offset: int = -1
    witness: Witness | None = None
    gaps: list[SequenceGap] = field(default_factory=list)

    def fill(self, batch: BatchFact) -> None:
        """Remove the sequences of a batch from the gaps. A gap around them keeps only its part below them."""
        for gap in self.gaps:
            at = (batch.identity.sequence - gap.first) % SEQUENCES
            if batch.identity.epoch == gap.epoch and 0 <= at < gap.count:
                filled = min(batch.identity.records, gap.count) if at == 0 else 0
                gap.first, gap.count = (gap.first + filled) % SEQUENCES, (at or gap.count) - filled
        self.gaps = [gap for gap in self.gaps if gap.count]


class SequenceGapsCheck(HistoryCheck):
    """Check that the accepted batches of an idempotent producer have consecutive sequences. A batch fills a gap at any
    time, even if its write has no result, or only a read contains it."""

    names = ("sequence-gap",)

    def __init__(self, state: CheckState) -> None:
        super().__init__(state)
        self.accepted: BoundedMap[tuple[PartitionPlace, int, int], AcceptedSequences] = self.recent(
            MOST_PRODUCERS, AcceptedSequences, lambda one: 800 + 1000 * len(one.gaps)
        )

    @handles(WriteFact, ReadFact)
    def batches(self, fact: WriteFact | ReadFact) -> None:
        """Add the batches of a write that may be stored, or of a response."""
        era = self.partitions.era(fact.place.topic)
        if isinstance(fact, WriteFact) and fact.result == "failed":
            return
        for batch in fact.batches:
            key = fact.place, era, batch.identity.producer_id
            if batch.identity.producer_id < 0 or batch.identity.sequence < 0:
                continue
            known = self.accepted[key] if isinstance(fact, WriteFact) else self.accepted.get(key)
            if known is not None and known.gaps:
                known.fill(batch)
            if known is not None and isinstance(fact, WriteFact) and fact.base is not None:
                self.follows(known, fact.witness, batch)

    def follows(self, known: AcceptedSequences, witness: Witness, batch: BatchFact) -> None:
        """Keep a gap between a batch and the one before it. A new epoch starts at sequence 0."""
        identity = batch.identity
        if batch.base <= known.offset or identity.epoch < known.epoch:
            return  # a retry, or a response that came later than that of the next batch
        if known.witness is not None:
            self.compared("sequence-gap", known.witness, witness)
        expected = known.next if identity.epoch == known.epoch else 0
        count = (identity.sequence - expected) % SEQUENCES
        if known.witness is not None and 0 < count < HALF_RANGE:
            known.gaps.append(SequenceGap(identity.epoch, expected, count, known.witness, witness))
            self.state.forgot["sequence-gap"] += len(known.gaps) > MOST_GAPS
            del known.gaps[MOST_GAPS:]
        known.epoch, known.next = identity.epoch, (identity.sequence + identity.records) % SEQUENCES
        known.offset, known.witness = batch.base, witness

    def pending(self) -> Iterator[Candidate]:
        for (place, _, producer_id), known in self.accepted.items():
            for gap in known.gaps:
                following = (gap.first + gap.count) % SEQUENCES
                says = (f"producer {producer_id}, epoch {gap.epoch}: sequence {following} was accepted, and no "
                        f"accepted batch has {plural(gap.count, 'sequence')} from {gap.first} on")  # fmt: skip
                shown = (gap.before, "the last batch before"), (gap.after, f"sequence {following}")
                doubts = "restart", "unseen", "anew"
                yield candidate_of("sequence-gap", place, says, *shown, level="suspect", doubts=doubts)


class PlacedWrite(NamedTuple):
    base: int
    acks: int
    witness: Witness


class ConnectionOrderCheck(HistoryCheck):
    """Check that writes of a connection without a producer id have ascending offsets."""

    names = ("order",)

    def __init__(self, state: CheckState) -> None:
        super().__init__(state)
        self.writes: BoundedMap[tuple[ConnectionKey, PartitionPlace, int], list[PlacedWrite]] = self.recent(
            MOST_CONNECTIONS, list[PlacedWrite], lambda writes: 600 + 600 * len(writes)
        )

    @handles(WriteFact)
    def written(self, write: WriteFact) -> None:
        """Compare the offset of a write with those of earlier writes on its connection."""
        if write.base is None or not write.batches or any(one.identity.producer_id >= 0 for one in write.batches):
            return
        key = write.witness.connection, write.place, self.partitions.era(write.place.topic)
        earlier = self.writes[key]  # by the time of their requests, of which each has a higher offset than before
        mine = PlacedWrite(write.base, write.acks, write.witness)
        began = write.witness.began
        at_time = bisect_left(earlier, began, key=attrgetter("witness.began"))
        if at_time:
            self.compare(write.place, earlier[at_time - 1], mine)
        if not earlier or (mine.base > earlier[-1].base and began >= earlier[-1].witness.began):
            earlier.append(mine)
            if len(earlier) > MOST_WRITES:
                del earlier[: MOST_WRITES // 2]

    def compare(self, place: PartitionPlace, before: PlacedWrite, write: PlacedWrite) -> None:
        """Report a write with a lower offset than one that was sent earlier."""
        doubts = ["anew", "unclean"]
        if not before.witness.before(write.witness):
            doubts.append("inflight")
        if before.acks != ALL_REPLICAS or write.acks != ALL_REPLICAS:
            doubts.append("truncation")
        self.compared("order", before.witness, write.witness, place=place, doubts=doubts)
        if before.base <= write.base:
            return
        says = f"a write was given offset {write.base}, and one that was sent before it {before.base}"
        shown = (before.witness, f"base_offset {before.base}"), (write.witness, f"base_offset {write.base}")
        self.report("order", place, says, *shown, doubts=doubts)
