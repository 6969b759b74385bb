"""History of one partition: the batch at each offset, the stretches of known offsets, and transaction markers."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Generic, NamedTuple, TypeVar

from .facts import LAST_OFFSET, BatchFact, BatchIdentity, PartitionPlace, TransactionEnd, Witness
from .lru_map import RecentMap, SharedRoom

OffsetValue = TypeVar("OffsetValue")
CHUNK = 2048
MOST_RANGES = 10_000
"""Stretches of a partition that are remembered apart; a record without gaps has one."""


class OffsetIndex(Generic[OffsetValue]):
    """Map from offsets to values, in the order of the offsets."""

    __slots__ = ("chunks", "firsts", "values")

    def __init__(self) -> None:
        self.values: dict[int, OffsetValue] = {}
        self.chunks: list[list[int]] = []
        self.firsts: list[int] = []

    def __len__(self) -> int:
        return len(self.values)

    def get(self, offset: int) -> OffsetValue | None:
        """Return the value at exactly this offset, None if there is none."""
        return self.values.get(offset)

    def put(self, offset: int, value: OffsetValue) -> None:
        new = offset not in self.values
        self.values[offset] = value
        if not new:
            return
        if not self.chunks or (offset > self.chunks[-1][-1] and len(self.chunks[-1]) >= CHUNK):
            self.chunks.append([offset])
            self.firsts.append(offset)
            return
        at = max(bisect_right(self.firsts, offset) - 1, 0)
        chunk = self.chunks[at]
        insort(chunk, offset)
        self.firsts[at] = chunk[0]
        if len(chunk) > 2 * CHUNK:
            self.chunks[at : at + 1] = [chunk[:CHUNK], chunk[CHUNK:]]
            self.firsts[at : at + 1] = [chunk[0], chunk[CHUNK]]

    def below(self, offset: int) -> OffsetValue | None:
        """Return the value at the highest offset that is less than this one; None if there is none."""
        at = bisect_left(self.firsts, offset) - 1
        if at < 0:
            return None
        chunk = self.chunks[at]
        return self.values[chunk[bisect_left(chunk, offset) - 1]]

    def down_from(self, offset: int) -> Iterator[OffsetValue]:
        """Yield the values at the offsets that are less than this one, in descending order."""
        for at in range(bisect_left(self.firsts, offset) - 1, -1, -1):
            chunk = self.chunks[at]
            for lower in reversed(chunk[: bisect_left(chunk, offset)]):
                yield self.values[lower]

    def between(self, first: int, last: int) -> Iterator[OffsetValue]:
        """Yield the values at the offsets from `first` to `last`, both included, in ascending order."""
        for at in range(max(bisect_right(self.firsts, first) - 1, 0), len(self.chunks)):
            chunk = self.chunks[at]
            if chunk[0] > last:
                return
            for offset in chunk[bisect_left(chunk, first) : bisect_right(chunk, last)]:
                yield self.values[offset]

    def take_lowest(self, count: int) -> list[OffsetValue]:
        """Remove the values at the lowest offsets, about `count` of them, and return them."""
        removed: list[OffsetValue] = []
        while self.chunks and len(removed) < count:
            removed += (self.values.pop(offset) for offset in self.chunks.pop(0))
            del self.firsts[0]
        return removed


class KnownOffsets:
    """Set of offsets as stretches. `dropped`: stretches that were forgotten, the lowest first."""

    __slots__ = ("dropped", "firsts", "lasts")

    def __init__(self) -> None:
        self.firsts: list[int] = []
        self.lasts: list[int] = []
        self.dropped = 0

    def add(self, first: int, last: int) -> None:
        """Add the offsets from `first` to `last`, both included."""
        if last < first:
            return
        begin = bisect_left(self.lasts, first - 1)
        end = bisect_right(self.firsts, last + 1)
        if begin < end:
            first, last = min(first, self.firsts[begin]), max(last, self.lasts[end - 1])
        self.firsts[begin:end] = [first]
        self.lasts[begin:end] = [last]
        if len(self.firsts) > MOST_RANGES:
            self.drop(MOST_RANGES // 2)

    def __len__(self) -> int:
        return len(self.firsts)

    def drop(self, count: int) -> None:
        """Forget so many stretches, the lowest."""
        del self.firsts[:count], self.lasts[:count]
        self.dropped += count

    def holds(self, first: int, last: int) -> bool:
        """Return True if all offsets from `first` to `last` are in the set."""
        at = bisect_right(self.firsts, first) - 1
        return at >= 0 and self.lasts[at] >= last


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


MOST_PRODUCERS = 20_000
MOST_MARKERS = 1000
"""Markers of one producer in a partition that are remembered; the lowest go first."""


class SeenMarker(NamedTuple):
    """Marker of a transaction at an offset, with the epoch that stands in its batch."""

    offset: int
    end: TransactionEnd
    epoch: int
    witness: Witness


@dataclass(slots=True)
class ProducerMarkers:
    """Markers of one producer id in one partition, by offset. `lowest`: those up to it may have been forgotten."""

    place: PartitionPlace | None = None
    markers: list[SeenMarker] = field(default_factory=list)
    lowest: int = -1


class TransactionMarkers:
    """Markers of all producers in all partitions. A marker is *the next* of a batch's producer only if all that is
    between them is known, and no marker among it was forgotten: another one may be there. `floors`: by partition, the
    highest offset of those that were forgotten with their producers."""

    def __init__(self, partitions: PartitionHistories, room: SharedRoom) -> None:
        self.partitions, self.forgotten = partitions, 0
        self.by_producer: RecentMap[tuple[PartitionPlace, int, int], ProducerMarkers] = RecentMap(
            MOST_PRODUCERS, ProducerMarkers, self._forget, room=room,
            weigh=lambda known: 500 + 500 * len(known.markers),
        )  # fmt: skip
        self.floors: dict[PartitionPlace, int] = {}
        self.floor = -1

    def of(self, place: PartitionPlace, producer_id: int) -> ProducerMarkers:
        known = self.by_producer[place, self.partitions.era(place.topic), producer_id]
        if known.place is None:
            known.place, known.lowest = place, max(self.floors.get(place, -1), self.floor)
        return known

    def _forget(self, known: ProducerMarkers) -> None:
        if known.place is None or not known.markers:
            return
        if known.place not in self.floors and len(self.floors) >= MOST_PRODUCERS:
            self.floor = max(self.floor, *self.floors.values())
            self.floors.clear()
        offset = known.markers[-1].offset
        self.floors[known.place] = max(self.floors.get(known.place, -1), offset)

    def add(self, place: PartitionPlace, producer_id: int, marker: SeenMarker) -> bool:
        """Take in a marker; return True if it is a new one."""
        known = self.of(place, producer_id)
        at = bisect_right(known.markers, marker.offset, key=attrgetter("offset"))
        if marker.offset <= known.lowest or (at and known.markers[at - 1].offset == marker.offset):
            return False
        insort(known.markers, marker, key=attrgetter("offset"))
        if len(known.markers) > MOST_MARKERS:
            known.lowest = known.markers[MOST_MARKERS // 2 - 1].offset
            del known.markers[: MOST_MARKERS // 2]
            self.forgotten += MOST_MARKERS // 2
        return True

    def next(self, place: PartitionPlace, producer_id: int, offset: int) -> SeenMarker | None:
        """Return the next marker of a producer behind an offset; None as long as it is not certain which that is."""
        known = self.of(place, producer_id)
        if offset <= known.lowest:
            return None
        at = bisect_right(known.markers, offset, key=attrgetter("offset"))
        if at == len(known.markers):
            return None
        marker = known.markers[at]
        return marker if self.partitions[place].covered.holds(offset, marker.offset) else None
