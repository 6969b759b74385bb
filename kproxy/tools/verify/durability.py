"""Checks of logs over time: acknowledged writes stay, bounds do not go back, deleted records do not return."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from operator import attrgetter
from typing import NamedTuple

from kproxy.base.bounded_map import BoundedMap
from kproxy.base.errors import plural

from .candidate import Candidate
from .facts import (
    ALL_REPLICAS,
    BatchFact,
    ListedOffsetFact,
    OutOfRangeFact,
    PartitionPlace,
    ReadFact,
    RecordsDeletedFact,
    Witness,
    WriteFact,
)
from .finding import BatchInQuestion
from .history_check import CheckState, HistoryCheck, handles
from .partition import KnownBatch, SequenceKey

MOST_HOLES = 100  # holes of a partition that later writes are compared with
MOST_WATERMARKS = 4096
MOST_LOST = 1000  # known batches in one hole that are examined, so that a response has bounded work
MOST_PARTITIONS = 20_000
MOST_REFUSED_READS = 16  # reads of a partition with OFFSET_OUT_OF_RANGE
MOST_ATTEMPTS = 1000  # idempotent batches of a partition without a result, or with too low an offset


@dataclass(slots=True)
class LogHole:
    """Offsets without a batch between two batches of a response."""

    first: int
    last: int
    position: int | None
    log_start: int
    witness: Witness


class AcknowledgedWrite(NamedTuple):
    """Write with acks=all. `ended`: time of its response. `last`: its last offset, the highest one by then."""

    ended: float
    base: int
    last: int
    witness: Witness


@dataclass(slots=True)
class AcknowledgedWrites:
    """Acknowledged writes of one partition. `replicated`: those with acks=all that have the highest offset by then.
    `lost`: base offsets of batches with a finding. `written`: there was any write. `open`: times of idempotent writes
    without a result, by sequence. `lower`: candidates about idempotent writes with too low an offset; an attempt before
    the given time makes one lawful. `refused`: reads that received OFFSET_OUT_OF_RANGE, until their node reports a log
    start."""

    era: int = 0
    holes: deque[LogHole] = field(default_factory=lambda: deque(maxlen=MOST_HOLES))
    lost: set[int] = field(default_factory=set)
    replicated: list[AcknowledgedWrite] = field(default_factory=list)
    written: bool = False
    open: dict[SequenceKey, float] = field(default_factory=dict)
    lower: dict[SequenceKey, tuple[Candidate, float]] = field(default_factory=dict)
    refused: deque[OutOfRangeFact] = field(default_factory=lambda: deque(maxlen=MOST_REFUSED_READS))

    @property
    def size(self) -> int:
        """Approximate size in bytes."""
        few = len(self.holes) + len(self.replicated) + len(self.refused) + 2 * len(self.lower)
        return 1000 + 800 * few + 200 * len(self.open) + 100 * len(self.lost)

    def before(self, time: float) -> AcknowledgedWrite | None:
        """Last write with acks=all that was acknowledged before this time."""
        at = bisect_left(self.replicated, time, key=attrgetter("ended"))
        return self.replicated[at - 1] if at else None


class AcknowledgedCheck(HistoryCheck):
    """Checks of later exchanges against acknowledged writes, and of holes in responses."""

    names = ("lost-write", "read-then-gone", "watermark-behind", "realtime-order", "out-of-range")

    def __init__(self, state: CheckState) -> None:
        super().__init__(state)
        self.by_place: BoundedMap[PartitionPlace, AcknowledgedWrites] = self.recent(
            MOST_PARTITIONS, AcknowledgedWrites, lambda known: known.size
        )

    def of(self, place: PartitionPlace) -> AcknowledgedWrites:
        """State of a partition since its topic was last re-created."""
        known, era = self.by_place[place], self.partitions.era(place.topic)
        if known.era != era:
            known = self.by_place[place] = AcknowledgedWrites(era)
        return known

    @handles(WriteFact)
    def written(self, write: WriteFact) -> None:
        """Compare an acknowledged write with earlier writes, and with the holes of responses."""
        if write.result == "failed":
            return
        known, sequences = self.of(write.place), list(sequences_of(write))
        for sequence in sequences:
            self.attempt(known, sequence, write)
        if write.base is None or write.witness.ended is None:
            return
        self.state.counts["acknowledged writes"] += 1
        self.in_order(known, write, write.base, sequences)
        self.log_start(known, write.witness, write.log_start)
        known.written = True
        if write.acks == ALL_REPLICAS:
            last = write.batches[-1].last if write.batches else write.base
            highest, mine = known.replicated, AcknowledgedWrite(write.witness.ended, write.base, last, write.witness)
            if not highest or (mine.ended >= highest[-1].ended and last > highest[-1].last):
                highest.append(mine)
                if len(highest) > MOST_WATERMARKS:
                    del highest[: MOST_WATERMARKS // 2]
        if known.holes:
            for hole in known.holes:
                if hole.witness.before(write.witness):
                    continue
                for batch in write.batches:
                    if batch.comparable and hole.first <= batch.last <= hole.last:
                        self.lose(known, write.place, KnownBatch(batch, write.witness), hole)

    @handles(ReadFact)
    def read(self, read: ReadFact) -> None:
        """Check the high watermark of a response and the holes between its batches. A share group's response has
        neither."""
        if read.shared:
            return
        known = self.of(read.place)
        self.watermark(known, read, read.high_watermark)
        self.log_start(known, read.witness, read.log_start)
        ascending = all(one.base > before.last for before, one in zip(read.batches, read.batches[1:], strict=False))
        if read.partial or not ascending or not all(one.comparable for one in read.batches):
            return
        history = self.partitions[read.place]
        begin = history.batches.get(read.batches[0].base) if read.batches else None
        if begin is not None and begin.read is not None and begin.read.before(read.witness):
            doubts = doubts_about_hole(read.log_start)
            other = begin.read.may_be_elsewhere(read.witness)
            self.compared("read-then-gone", begin.read, read.witness, place=read.place, doubts=doubts, any_age=other)
        end = None if read.position is None else read.position - 1
        for batch in read.batches:
            if end is not None and batch.base > end + 1:
                self.hole(known, read, max(end + 1, read.log_start), batch.base - 1)
            end = batch.last
        if known.written:
            self.found_again(read)
        before = history.size
        for first, last in stretches(read.batches):
            history.covered.add(first, last)
        self.partitions.grow(history, before)

    def found_again(self, read: ReadFact) -> None:
        """Note a comparison if a response has an acknowledged batch, since a lost one would have been noticed."""
        batches = self.partitions[read.place].batches
        for batch in read.batches:
            known = batches.get(batch.base)
            if known is not None and known.written is not None:
                doubts = doubts_about_hole(read.log_start)
                self.compared("lost-write", known.written, read.witness, place=read.place, doubts=doubts)
                return

    def watermark(self, known: AcknowledgedWrites, read: ReadFact | ListedOffsetFact, high: int) -> None:
        """Report a high watermark that is not above the offsets that were acknowledged before its request.

        Followers and new leaders learn it late. So a Fetch of another node than the write's is a note.
        """
        written = known.before(read.witness.began)
        if written is None or high < 0:
            return
        other = isinstance(read, ReadFact) and written.witness.may_be_elsewhere(read.witness)
        if not other:
            self.compared("watermark-behind", written.witness, read.witness, place=read.place)
        if high > written.last:
            return
        says = (f"the high watermark is {high} after a write up to {written.last} was acknowledged with "
                "acks all")  # fmt: skip
        shown = ((written.witness, f"base_offset {written.base}, up to {written.last}"),
                 (read.witness, f"high watermark {high}"))  # fmt: skip
        doubts = "follower", "anew", "unclean"
        level = "note" if other else "suspect"
        self.report("watermark-behind", read.place, says, *shown, doubts=doubts, level=level)

    def hole(self, known: AcknowledgedWrites, read: ReadFact, first: int, last: int) -> None:
        if first > last:
            return
        hole = LogHole(first, last, read.position, read.log_start, read.witness)
        known.holes.append(hole)
        batches = self.partitions[read.place].batches
        below = batches.below(first)  # a response from the middle of a batch contains all of it
        for batch in islice(chain(() if below is None else (below,), batches.between(first, last)), MOST_LOST):
            seen = batch.written is not None or (batch.read is not None and batch.read.before(read.witness))
            if seen and first <= batch.batch.last <= last:
                self.lose(known, read.place, batch, hole)

    def lose(self, known: AcknowledgedWrites, place: PartitionPlace, batch: KnownBatch, hole: LogHole) -> None:
        seen, witness, base = batch.written or batch.read, hole.witness, batch.batch.base
        assert seen is not None, "a batch is known by an exchange"
        if base in known.lost:
            return
        start = "an unknown offset" if hole.position is None else str(hole.position)
        check, was = ("read-then-gone", "read") if batch.written is None else ("lost-write", "acknowledged")
        # Each replica is cleaned by itself: another one may still have the batch, or may have lost it long before.
        any_age = batch.written is None and seen.may_be_elsewhere(witness)
        says = (f"a batch of {plural(batch.batch.identity.records, 'record')} was {was} at offset {base}, and a "
                f"later response from {start} on continues after it without it")  # fmt: skip
        shown = ((seen, f"a batch at {base}" if batch.written is None else f"base_offset {base}"),
                 (witness, f"from {start}: a batch at {hole.last + 1}, none at {base}"))  # fmt: skip
        question = BatchInQuestion(place, [(seen.number, base), (witness.number, None)])
        doubts = doubts_about_hole(hole.log_start)
        self.report(check, place, says, *shown, doubts=doubts, batch=question, any_age=any_age)
        if len(known.lost) < MOST_LOST:
            known.lost.add(base)

    def in_order(self, known: AcknowledgedWrites, write: WriteFact, base: int, sequences: list[SequenceKey]) -> None:
        """Report a write with a lower offset than one that was acknowledged before it was sent. An idempotent producer
        also receives the offset of an earlier attempt, which may have been sent before both."""
        before = known.before(write.witness.began)
        if before is None or not write.batches:
            return
        until, other, _, earlier = before
        doubts = ["anew", "unclean"] + ["truncation"] * (write.acks != ALL_REPLICAS)
        if sequences or earlier.connection != write.witness.connection:
            self.compared("realtime-order", earlier, write.witness, place=write.place, doubts=doubts)
        # A common offset is `offset-given-twice`; `order` compares writes of a connection without producer ids.
        if write.batches[-1].last >= other or (not sequences and earlier.connection == write.witness.connection):
            return
        for one in sequences:
            place = self.partitions[write.place].sequences.get(one)
            seen = place is not None and (place.witness.began < until or place.witness.before(write.witness))
            if seen or known.open.get(one, until) < until:
                return
        doubts += ["unseen"] * bool(sequences)
        doubts += ["earlier"] * (not all(map(self.state.is_first_attempt, write.batches)))
        says = f"a write was given offset {base}, after a write at offset {other} had been acknowledged"
        shown = (earlier, f"base_offset {other}"), (write.witness, f"base_offset {base}")
        candidate = self.report("realtime-order", write.place, says, *shown, doubts=doubts)
        for one in sequences[:MOST_ATTEMPTS]:
            known.lower[one] = candidate, until

    def attempt(self, known: AcknowledgedWrites, sequence: SequenceKey, write: WriteFact) -> None:
        """Note an attempt to write an idempotent batch. A later attempt receives its offset."""
        began = write.witness.began
        if write.result == "open":
            known.open.setdefault(sequence, began)
        candidate, until = known.lower.get(sequence, (None, 0.0))
        if candidate is not None and began < until:
            candidate.void = True
        if max(len(known.open), len(known.lower)) > MOST_ATTEMPTS:
            known.open.clear()
            known.lower.clear()
            self.state.forgot["realtime-order"] += 1

    @handles(OutOfRangeFact)
    def out_of_range(self, fact: OutOfRangeFact) -> None:
        """Keep a read that was out of range, until its node reports a log start."""
        if fact.witness.node is not None and not fact.witness.made_by_kproxy:
            self.of(fact.place).refused.append(fact)

    @handles(ListedOffsetFact)
    def offset_reported(self, fact: ListedOffsetFact) -> None:
        if fact.bound == "start":
            self.log_start(self.of(fact.place), fact.witness, fact.offset)
        elif fact.bound == "end":
            self.watermark(self.of(fact.place), fact, fact.offset)

    def log_start(self, known: AcknowledgedWrites, witness: Witness, start: int) -> None:
        """Check refused reads of this node. Log starts do not go back, so the earlier one was not higher."""
        if not known.refused or start < 0:
            return
        for refused in [one for one in known.refused if one.witness.node == witness.node]:
            if not refused.witness.before(witness):
                continue
            known.refused.remove(refused)
            before = known.before(refused.witness.began)
            if before is None:
                continue
            _, base, last, written = before
            position = refused.position
            # Another node may be a leader that was replaced, and does not know it.
            doubts = ["anew", "unclean"] + ["follower"] * written.may_be_elsewhere(refused.witness)
            doubts += ["old-start"] * (witness.connection != refused.witness.connection)
            self.compared("out-of-range", written, refused.witness, witness, place=refused.place, doubts=doubts)
            if start <= position <= last + 1:
                says = (f"a Fetch from {position} received OFFSET_OUT_OF_RANGE, after a write up to {last} was "
                        "acknowledged with acks all")  # fmt: skip
                shown = ((written, f"base_offset {base}, up to {last}"),
                         (refused.witness, f"from {position}: OFFSET_OUT_OF_RANGE"),
                         (witness, f"the log starts at {start}"))  # fmt: skip
                self.report("out-of-range", refused.place, says, *shown, doubts=doubts)

    def pending(self) -> Iterable[Candidate]:
        """Count acknowledged batches without a read. Candidates were reported before."""
        unread = sum(history.unread for history in self.partitions.histories.values())
        self.state.counts["not read"] = unread
        return ()


def doubts_about_hole(log_start: int) -> tuple[str, ...]:
    # A leader that lacks records gives their offsets to others: truncation leaves no holes.
    return ("compaction", "anew") if log_start >= 0 else ("compaction", "anew", "retention")


def sequences_of(write: WriteFact) -> Iterator[SequenceKey]:
    for batch in write.batches:
        identity = batch.identity
        if identity.producer_id >= 0 and identity.sequence >= 0:
            yield identity.producer_id, identity.epoch, identity.sequence


def stretches(batches: list[BatchFact]) -> Iterator[tuple[int, int]]:
    """Yield the ranges of offsets that ascending batches cover without a hole. A hole may have held compacted
    batches."""
    first, last = 0, -1
    for batch in batches:
        if batch.base != last + 1 or last < 0:
            if last >= 0:
                yield first, last
            first = batch.base
        last = batch.last
    if last >= 0:
        yield first, last


MOST_BOUNDS = 100_000
# Version of ListOffsets since which a new leader reports no end before it knows the high watermark (KIP-207).
LATEST_IS_FENCED = 5
START, END, WATERMARK, STABLE = "log start", "end", "high watermark", "last stable offset"
ANYWHERE = "any node"
BoundFact = ReadFact | WriteFact | ListedOffsetFact | RecordsDeletedFact
# Exchanges whose bounds are compared (None: none), and the doubts about the comparison.
Scope = tuple[Hashable, tuple[str, ...]]


class LogBoundsCheck(HistoryCheck):
    """Checks of the bounds of a log in all responses that contain them. Each replica deletes old records by itself and
    learns the high watermark after its leader, so bounds of one connection or node are compared. A broker process
    lowers a bound only for a new leader."""

    names = ("log-goes-back", "deleted-read")

    def __init__(self, state: CheckState) -> None:
        super().__init__(state)
        # Highest offset and its exchange, by partition, era, bound and scope (connection, node, or anywhere).
        self.highest: BoundedMap[tuple[Hashable, ...], tuple[int, Witness]] = self.recent(MOST_BOUNDS)

    @handles(ReadFact)
    def read(self, read: ReadFact) -> None:
        """Compare the bounds and the batches of a Fetch response with earlier bounds."""
        self.not_deleted(read)
        if read.shared:
            return
        self.start(read, read.log_start)
        node, scope = read.witness.node, (read.witness.connection, read.leader_epoch)
        # A follower lowers its watermark for a new leader with a lower one, and a broker when it moves a log to another
        # directory. A leader never does so for its clients or followers.
        scopes: list[Scope] = (
            [(scope, ("log-dir", "anew"))] if self.state.leads(read.place, read.leader_epoch, node) else []
        )
        scopes.append((node, ("follower", "anew", "unclean")))
        self.compare(read, WATERMARK, read.high_watermark, scopes)
        self.compare(read, STABLE, read.last_stable, scopes)
        self.raise_to(read, END, read.high_watermark, ANYWHERE)

    @handles(ListedOffsetFact)
    def listed(self, fact: ListedOffsetFact) -> None:
        """Compare a bound in a ListOffsets response, which only leaders send, with earlier ones."""
        if fact.bound == "start":
            self.start(fact, fact.offset)
        elif fact.bound is not None:
            kind = "end in ListOffsets" if fact.bound == "end" else "last stable offset in ListOffsets"
            doubts = "follower", "anew", "unclean"
            fenced = ("log-dir", *doubts[1:]) if fact.witness.version >= LATEST_IS_FENCED else doubts
            scopes: list[Scope] = [(fact.witness.node, fenced), (ANYWHERE, doubts)]
            if not self.compare(fact, kind, fact.offset, scopes):
                scopes = [(fact.witness.node, ("follower", "anew", "unclean"))]
                self.compare(fact, WATERMARK if fact.bound == "end" else STABLE, fact.offset, scopes)
            self.raise_to(fact, END, fact.offset, ANYWHERE)

    @handles(WriteFact)
    def written(self, write: WriteFact) -> None:
        """Compare the log start and the offset of a write with the bounds before it was sent. An idempotent producer
        also receives the offset of an earlier attempt."""
        if write.result != "ok" or write.base is None:
            return
        self.start(write, write.log_start)
        known = self.known(write, END, ANYWHERE)
        if known and write.batches and all(one.identity.producer_id < 0 and one.comparable for one in write.batches):
            (end, earlier), witness = known, write.witness
            if not earlier.before(witness):
                return
            doubts = ["anew", "unclean"] + ["truncation"] * (write.acks != ALL_REPLICAS)
            self.compared("log-goes-back", earlier, witness, place=write.place, doubts=doubts)
            if write.base < end:
                says = f"a write was given offset {write.base}, after the log had an end of at least {end}"
                shown = (earlier, f"{end}"), (witness, f"base_offset {write.base}")
                self.report("log-goes-back", write.place, says, *shown, doubts=doubts)

    @handles(RecordsDeletedFact)
    def records_deleted(self, fact: RecordsDeletedFact) -> None:
        """Keep the lowest log start of all live replicas after DeleteRecords."""
        for kind, scope in ((START, fact.witness.node), ("deleted", ANYWHERE)):
            self.raise_to(fact, kind, fact.low_watermark, scope)

    def not_deleted(self, read: ReadFact) -> None:
        """Report a response with a batch that ends below the offset of an earlier DeleteRecords."""
        known, witness = self.known(read, "deleted", ANYWHERE), read.witness
        if known is None or not known[1].before(witness):
            return
        offset, deletion = known
        doubts = ["anew", "unclean"] + ["old-start"] * (deletion.connection != witness.connection)
        doubts += ["follower"] * (witness.node is None or deletion.node != witness.node)
        for batch in read.batches[:1]:
            self.compared("deleted-read", deletion, witness, place=read.place, doubts=doubts)
            if batch.last < offset:
                says = f"records below {offset} were deleted, and a later response has the batch at {batch.base}"
                shown = (deletion, f"deleted below {offset}"), (witness, f"a batch from {batch.base} to {batch.last}")
                self.report("deleted-read", read.place, says, *shown, doubts=doubts)

    def start(self, fact: ReadFact | WriteFact | ListedOffsetFact, offset: int) -> None:
        """Compare a log start with earlier ones of the same node. A broker saves it from time to time, not with each
        change. A replica that is assigned again begins at the log start of its leader, which may be lower."""
        self.compare(fact, START, offset, [(fact.witness.node, ("old-start", "anew", "unclean"))])

    def known(self, fact: BoundFact, kind: str, scope: Hashable) -> tuple[int, Witness] | None:
        return self.highest.get(self.key(fact, kind, scope))

    def key(self, fact: BoundFact, kind: str, scope: Hashable) -> tuple[Hashable, ...]:
        return fact.place, self.partitions.era(fact.place.topic), kind, scope

    def raise_to(self, fact: BoundFact, kind: str, offset: int, scope: Hashable) -> None:
        if offset >= 0 and scope is not None:
            key = self.key(fact, kind, scope)
            known = self.highest.get(key)
            self.highest[key] = (offset, fact.witness) if known is None or offset > known[0] else known

    def compare(self, fact: BoundFact, kind: str, offset: int, scopes: list[Scope]) -> bool:
        """Compare a bound with the highest earlier one in each scope, and keep it. -1: the response has none. Return
        True if it is lower."""
        found = False
        for scope, doubts in scopes:
            known = self.known(fact, kind, scope)
            if known and offset >= 0 and known[1].before(fact.witness):
                highest, earlier = known
                self.compared("log-goes-back", earlier, fact.witness, place=fact.place, doubts=doubts)
                if offset < highest:
                    if not found:
                        says = f"the {kind} went back from {highest} to {offset}"
                        shown = (earlier, f"{kind} {highest}"), (fact.witness, f"{kind} {offset}")
                        self.report("log-goes-back", fact.place, says, *shown, doubts=doubts)
                    found, self.highest[self.key(fact, kind, scope)] = True, (offset, fact.witness)
            self.raise_to(fact, kind, offset, scope)
        return found
