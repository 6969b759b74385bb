"""Checks of the order of batches: sequences of producers with an id, and of writes without one."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from itertools import islice
from typing import NamedTuple

from .facts import ALL_REPLICAS, LAST_OFFSET, BatchIdentity, Fact, PartitionPlace, ReadFact, Witness, WriteFact
from .finding import BatchInQuestion, Evidence
from .history_check import CheckState, FactHandler, HistoryCheck
from .partition import PartitionHistory, SequencePlace, SequenceRange
from .recent import RecentMap
from .suspicion import Suspicion

HALF_RANGE = 1 << 30
"""Half of the range of sequences, which begin again at 0 behind 2³¹ − 1."""
MOST_BESIDE = 8
"""Batches at each side of one that are looked at for its producer's."""
NOT_TOLD = -1
MOST_CONNECTIONS = 20_000
MOST_WRITES = 64
"""Writes of a connection to a partition that a later one is compared with."""


class SequencesCheck(HistoryCheck):
    """Check that sequences of a producer id and epoch are in one place each, and ascend with the offsets."""

    names = ("duplicate-sequence", "order")

    def handlers(self) -> Mapping[type[Fact], FactHandler]:
        """Return what is to be called with each kind of fact."""
        return {WriteFact: self.written, ReadFact: self.read}

    def written(self, write: WriteFact) -> None:
        """Look at the sequences of a write whose offset is known."""
        if write.base is not None:
            self.batches(write, loose=write.acks != ALL_REPLICAS)

    def read(self, read: ReadFact) -> None:
        """Look at the sequences in an answer."""
        self.batches(read, loose=False)

    def batches(self, fact: WriteFact | ReadFact, *, loose: bool) -> None:
        """Look at the sequences of batches whose offsets are known."""
        history = self.partitions[fact.place]
        before = history.size
        for batch in fact.batches:
            identity = batch.identity
            if identity.producer_id >= 0 and identity.sequence >= 0 and not batch.marker:
                self.state.looked["duplicate-sequence"] += 1
                self.state.looked["order"] += 1
                mine = SequencePlace(batch.base, identity.sequence, fact.witness, fact.log_start, loose)
                new = self.twice(history, fact.place, identity, mine)
                self.ascends(history, fact.place, identity, mine, new)
        self.partitions.grow(history, before)

    def twice(
        self, history: PartitionHistory, place: PartitionPlace, identity: BatchIdentity, mine: SequencePlace
    ) -> bool:
        """Keep a suspicion if a batch's sequence is known at another offset; return True if it was not known at all."""
        key = identity.producer_id, identity.epoch, identity.sequence
        known = history.sequences.get(key)
        if known is None or (known.offset == mine.offset and known.loose):
            history.sequences[key] = mine
            return known is None
        if known.offset == mine.offset or abs(known.offset - mine.offset) >= HALF_RANGE:
            return False
        lower, higher = sorted((known, mine), key=offset_of)
        self.suspect(
            Suspicion(
                "duplicate-sequence",
                "proved",
                str(place),
                f"sequence {identity.sequence} of producer {identity.producer_id}, epoch {identity.epoch}, "
                f"is at offsets {lower.offset} and {higher.offset}",
                [Evidence(one.witness, f"at {one.offset}") for one in (known, mine)],
                doubts_about(lower, higher),
                place,
                BatchInQuestion(place, [(one.witness.number, one.offset) for one in (known, mine)]),
            )
        )
        return False

    def ascends(
        self, history: PartitionHistory, place: PartitionPlace, identity: BatchIdentity, mine: SequencePlace, new: bool
    ) -> None:
        """Compare a batch with the first and the last one of its producer id and epoch; one between them, that is new,
        with those beside it."""
        ranges = history.producers[identity.producer_id, identity.epoch]
        if not ranges:
            ranges.append(SequenceRange(mine, mine))
            return
        one = ranges[0]
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
        """Keep a suspicion if the sequence at the higher offset is the lower one."""
        difference = higher.sequence - lower.sequence
        if difference >= 0 or difference < -HALF_RANGE or higher.offset - lower.offset >= HALF_RANGE:
            return  # between batches that far apart sequences may have begun again at 0 behind 2³¹ − 1
        self.suspect(
            Suspicion(
                "order",
                "proved",
                str(place),
                f"producer {identity.producer_id}, epoch {identity.epoch}: sequence {lower.sequence} is at offset "
                f"{lower.offset}, and sequence {higher.sequence} behind it, at {higher.offset}",
                [Evidence(one.witness, f"sequence {one.sequence} at {one.offset}") for one in (lower, higher)],
                doubts_about(lower, higher),
                place,
            )
        )


