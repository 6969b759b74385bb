"""Checks of acknowledged writes: whether they are there for readers, and whether answers know that they are."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

from .facts import ALL_REPLICAS, BatchFact, Fact, PartitionPlace, ReadFact, Witness, WriteFact
from .finding import BatchInQuestion, Evidence
from .history_check import CheckState, FactHandler, HistoryCheck
from .numbers import number_of
from .partition import KnownBatch
from .recent import RecentMap
from .suspicion import Suspicion

MOST_HOLES = 100
"""Stretches without a batch, of a partition, that later writes are compared with."""
MOST_WATERMARKS = 4096
MOST_LOST = 1000
"""Batches known at the offsets of one hole that are looked at, so that no answer costs more however much it passes."""
MOST_PARTITIONS = 20_000


@dataclass(slots=True)
class LogHole:
    """Stretch of offsets at which an answer has no batch although it goes on behind it."""

    first: int
    last: int
    next: int
    position: int | None
    log_start: int
    witness: Witness


@dataclass(slots=True)
class AcknowledgedWrites:
    """Acknowledged writes of one partition, as far as their readers need them. `ended`, `lasts`: when writes with acks
    all were answered, and the highest offset by then; `writes`: those, each by its first offset. `lost`: first offsets
    of batches of which it was told that they are; `written`: there is any write."""

    era: int = 0
    holes: deque[LogHole] = field(default_factory=lambda: deque(maxlen=MOST_HOLES))
    lost: set[int] = field(default_factory=set)
    ended: list[float] = field(default_factory=list)
    lasts: list[int] = field(default_factory=list)
    writes: list[tuple[int, Witness]] = field(default_factory=list)
    written: bool = False


def weight_of(known: AcknowledgedWrites) -> int:
    """Return how many bytes the acknowledged writes of a partition take, roughly."""
    return 1000 + 800 * (len(known.holes) + len(known.ended)) + 100 * len(known.lost)


class AcknowledgedCheck(HistoryCheck):
    """Check that what was acknowledged is in the answers that should bring it, and below their high watermark."""

    names = ("lost-write", "watermark-behind")

    def __init__(self, state: CheckState) -> None:
        super().__init__(state)
        self.by_place: RecentMap[PartitionPlace, AcknowledgedWrites] = self.recent(
            MOST_PARTITIONS, AcknowledgedWrites, weight_of
        )

    def handlers(self) -> Mapping[type[Fact], FactHandler]:
        """Return what is to be called with each kind of fact."""
        return {WriteFact: self.written, ReadFact: self.read}

    def of(self, place: PartitionPlace) -> AcknowledgedWrites:
        """Return the acknowledged writes of a partition, none from before its topic was made anew."""
        known, era = self.by_place[place], self.partitions.era(place.topic)
        if known.era != era:
            known = self.by_place.entries[place] = AcknowledgedWrites(era)
        return known

    def written(self, write: WriteFact) -> None:
        """Take in a write that was acknowledged, and look whether an answer has passed it over."""
        if write.base is None or write.witness.ended is None:
            return
        self.state.counts["acknowledged writes"] += 1
        known = self.of(write.place)
        known.written = True
        if write.acks == ALL_REPLICAS:
            last = write.batches[-1].last if write.batches else write.base
            if not known.ended or (write.witness.ended >= known.ended[-1] and last > known.lasts[-1]):
                known.ended.append(write.witness.ended)
                known.lasts.append(last)
                known.writes.append((write.base, write.witness))
                if len(known.ended) > MOST_WATERMARKS:
                    for one in (known.ended, known.lasts, known.writes):
                        del one[: MOST_WATERMARKS // 2]
        if known.holes:
            batches = {batch.base: batch for batch in write.batches if batch.comparable}
            for hole in known.holes:
                for base, batch in batches.items():
                    if hole.first <= base and batch.last <= hole.last and not hole.witness.before(write.witness):
                        self.lose(known, write.place, KnownBatch(batch, write.witness), hole)

    def read(self, read: ReadFact) -> None:
        """Look at the high watermark of an answer, and at what is missing between its batches: a share group's tells
        neither, since it brings what it acquires."""
        if read.shared:
            return
        known = self.of(read.place)
        self.watermark(known, read)
        self.state.looked["lost-write"] += known.written
        ascending = all(one.base > before.last for before, one in zip(read.batches, read.batches[1:], strict=False))
        if read.partial or not ascending or not all(one.comparable for one in read.batches):
            return
        history = self.partitions[read.place]
        end = None if read.position is None else read.position - 1
        for batch in read.batches:
            if end is not None and batch.base > end + 1:
                self.hole(known, read, max(end + 1, read.log_start), batch.base - 1)
            end = batch.last
        before = history.size
        for first, last in stretches(read.batches):
            history.covered.add(first, last)
        self.partitions.grow(history, before)

    def watermark(self, known: AcknowledgedWrites, read: ReadFact) -> None:
        """Keep a suspicion if an answer's high watermark is not beyond what had been acknowledged by its request."""
        self.state.looked["watermark-behind"] += bool(known.ended)
        at_time = bisect_left(known.ended, read.witness.began) - 1
        if at_time < 0 or read.high_watermark < 0 or read.high_watermark > known.lasts[at_time]:
            return
        base, written = known.writes[at_time]
        self.suspect(
            Suspicion(
                "watermark-behind",
                "suspect",
                str(read.place),
                f"the high watermark is told as {read.high_watermark} "
                f"after a write up to {known.lasts[at_time]} was acknowledged with acks all",
                [
                    Evidence(written, f"base_offset {base}, up to {known.lasts[at_time]}"),
                    Evidence(read.witness, f"high watermark {read.high_watermark}"),
                ],
                ("follower", "anew"),
                read.place,
            )
        )

    def hole(self, known: AcknowledgedWrites, read: ReadFact, first: int, last: int) -> None:
        """Look for acknowledged batches where an answer has none although it goes on behind."""
        if first > last:
            return
        hole = LogHole(first, last, last + 1, read.position, read.log_start, read.witness)
        known.holes.append(hole)
        for batch in islice(self.partitions[read.place].batches.between(first, last), MOST_LOST):
            if batch.written is not None and batch.batch.last <= last:
                self.lose(known, read.place, batch, hole)

    def lose(self, known: AcknowledgedWrites, place: PartitionPlace, batch: KnownBatch, hole: LogHole) -> None:
        """Keep a suspicion that an acknowledged batch was not in an answer that should have brought it."""
        write, witness = batch.written, hole.witness
        assert write is not None, "it was acknowledged"
        if batch.batch.base in known.lost:
            return
        start = "an unknown offset" if hole.position is None else str(hole.position)
        suspicion = Suspicion(
            "lost-write",
            "proved",
            str(place),
            f"a batch of {number_of(batch.batch.identity.records, 'record')} was acknowledged at offset "
            f"{batch.batch.base}, and an answer from {start} on goes beyond it without it",
            [
                Evidence(write, f"base_offset {batch.batch.base}"),
                Evidence(witness, f"from {start}: a batch at {hole.next}, none at {batch.batch.base}"),
            ],
            ("compaction",) if hole.log_start >= 0 else ("compaction", "retention"),
            place,
            BatchInQuestion(place, [(write.number, batch.batch.base), (witness.number, None)]),
        )
        self.suspect(suspicion)  # what is there again later proves nothing: another replica is cleaned by itself
        if len(known.lost) < MOST_LOST:
            known.lost.add(batch.batch.base)

    def pending(self) -> Iterable[Suspicion]:
        """Return nothing more: what is lost has been told. Count what nobody has read."""
        unread = sum(history.unread for history in self.partitions.histories.values())
        self.state.counts["not read"] = unread
        return ()


