"""History of one partition: which batches are where, who wrote them, who read them, and which stretches are known."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import NamedTuple

from .facts import LAST_OFFSET, BatchFact, BatchIdentity, PartitionPlace, Witness
from .lru_map import RecentMap
from .offsets import KnownOffsets, OffsetIndex

ENTRY_SIZE = 800
"""Bytes that a batch takes with its identity, and with its share of the exchanges that brought it."""
PARTITION_SIZE = 20_000
SMALL = 64
"""Entries up to which the history of a partition is forgotten as a whole."""
MOST_SENDS = 16
"""Writes of one batch that are remembered; of more, it is only counted how many were acknowledged."""
MOST_PLACES_OF_BATCH = 16
STRETCHES = 8
"""Known stretches of offsets that take as much room as a batch."""
LOOSE = 20_000
"""Identities of a partition that are remembered beyond the batches whose offsets are known."""

StoredIdentity = tuple[BatchIdentity, int]
"""Identity of a batch, with its highest timestamp: among a million checksums some are equal by chance."""
SequenceKey = tuple[int, int, int]
"""Producer id, epoch and first sequence of a batch."""


@dataclass(slots=True)
class KnownBatch:
    """Batch whose offset is known, as it is stored if that was read. `written`: the first write of it that was
    acknowledged, with its `acks`; `read`: the first Fetch that brought it. `sent`: the form in which it was written, if
    it is stored in another. `stamped`: the broker put its own time into it. `conflicts`: other batches that were found
    in its place."""

    batch: BatchFact
    written: Witness | None = None
    acks: int = 0
    read: Witness | None = None
    stamped: bool = False
    conflicts: int = 0
    sent: BatchFact | None = None


@dataclass(slots=True)
class BatchCopies:
    """Copies of one batch of a producer without idempotence, by their `offsets`. `sends`: the first writes of it.
    `acknowledged`, `unanswered`: numbers of writes with a base offset, and of those that may be stored or not."""

    offsets: tuple[int, ...] = ()
    acknowledged: int = 0
    unanswered: int = 0
    sends: tuple[Witness, ...] = ()
    reads: tuple[Witness, ...] = ()

    def send(self, witness: Witness, ok: bool) -> None:
        """Note a write of the batch, and whether it was acknowledged."""
        if ok:
            self.acknowledged += 1
        else:
            self.unanswered += 1
        if len(self.sends) < MOST_SENDS:
            self.sends += (witness,)

    def add_offset(self, offset: int) -> bool:
        """Note where the batch is; return True if that is a second place."""
        if offset in self.offsets or len(self.offsets) >= MOST_PLACES_OF_BATCH:
            return False
        self.offsets += (offset,)
        return len(self.offsets) > 1


class SequencePlace(NamedTuple):
    """Sequence at an offset. `log_start`: where the log began then, -1 if the response has no such field. `loose`: the
    batch was acknowledged by its leader only. `newest`: highest timestamp of the batch in ms, below 0 for none."""

    offset: int
    sequence: int
    witness: Witness
    log_start: int
    loose: bool
    newest: int


@dataclass(slots=True)
class SequenceRange:
    """First and last batch, by offset, of one producer id and epoch."""

    lowest: SequencePlace
    highest: SequencePlace


@dataclass(slots=True)
class PartitionHistory:
    """History of one partition. `covered`: stretches of offsets without an unknown batch. `unread`: acknowledged
    batches without a read. `acknowledged`: the last write with an offset, and its acks. `begin`: the lowest offset that
    certainly was given during the record. Batches below it may be from before the record."""

    era: int = 0
    batches: OffsetIndex[KnownBatch] = field(default_factory=OffsetIndex)
    covered: KnownOffsets = field(default_factory=KnownOffsets)
    copies: OrderedDict[StoredIdentity, BatchCopies] = field(default_factory=OrderedDict)
    sequences: OrderedDict[SequenceKey, SequencePlace] = field(default_factory=OrderedDict)
    producers: RecentMap[tuple[int, int], list[SequenceRange]] = field(
        default_factory=lambda: RecentMap(1000, list[SequenceRange])
    )
    unread: int = 0
    acknowledged: tuple[Witness, int] | None = None
    begin: int = LAST_OFFSET

    @property
    def size(self) -> int:
        stretches = len(self.producers) + len(self.covered) // STRETCHES
        return len(self.batches) + len(self.copies) + len(self.sequences) + stretches

    def evict(self) -> int:
        """Forget the lower half of its batches; return how many entries that were."""
        before = self.size
        for known in self.batches.take_lowest(max(len(self.batches) // 2, 1)):
            batch = known.batch
            self.copies.pop((batch.identity, batch.newest), None)
            key = batch.identity.producer_id, batch.identity.epoch, batch.identity.sequence
            sequence = self.sequences.get(key)
            if sequence is not None and sequence.offset == batch.base:
                del self.sequences[key]
            self.unread -= known.written is not None and known.read is None
        for _ in range(len(self.producers) // 2):
            self.producers.drop_oldest()
        self.covered.drop(len(self.covered) // 2)
        while len(self.copies) > len(self.batches) + LOOSE // 2:
            self.copies.popitem(last=False)
        while len(self.sequences) > len(self.batches) + LOOSE // 2:
            self.sequences.popitem(last=False)
        return before - self.size


class PartitionHistories:
    """Histories of all partitions of a record, within so many bytes. `evicted`: entries that were forgotten.

    `eras`: how often a topic was made anew, which begins the histories of its partitions again.
    """

    def __init__(self, memory: int) -> None:
        self.limit(memory)
        self.histories: RecentMap[PartitionPlace, PartitionHistory] = RecentMap(
            max(memory // PARTITION_SIZE, 100), PartitionHistory, self._ended
        )
        self.eras: RecentMap[str, list[int]] = RecentMap(100_000, lambda: [0])
        self.used = 0
        self.evicted = 0

    def limit(self, memory: int) -> None:
        """Remember as much as fits into so many bytes, from the next batch on."""
        self.most = max(memory // ENTRY_SIZE, 1000)

    def __getitem__(self, place: PartitionPlace) -> PartitionHistory:
        history = self.histories[place]
        era = self.era(place.topic)
        if history.era != era:
            self.used -= history.size
            history = self.histories.entries[place] = PartitionHistory(era)
        return history

    def era(self, topic: str) -> int:
        """Return how often the topic has been made anew, as far as the record tells."""
        entry = self.eras.get(topic)
        return 0 if entry is None else entry[0]

    def begin_era(self, topic: str) -> None:
        self.eras[topic][0] += 1

    def grow(self, history: PartitionHistory, before: int) -> None:
        """Count what a history has grown by since its size was `before`, and forget the oldest if there is no room."""
        self.used += history.size - before
        if len(history.copies) > len(history.batches) + LOOSE:
            history.copies.popitem(last=False)
            self.used -= 1
            self.evicted += 1
        if len(history.sequences) > len(history.batches) + LOOSE:
            history.sequences.popitem(last=False)
            self.used -= 1
            self.evicted += 1
        while self.used > self.most:
            oldest = next(self.histories.values())
            if oldest.size <= SMALL and oldest is not history:
                self.histories.drop_oldest()
                continue
            freed = oldest.evict()
            self.evicted += freed
            self.used -= freed
            if not freed:
                return

    def _ended(self, history: PartitionHistory) -> None:
        self.used -= history.size
        self.evicted += history.size
