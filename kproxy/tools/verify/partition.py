"""History of one partition: the batch at each offset, the stretches of known offsets, and transaction markers."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Generic, NamedTuple, TypeVar

from kproxy.base.bounded_map import BoundedMap, SharedBudget

from .facts import LAST_OFFSET, BatchFact, BatchIdentity, PartitionPlace, TransactionEnd, Witness

OffsetValue = TypeVar("OffsetValue")
CHUNK = 2048
MOST_RANGES = 10_000  # ranges of a partition; a record without gaps has one


class OffsetIndex(Generic[OffsetValue]):
    """Map that is sorted by offset."""

    __slots__ = ("chunks", "firsts", "values")

    def __init__(self) -> None:
        self.values: dict[int, OffsetValue] = {}
        self.chunks: list[list[int]] = []
        self.firsts: list[int] = []

    def __len__(self) -> int:
        return len(self.values)

    def get(self, offset: int) -> OffsetValue | None:
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
        """Value at the highest lower offset, None if none."""
        at = bisect_left(self.firsts, offset) - 1
        if at < 0:
            return None
        chunk = self.chunks[at]
        return self.values[chunk[bisect_left(chunk, offset) - 1]]

    def down_from(self, offset: int) -> Iterator[OffsetValue]:
        """Yield the values at lower offsets in descending order."""
        for at in range(bisect_left(self.firsts, offset) - 1, -1, -1):
            chunk = self.chunks[at]
            for lower in reversed(chunk[: bisect_left(chunk, offset)]):
                yield self.values[lower]

    def between(self, first: int, last: int) -> Iterator[OffsetValue]:
        """Yield the values at `first` to `last` (inclusive) in ascending order."""
        for at in range(max(bisect_right(self.firsts, first) - 1, 0), len(self.chunks)):
            chunk = self.chunks[at]
            if chunk[0] > last:
                return
            for offset in chunk[bisect_left(chunk, first) : bisect_right(chunk, last)]:
                yield self.values[offset]

    def take_lowest(self, count: int) -> list[OffsetValue]:
        """Remove and return about `count` values at the lowest offsets."""
        removed: list[OffsetValue] = []
        while self.chunks and len(removed) < count:
            removed += (self.values.pop(offset) for offset in self.chunks.pop(0))
            del self.firsts[0]
        return removed


class KnownOffsets:
    """Set of offsets as ranges. `dropped`: evicted ranges; the lowest are evicted first."""

    __slots__ = ("dropped", "firsts", "lasts")

    def __init__(self) -> None:
        self.firsts: list[int] = []
        self.lasts: list[int] = []
        self.dropped = 0

    def add(self, first: int, last: int) -> None:
        """Add `first` to `last`, inclusive."""
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
        del self.firsts[:count], self.lasts[:count]
        self.dropped += count

    def holds(self, first: int, last: int) -> bool:
        at = bisect_right(self.firsts, first) - 1
        return at >= 0 and self.lasts[at] >= last


ENTRY_SIZE = 800  # bytes of a batch with its identity and its share of the exchanges
PARTITION_SIZE = 20_000
SMALL = 64  # maximum size of a history that is evicted as a whole
MOST_SENDS = 16  # stored writes of one batch; later ones are counted only
MOST_PLACES_OF_BATCH = 16
STRETCHES = 8  # ranges of known offsets that take as much memory as a batch
LOOSE = 20_000  # batch identities of a partition without a known offset

# Identity with the highest timestamp, since some of a million checksums are equal by chance.
StoredIdentity = tuple[BatchIdentity, int]
SequenceKey = tuple[int, int, int]  # producer id, epoch and first sequence of a batch


@dataclass(slots=True)
class KnownBatch:
    """Batch with a known offset, in its stored form if it was read. `written`: its first acknowledged write, with its
    `acks`. `read`: the first Fetch that returned it. `sent`: its form in the write, if the stored one differs.
    `stamped`: the broker wrote its own time into it. `conflicts`: number of other batches found at its offsets."""

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
        if ok:
            self.acknowledged += 1
        else:
            self.unanswered += 1
        if len(self.sends) < MOST_SENDS:
            self.sends += (witness,)

    def add_offset(self, offset: int) -> bool:
        """Add an offset of the batch; return True if it is not the first."""
        if offset in self.offsets or len(self.offsets) >= MOST_PLACES_OF_BATCH:
            return False
        self.offsets += (offset,)
        return len(self.offsets) > 1


class SequencePlace(NamedTuple):
    """Sequence at an offset. `log_start`: where the log began then, -1 if the response has no such field. `loose`: the
    batch was acknowledged by its leader only. `newest`: highest timestamp of the batch in ms, below 0 for none.
    `delta`: last sequence less the first."""

    offset: int
    sequence: int
    witness: Witness
    log_start: int
    loose: bool
    newest: int
    delta: int


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
    producers: BoundedMap[tuple[int, int], SequenceRange] = field(default_factory=lambda: BoundedMap(1000))
    unread: int = 0
    acknowledged: tuple[Witness, int] | None = None
    begin: int = LAST_OFFSET

    @property
    def size(self) -> int:
        stretches = len(self.producers) + len(self.covered) // STRETCHES
        return len(self.batches) + len(self.copies) + len(self.sequences) + stretches

    @property
    def loose(self) -> tuple[OrderedDict[Any, Any], ...]:
        return self.copies, self.sequences

    def evict(self) -> int:
        """Evict the lower half of the batches; return the number of evicted entries."""
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
            self.producers.evict()
        self.covered.drop(len(self.covered) // 2)
        for entries in self.loose:
            while len(entries) > len(self.batches) + LOOSE // 2:
                entries.popitem(last=False)
        return before - self.size


class PartitionHistories:
    """Histories of all partitions within `memory` bytes. `evicted`: number of evicted entries. `eras`: number of
    re-creations of a topic, each of which starts new histories of its partitions."""

    def __init__(self, memory: int) -> None:
        self.limit(memory)
        self.histories: BoundedMap[PartitionPlace, PartitionHistory] = BoundedMap(
            max(memory // PARTITION_SIZE, 100), PartitionHistory, self._ended
        )
        self.eras: BoundedMap[str, int] = BoundedMap(100_000, int)
        self.used = 0
        self.evicted = 0

    def limit(self, memory: int) -> None:
        self.most = max(memory // ENTRY_SIZE, 1000)

    def __getitem__(self, place: PartitionPlace) -> PartitionHistory:
        history = self.histories[place]
        era = self.era(place.topic)
        if history.era != era:
            self.used -= history.size
            history = self.histories[place] = PartitionHistory(era)
        return history

    def era(self, topic: str) -> int:
        return self.eras.get(topic) or 0

    def begin_era(self, topic: str) -> None:
        self.eras[topic] += 1

    def grow(self, history: PartitionHistory, before: int) -> None:
        """Account for the growth of a history since its size was `before`, and evict the oldest entries beyond the
        limit."""
        self.used += history.size - before
        for entries in history.loose:
            if len(entries) > len(history.batches) + LOOSE:
                entries.popitem(last=False)
                self.used -= 1
                self.evicted += 1
        while self.used > self.most:
            oldest = next(iter(self.histories.values()))
            if oldest.size <= SMALL and oldest is not history:
                self.histories.evict()
                continue
            freed = oldest.evict()
            self.evicted += freed
            self.used -= freed
            if not freed:
                return

    def _ended(self, _: PartitionPlace, history: PartitionHistory) -> None:
        self.used -= history.size
        self.evicted += history.size


MOST_PRODUCERS = 20_000
MOST_MARKERS = 1000  # markers of one producer in a partition; the lowest are evicted first


class SeenMarker(NamedTuple):
    """Transaction marker at an offset, with the epoch of its batch."""

    offset: int
    end: TransactionEnd
    epoch: int
    witness: Witness


@dataclass(slots=True)
class ProducerMarkers:
    """Markers of one producer id in one partition, by offset. Markers up to `lowest` may have been evicted."""

    place: PartitionPlace | None = None
    markers: list[SeenMarker] = field(default_factory=list)
    lowest: int = -1


class TransactionMarkers:
    """Markers of all producers in all partitions. `floors`: by partition, the highest offset of markers that were
    evicted with their producer."""

    def __init__(self, partitions: PartitionHistories, budget: SharedBudget) -> None:
        self.partitions, self.forgotten = partitions, 0
        self.by_producer: BoundedMap[tuple[PartitionPlace, int, int], ProducerMarkers] = BoundedMap(
            MOST_PRODUCERS, ProducerMarkers, self._forget, budget=budget,
            weigh=lambda known: 500 + 500 * len(known.markers),
        )  # fmt: skip
        self.floors: dict[PartitionPlace, int] = {}
        self.floor = -1

    def of(self, place: PartitionPlace, producer_id: int) -> ProducerMarkers:
        known = self.by_producer[place, self.partitions.era(place.topic), producer_id]
        if known.place is None:
            known.place, known.lowest = place, max(self.floors.get(place, -1), self.floor)
        return known

    def _forget(self, _: tuple[PartitionPlace, int, int], known: ProducerMarkers) -> None:
        if known.place is None or not known.markers:
            return
        if known.place not in self.floors and len(self.floors) >= MOST_PRODUCERS:
            self.floor = max(self.floor, *self.floors.values())
            self.floors.clear()
        offset = known.markers[-1].offset
        self.floors[known.place] = max(self.floors.get(known.place, -1), offset)

    def add(self, place: PartitionPlace, producer_id: int, marker: SeenMarker) -> bool:
        """Add a marker; return True if it is new."""
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
        """Next marker of a producer after an offset. None unless all batches between them are known and none of the
        markers was evicted, since another marker may be there."""
        known = self.of(place, producer_id)
        if offset <= known.lowest:
            return None
        at = bisect_right(known.markers, offset, key=attrgetter("offset"))
        if at == len(known.markers):
            return None
        marker = known.markers[at]
        return marker if self.partitions[place].covered.holds(offset, marker.offset) else None
