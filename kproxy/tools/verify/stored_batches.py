"""Checks of stored batches: their content at each offset, the number of copies, and their writes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from kproxy.base.bounded_map import BoundedMap
from kproxy.base.errors import plural
from kproxy.protocol.records.entry import CODEC, DELETE_HORIZON, LOG_APPEND_TIME

from .candidate import Candidate, candidate_of
from .facts import ALL_REPLICAS, BatchFact, PartitionPlace, ReadFact, Witness, WriteFact
from .finding import BatchInQuestion
from .history_check import CheckState, HistoryCheck, handles
from .partition import BatchCopies, KnownBatch, PartitionHistory, StoredIdentity

MOST_CONFLICTS = 4  # reported other batches in place of one
MOST_DOUBLED = 10_000
MOST_SHOWN_SENDS = 4  # writes of a batch in a finding
# Attributes that a broker may change when it stores or compacts a batch.
IN_FORM = CODEC | LOG_APPEND_TIME | DELETE_HORIZON
MOST_PARTITIONS = 20_000
MOST_SENT = 200_000  # batches of a partition that writes have sent
MOST_REFUSED = 1000
MOST_UNWRITTEN = 1000  # batches of a partition that were read, and that no write has sent so far
INTERNAL = "__"  # prefix of topics that brokers write themselves


class StoredBatchesCheck(HistoryCheck):
    """Checks of batches against others at their offsets, and of the number of copies."""

    names = ("inconsistent-offset", "offset-given-twice", "duplicate")

    def __init__(self, state: CheckState) -> None:
        super().__init__(state)
        self.doubled: dict[tuple[PartitionPlace, StoredIdentity], BatchCopies] = {}

    @handles(WriteFact)
    def written(self, write: WriteFact) -> None:
        if write.result == "failed":
            return
        history = self.partitions[write.place]
        before = history.size
        ok = write.result == "ok" and write.base is not None
        if ok:
            earlier, history.acknowledged = history.acknowledged, (write.witness, write.acks)
            if earlier is not None and write.batches:
                loose = earlier[1] != ALL_REPLICAS or write.acks != ALL_REPLICAS
                doubts = ("anew", "truncation") if loose else ("anew",)
                self.compared("offset-given-twice", earlier[0], write.witness, place=write.place, doubts=doubts)
        for batch in write.batches:
            if not batch.comparable:
                continue
            copies = self.copies(history, batch, make=True)
            if copies is not None:
                copies.send(write.witness, write.result == "ok" or not write.acks)
            if ok:
                self.meet(history, write.place, batch, write.witness, write)
        self.partitions.grow(history, before)

    @handles(ReadFact)
    def read(self, read: ReadFact) -> None:
        history = self.partitions[read.place]
        before = history.size
        for batch in read.batches:
            if batch.comparable:
                self.meet(history, read.place, batch, read.witness, None)
        self.partitions.grow(history, before)

    def meet(
        self, history: PartitionHistory, place: PartitionPlace, batch: BatchFact, witness: Witness,
        write: WriteFact | None,
    ) -> None:  # fmt: skip
        """Add a batch at an offset, from a response that contains it or acknowledged it (`write`)."""
        known = history.batches.get(batch.base)
        if known is not None:
            self.met(place, known, witness, write)
        if known is not None and is_same(known, batch, write):
            if write is not None and is_another_write(known, batch, witness):
                self.conflict(place, known, batch, witness, write)
            self.confirm(history, known, witness, write)
        elif known is not None and (write is None or known.written is None) and recast(known, batch, write):
            self.state.recast += known.batch.content is None or batch.content is None
            if known.sent is None and (write is not None or known.written is not None):
                known.sent = known.batch if write is None else batch
            if write is None:
                known.batch = batch
            self.confirm(history, known, witness, write)
        else:
            others = overlapping(history, batch)
            for other in others:
                self.met(place, other, witness, write)
                self.conflict(place, other, batch, witness, write)
            if others:
                return
            known = KnownBatch(batch)
            history.batches.put(batch.base, known)
            self.confirm(history, known, witness, write)
        copies = self.copies(history, batch, make=write is None)
        if copies is not None:
            if write is None and copies.sends:
                self.compared("duplicate", copies.sends[0], witness, place=place, doubts=("anew",))
            if write is None and not copies.reads:
                copies.reads = (witness,)
            if copies.add_offset(batch.base):
                if len(self.doubled) >= MOST_DOUBLED:
                    self.state.forgot["duplicate"] += 1
                    return
                self.doubled[place, (batch.identity, batch.newest)] = copies

    def met(self, place: PartitionPlace, known: KnownBatch, witness: Witness, write: WriteFact | None) -> None:
        """Note a comparison with a known batch, unless both are acknowledged writes."""
        earlier = known.written or known.read
        if earlier is None or (write is not None and known.written is not None):
            return
        doubts = ("anew", "truncation") if is_loose(known, write) else ("anew",)
        self.compared("inconsistent-offset", earlier, witness, place=place, doubts=doubts)

    def confirm(self, history: PartitionHistory, known: KnownBatch, witness: Witness, write: WriteFact | None) -> None:
        unread = known.written is not None and known.read is None
        if write is None:
            known.read = known.read or witness
        elif known.written is None:
            known.written, known.acks, known.stamped = witness, write.acks, write.stamped
        history.unread += (known.written is not None and known.read is None) - unread

    def copies(self, history: PartitionHistory, batch: BatchFact, *, make: bool) -> BatchCopies | None:
        """Copies of a batch; None if they are not counted: it has a producer id, or no records."""
        if batch.identity.producer_id >= 0 or batch.marker or not batch.identity.records:
            return None
        key = batch.identity, batch.newest
        copies = history.copies.get(key)
        if copies is None and make:
            copies = history.copies[key] = BatchCopies()
        return copies

    def conflict(
        self, place: PartitionPlace, known: KnownBatch, batch: BatchFact, witness: Witness, write: WriteFact | None
    ) -> None:
        """Report an offset with another batch than was acknowledged or read there before."""
        known.conflicts += 1
        if known.conflicts > MOST_CONFLICTS:
            return
        twice = write is not None and known.written is not None
        earlier = known.written or known.read
        assert earlier is not None, "a batch is known by an exchange"
        doubts = ["anew", "unclean"]
        if is_loose(known, write):
            doubts.append("truncation")
        if not twice and cleaned(known.batch, batch):
            doubts.append("compaction")
        if not twice and (write is not None or known.read is None) and is_encoded_again(known.batch, batch):
            doubts.append("encoded")
        one_is_stored = (known.read is None) == (write is None)  # and the other one is as it was sent
        if not twice and one_is_stored and untimed(known.batch, batch):
            doubts.append("times")
        acknowledged, offset = known.written is not None, max(known.batch.base, batch.base)
        check, says = "offset-given-twice", f"two acknowledged writes claim offset {offset}"
        if not twice:
            claim = "the acknowledged write" if acknowledged else "the batch that was read"
            check, says = "inconsistent-offset", f"at offset {offset} is another batch than {claim} there"
        shown = (
            (earlier, spelled(known.batch, verb="acknowledged" if acknowledged else "read")),
            (witness, spelled(batch, verb="read" if write is None else "acknowledged")),
        )
        question = BatchInQuestion(place, [(earlier.number, known.batch.base), (witness.number, batch.base)])
        # As for read-then-gone, the other replica may have been cleaned long before.
        other = known.written is None and write is None and earlier.may_be_elsewhere(witness)
        self.report(check, place, says, *shown, doubts=doubts, batch=question, any_age=other)

    def pending(self) -> Iterator[Candidate]:
        """Yield the batches with more offsets than acknowledgements. Without idempotence each write may be stored, and
        a retry, an application or another process may send equal batches. So only a batch at more offsets than writes
        is proved."""
        for (place, (identity, newest)), copies in self.doubled.items():
            surplus = len(copies.offsets) - copies.acknowledged
            if surplus <= 0 or not copies.sends:
                continue
            doubts: tuple[str, ...] = ("intent",) if surplus <= copies.unanswered else ("unseen",)
            if newest < 0:  # without a time, equal batches count as one
                doubts = ("intent", "times")
            elif self.state.may_be_earlier(place, self.partitions.era(place.topic), min(copies.offsets)):
                doubts += ("earlier",)
            sends = copies.unanswered + copies.acknowledged
            offsets = " and ".join(map(str, sorted(copies.offsets)))
            shown = [
                (one, "[no answer]" if one.ended is None else "answered") for one in copies.sends[:MOST_SHOWN_SENDS]
            ]
            shown += [(one, f"brings it, at {offsets}") for one in copies.reads]
            says = (f"a batch of {plural(identity.records, 'record')} is at offsets {offsets}: "
                    f"sent {times(sends)}, acknowledged {times(copies.acknowledged)}")  # fmt: skip
            hint, software = "", copies.sends[0].software
            if doubts[0] == "intent" and newest >= 0:
                producer = f"The producer ({software})" if software else "The producer"
                hint = f"{producer} has no idempotence, so a batch that is sent again may be stored again."
            yield candidate_of("duplicate", place, says, *shown, doubts=("anew", *doubts), hint=hint)


@dataclass(slots=True)
class SentBatches:
    """Batches that writes sent to one partition, and read batches without a write. `stored`: hashes of batches that may
    be stored. `forms`: attributes, by record count, of those without a producer id; `times`: their record counts and
    first timestamps. `refused`: batches that a broker refused. `unwritten`: read batches that are not in `stored`.
    `legacy`: some writes had messages older than batches, which brokers convert."""

    stored: set[int] = field(default_factory=set)
    forms: dict[int, set[int]] = field(default_factory=dict)
    times: set[tuple[int, int]] = field(default_factory=set)
    refused: dict[int, tuple[BatchFact, Witness]] = field(default_factory=dict)
    unwritten: dict[int, tuple[BatchFact, Witness]] = field(default_factory=dict)
    legacy: bool = False

    @property
    def size(self) -> int:
        """Approximate size in bytes."""
        return 1000 + 100 * len(self.stored) + 150 * len(self.times) + 800 * (len(self.unwritten) + len(self.refused))

    def may_have(self, batch: BatchFact) -> bool:
        """True if an unwritten batch may be older than the record, or a written one in another form."""
        count, same = batch.identity.records, {batch.attributes & IN_FORM}
        recast = self.forms.get(count, same) != same or (batch.oldest >= 0 and (count, batch.oldest) in self.times)
        return self.legacy or (batch.identity.producer_id < 0 and recast)


class SentBatchesCheck(HistoryCheck):
    """Checks of read batches against writes: some write has sent each, and no broker has refused it."""

    names = ("phantom-record", "refused-but-stored")

    def __init__(self, state: CheckState) -> None:
        super().__init__(state)
        self.shared = False
        self.sent: BoundedMap[tuple[PartitionPlace, int], SentBatches] = self.recent(
            MOST_PARTITIONS, SentBatches, lambda sent: sent.size
        )

    def of(self, place: PartitionPlace) -> SentBatches:
        """Batches of a partition since its topic was last re-created."""
        return self.sent[place, self.partitions.era(place.topic)]

    @handles(WriteFact)
    def written(self, write: WriteFact) -> None:
        sent = self.of(write.place)
        for batch in write.batches:
            key, count = key_of(batch), batch.identity.records
            if not batch.comparable:
                sent.legacy = True
            elif write.result == "failed":
                sent.refused[key] = batch, write.witness
            else:
                sent.stored.add(key)
                if (unwritten := sent.unwritten.pop(key, None)) is not None:
                    self.is_written(write.place, unwritten[1])
                if self.terms.assume_complete and batch.identity.producer_id < 0:
                    sent.forms.setdefault(count, set()).add(batch.attributes & IN_FORM)
                    sent.times.add((count, batch.oldest))
        if write.base is not None and all(self.state.is_first_attempt(one) for one in write.batches):
            history = self.partitions[write.place]
            history.begin = min(history.begin, write.base)
        if max(len(sent.stored), len(sent.times)) > MOST_SENT or len(sent.refused) > MOST_REFUSED:
            self.state.forgot.update(self.names)
            self.sent.discard((write.place, self.partitions.era(write.place.topic)))

    @handles(ReadFact)
    def read(self, read: ReadFact) -> None:
        """Keep the batches of a response that no write has sent so far."""
        self.shared = self.shared or read.shared
        sent, topic = self.of(read.place), read.place.topic
        if topic == read.topic_id or topic.startswith(INTERNAL) or not (sent.refused or self.terms.assume_complete):
            return
        for batch in read.batches:
            if not batch.comparable or batch.marker or not 0 < batch.identity.records == batch.delta + 1:
                continue  # compaction has changed the batch, or it is a marker
            key = key_of(batch)
            if key in sent.stored:
                self.is_written(read.place, read.witness)
            if sent.refused:
                self.compared("refused-but-stored", read.witness, place=read.place, doubts=("unseen", "anew"))
            if key in sent.stored or key in sent.unwritten or not (key in sent.refused or self.terms.assume_complete):
                continue
            if len(sent.unwritten) < MOST_UNWRITTEN:
                sent.unwritten[key] = batch, read.witness
            else:
                self.state.forgot.update(self.names)

    def is_written(self, place: PartitionPlace, witness: Witness) -> None:
        """Note a comparison: without a write of its batch, the response would have a phantom record."""
        if self.terms.assume_complete:
            self.compared("phantom-record", witness, place=place, doubts=("unseen", "anew"))

    def pending(self) -> Iterator[Candidate]:
        for (place, era), sent in self.sent.items():
            for key, (batch, witness) in sent.unwritten.items():
                other, refused = sent.refused.get(key, (batch, witness))
                same = alike(other, batch) and (other.newest == batch.newest or min(other.newest, batch.newest) < 0)
                if key in sent.refused and same and refused.began < (witness.ended or 0.0):
                    earlier = self.state.may_be_earlier(place, era, batch.base)
                    yield self.of_batch("refused-but-stored", place, batch, witness, refused, earlier=earlier)
                elif self.terms.proves_absence() and not self.is_explained(place, era, sent, batch):
                    yield self.of_batch("phantom-record", place, batch, witness)

    def is_explained(self, place: PartitionPlace, era: int, sent: SentBatches, batch: BatchFact) -> bool:
        """True if a batch without a write may be lawful, or has a finding of `inconsistent-offset`."""
        if sent.may_have(batch) or self.state.may_be_earlier(place, era, batch.base):
            return True
        history = self.partitions.histories.get(place)
        known = overlapping(history, batch) if history is not None and history.era == era else []
        return any(one.written is not None for one in known)

    def of_batch(
        self, check: str, place: PartitionPlace, batch: BatchFact, witness: Witness, refused: Witness | None = None, *,
        earlier: bool = False,
    ) -> Candidate:  # fmt: skip
        """Candidate for a batch that was read although it was not written, or `refused`. `earlier`: an equal batch may
        have been stored before the record."""
        shown = [(witness, spelled(batch, verb="read"))]
        numbers: list[tuple[int, int | None]] = [(witness.number, batch.base)]
        doubts = ["unseen", "anew", *["times"] * (batch.newest < 0), *["dead-letter"] * self.shared]
        why = "no write in the record has sent it"
        if refused is not None:
            shown, numbers = [(refused, "refused"), *shown], [(refused.number, None), *numbers]
            why = "its write had received an error that excludes that it was stored"
            doubts = ["unseen", "anew", *["earlier"] * earlier]
        says = f"a batch of {plural(batch.identity.records, 'record')} was read at offset {batch.base}, and {why}"
        question = BatchInQuestion(place, numbers)
        return candidate_of(check, place, says, *shown, doubts=doubts, batch=question)


def key_of(batch: BatchFact) -> int:
    """Hash that a written batch and its stored form have in common. A broker may store an idempotent batch with another
    checksum, but its sequence identifies it."""
    identity = batch.identity
    if identity.producer_id >= 0:
        return hash(identity[1:])
    return hash(identity)


def is_loose(known: KnownBatch, write: WriteFact | None) -> bool:
    """True if a new leader may lack the known batch, or that of this write."""
    unread = known.written is not None and known.read is None and known.acks != ALL_REPLICAS
    return unread or (write is not None and write.acks != ALL_REPLICAS)


def times(count: int) -> str:
    return {0: "never", 1: "once", 2: "twice"}.get(count, f"{count} times")


def spelled(batch: BatchFact, *, verb: str) -> str:
    place = f"{batch.base} to {batch.last}" if batch.delta else str(batch.base)
    return f"{verb} at {place}: {plural(batch.identity.records, 'record')}, checksum {batch.identity.crc:08x}"


def alike(known: BatchFact, batch: BatchFact) -> bool:
    # Contents differ with equal checksums if a checksum is not that of the bytes.
    differ = None not in (known.content, batch.content) and known.content != batch.content
    return known.identity == batch.identity and known.delta == batch.delta and not differ


def is_another_write(known: KnownBatch, batch: BatchFact, witness: Witness) -> bool:
    """True if an equal batch was acknowledged before or after, which gets an own offset without a producer id. Two
    proxies may have recorded one write: these exchanges overlap."""
    other = known.written
    return batch.identity.producer_id < 0 and other is not None and (other.before(witness) or witness.before(other))


def is_same(known: KnownBatch, batch: BatchFact, write: WriteFact | None) -> bool:
    """True if a batch is the known one, or its producer sent that one again in the form of either write."""
    if alike(known.batch, batch):
        return True
    if write is None:
        return False
    resent = known.sent is not None and alike(known.sent, batch)
    return resent or (known.written is not None and is_encoded_again(known.batch, batch))


def is_encoded_again(one: BatchFact, other: BatchFact) -> bool:
    """True if two batches have the same sequences of one producer. Brokers treat them as one batch, even if the
    producer encoded it differently."""
    return one.identity.producer_id >= 0 and one.identity[1:] == other.identity[1:] and one.delta == other.delta


def cleaned(one: BatchFact, other: BatchFact) -> bool:
    """True if one of two batches may be the other after compaction, which keeps the first and last offset. Each replica
    is compacted by itself, so the first read may be of the compacted one."""
    return one.base == other.base and one.delta == other.delta and one.identity.records != other.identity.records


def recast(known: KnownBatch, batch: BatchFact, write: WriteFact | None) -> bool:
    """True if one of two batches may be the stored form of the other, with another compression or timestamp. Their
    headers do not show if the records are equal."""
    one, two = known.batch, batch
    if one.delta != two.delta or one.identity[1:] != two.identity[1:]:
        return False
    if one.content is not None and two.content is not None:
        return one.content == two.content
    if known.read is not None and write is None:  # as replicas store them: each cleaner sets a horizon of its own
        alike_else = (one.attributes ^ two.attributes) & ~DELETE_HORIZON == 0
        return alike_else and bool((one.attributes | two.attributes) & DELETE_HORIZON)
    stamped = known.stamped or (write is not None and write.stamped)
    if stamped or (one.attributes ^ two.attributes) & IN_FORM:
        return True
    return one.oldest == two.oldest and one.newest != two.newest  # brokers mend a highest timestamp that is wrong


def untimed(one: BatchFact, other: BatchFact) -> bool:
    """True if two batches may be one whose broker corrected its timestamps, since one of them is unknown."""
    known = one.newest >= 0 and other.newest >= 0
    there = one.base == other.base and one.delta == other.delta
    return not known and there and one.identity[1:] == other.identity[1:]


def overlapping(history: PartitionHistory, batch: BatchFact) -> list[KnownBatch]:
    """The first few known batches that have an offset in common with this one."""
    below = history.batches.below(batch.base)
    found = [below] if below is not None and below.batch.last >= batch.base else []
    return found + list(islice(history.batches.between(batch.base, batch.last), MOST_CONFLICTS))