def beside(history: PartitionHistory, identity: BatchIdentity, offset: int, *, upwards: bool) -> SequencePlace | None:
    """Return the sequence that the same producer id and epoch has next to an offset, if it is near."""
    batches = history.batches
    near = batches.between(offset + 1, LAST_OFFSET) if upwards else batches.down_from(offset)
    for known in islice(near, MOST_BESIDE):
        other, witness = known.batch.identity, known.read or known.written
        same = (other.producer_id, other.epoch) == (identity.producer_id, identity.epoch) and other.sequence >= 0
        if same and witness is not None and not known.batch.marker:
            loose = known.read is None and known.acks != ALL_REPLICAS
            return SequencePlace(known.batch.base, other.sequence, witness, NOT_TOLD, loose)
    return None


def offset_of(sequence: SequencePlace) -> int:
    """Return the offset that a sequence is at."""
    return sequence.offset


def doubts_about(lower: SequencePlace, higher: SequencePlace) -> tuple[str, ...]:
    """Return what else than a broken guarantee may have put two sequences of a producer where they are. A producer
    begins again once what it wrote is deleted, which it was not if the log began before it when the other one came."""
    doubts = ["anew"]
    if not 0 <= higher.log_start <= lower.offset:
        doubts.append("restart")
    if lower.loose or higher.loose:
        doubts.append("truncation")
    return tuple(doubts)


class PlacedWrite(NamedTuple):
    """Write of a connection with the offset that it was given."""

    base: int
    acks: int
    witness: Witness


def began_at(write: PlacedWrite) -> float:
    """Return when a write was sent."""
    return write.witness.began


class ConnectionOrderCheck(HistoryCheck):
    """Check that what a connection wrote without a producer id is in the log in the order in which it was sent."""

    names = ("order",)

    def __init__(self, state: CheckState) -> None:
        super().__init__(state)
        self.writes: RecentMap[tuple[tuple[str, int], PartitionPlace, int], list[PlacedWrite]] = self.recent(
            MOST_CONNECTIONS, list[PlacedWrite], lambda writes: 600 + 600 * len(writes)
        )

    def handlers(self) -> Mapping[type[Fact], FactHandler]:
        """Return what is to be called with each kind of fact."""
        return {WriteFact: self.written}

    def written(self, write: WriteFact) -> None:
        """Compare the offset of a write with those of earlier ones of its connection."""
        if write.base is None or not write.batches or any(one.identity.producer_id >= 0 for one in write.batches):
            return
        self.state.looked["order"] += 1
        key = write.witness.connection, write.place, self.partitions.era(write.place.topic)
        earlier = self.writes[key]  # by the time of their requests, of which each has a higher offset than before
        mine = PlacedWrite(write.base, write.acks, write.witness)
        began = write.witness.began
        at_time = bisect_left(earlier, began, key=began_at)
        if at_time and earlier[at_time - 1].base > mine.base:
            self.found(write.place, earlier[at_time - 1], mine)
        if not earlier or (mine.base > earlier[-1].base and began >= earlier[-1].witness.began):
            earlier.append(mine)
            if len(earlier) > MOST_WRITES:
                del earlier[: MOST_WRITES // 2]

    def found(self, place: PartitionPlace, before: PlacedWrite, write: PlacedWrite) -> None:
        """Keep a suspicion that a write is before one that was sent earlier."""
        doubts = ["anew"]
        if not before.witness.before(write.witness):
            doubts.append("inflight")
        if before.acks != ALL_REPLICAS or write.acks != ALL_REPLICAS:
            doubts.append("truncation")
        self.suspect(
            Suspicion(
                "order",
                "proved",
                str(place),
                f"a write was given offset {write.base}, and one that was sent before it {before.base}",
                [
                    Evidence(before.witness, f"base_offset {before.base}"),
                    Evidence(write.witness, f"base_offset {write.base}"),
                ],
                tuple(doubts),
                place,
            )
        )