def stretches(batches: list[BatchFact]) -> Iterator[tuple[int, int]]:
    """Yield the stretches of offsets that ascending batches cover without a hole: what a cleaner has taken from a hole
    nobody knows."""
    first, last = 0, -1
    for batch in batches:
        if batch.base != last + 1 or last < 0:
            if last >= 0:
                yield first, last
            first = batch.base
        last = batch.last
    if last >= 0:
        yield first, last


class AnswersCheck(HistoryCheck):
    """Check of answers by themselves: their offsets ascend, and their batches have all their records."""

    names = ("read-disorder", "thinned-batch")

    def handlers(self) -> Mapping[type[Fact], FactHandler]:
        """Return what is to be called with each kind of fact."""
        return {ReadFact: self.read}

    def read(self, read: ReadFact) -> None:
        """Look at the batches of an answer."""
        end = -1
        for batch in read.batches:
            if not batch.comparable:
                end = max(end, batch.base)
                continue
            self.state.looked["read-disorder"] += 1
            self.state.looked["thinned-batch"] += 1
            if batch.base <= end:
                self.suspect(
                    Suspicion(
                        "read-disorder",
                        "proved",
                        str(read.place),
                        f"an answer has a batch at offset {batch.base} behind one that ends at {end}",
                        [Evidence(read.witness, f"up to {end}, then {batch.base}")],
                        place=read.place,
                    )
                )
            if not batch.ascending:
                self.suspect(
                    Suspicion(
                        "read-disorder",
                        "proved",
                        str(read.place),
                        f"the records of the batch at offset {batch.base} are not in the order of their offsets",
                        [Evidence(read.witness, f"the batch at {batch.base}")],
                        place=read.place,
                        batch=BatchInQuestion(read.place, [(read.witness.number, batch.base)]),
                    )
                )
            end = max(end, batch.last)
            count = batch.identity.records
            if count != batch.delta + 1 and not batch.marker:
                self.suspect(
                    Suspicion(
                        "thinned-batch",
                        "proved",
                        str(read.place),
                        f"the batch at offset {batch.base} has {number_of(count, 'record')} for "
                        f"{number_of(batch.delta + 1, 'offset')}",
                        [Evidence(read.witness, f"{number_of(count, 'record')} from {batch.base} to {batch.last}")],
                        ("compaction",) if count <= batch.delta else (),
                        read.place,
                        BatchInQuestion(read.place, [(read.witness.number, batch.base)]),
                        any_age=True,
                    )
                )
