"""Checks of a group's commits: lost, aborted, lower than before, or beyond the log."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from kproxy.base.bounded_map import BoundedMap

from .candidate import Candidate, candidate_of
from .cluster import COORDINATORS_LOGS, OFFSETS_LOG
from .facts import (
    ALL_REPLICAS,
    LAST_OFFSET,
    CommitFact,
    DeletionFact,
    FetchedCommitFact,
    ListedOffsetFact,
    PartitionPlace,
    ProducerFact,
    ReadFact,
    TransactionEndFact,
    Witness,
    WriteFact,
)
from .finding import Evidence
from .history_check import CheckState, HistoryCheck, handles

MOST_COMMITTED = 100_000  # partitions of groups
MOST_OPEN = 64  # commits of a group's partition with an unknown result or order; with more, it is not checked
MOST_ABORTED = 16  # commits of aborted transactions, by group and partition
MOST_REPORTED = 16
SHORTEST_RETENTION = 60.0  # seconds; offsets.retention.minutes is at least 1
RETENTION_BY_BROKER = 5  # OffsetCommit before this version names its own retention, even 0
NO_COMMIT = -1
MOST_PARTITIONS = 100_000
MOST_BEYOND = 8  # commits beyond what was read, of one partition, that later writes may prove to be beyond the log
MOST_PRODUCERS = 20_000
MOST_PENDING = 256  # commits of one transaction
MOST_DELETIONS = 16  # of one group, or of one topic in it
MOST_INPUTS = 256  # groups with aborted input of one partition

CommitKey = tuple[str, PartitionPlace]


@dataclass(slots=True)
class AppliedCommit:
    """Accepted commit. `end`: for a TxnOffsetCommit, the exchange that ended its transaction."""

    fact: CommitFact
    end: Witness | None = None

    def is_done_before(self, reported: FetchedCommitFact) -> bool:
        """True if an OffsetFetch certainly came after this commit took effect. Offsets of a transaction take effect
        with its marker, and only an OffsetFetch with `require_stable` waits for it."""
        if self.end is None:
            return self.fact.witness.before(reported.witness)
        return reported.stable and self.end.before(reported.witness)


@dataclass(slots=True)
class ReportedOffset:
    """Offset of an OffsetFetch that no commit explains so far. `commits`: the last ones before it. `aborted`: the
    TxnOffsetCommits of aborted transactions with this offset. `waiting`: those of transactions that were open then;
    `later`: those of them that were committed after the response. `moved`: it is higher than all commits, and no
    refused one has it, as in a group that went on past the record."""

    fact: FetchedCommitFact
    commits: list[AppliedCommit]
    aborted: list[AppliedCommit]
    waiting: list[CommitFact]
    moved: bool = False
    later: list[AppliedCommit] = field(default_factory=list)


@dataclass(slots=True)
class CommittedOffsets:
    """Commits of one partition of a group. `last`: accepted commits without a known later one. `open`: commits without
    a known result. `aborted`: TxnOffsetCommits of aborted transactions, with the exchanges that aborted them.
    `unexplained`: offsets of OffsetFetch that contradict `last`. `first`: the first OffsetFetch. `lowest`: the lowest
    offset that OffsetFetch reported since the commit `highest`. `refused`: offset of the last refused commit. `era`:
    number of deletions of the group, its topic, or the topic's offsets."""

    last: list[AppliedCommit] = field(default_factory=list)
    open: list[CommitFact] = field(default_factory=list)
    aborted: list[AppliedCommit] = field(default_factory=list)
    too_many: bool = False
    unexplained: list[ReportedOffset] = field(default_factory=list)
    first: FetchedCommitFact | None = None
    highest: CommitFact | None = None
    lowest: int | None = None
    refused: int = NO_COMMIT
    era: int = 0

    @property
    def size(self) -> int:
        """Approximate size in bytes."""
        commits = len(self.last) + len(self.open) + len(self.aborted)
        return 800 + 700 * commits + 900 * len(self.unexplained)


@dataclass(slots=True)
class CommittingGroup:
    """Group, or a topic in it. `era`: number of deletions of its commits. `deletions`: their first and last second;
    incomplete if `too_many`. `commits`: number of accepted ones."""

    era: int = 0
    deletions: list[tuple[float, float]] = field(default_factory=list)
    too_many: bool = False
    commits: int = 0

    def may_explain(self, witness: Witness) -> bool:
        """True if a deletion that had begun by the end of an exchange may have come later than it."""
        ended = math.inf if witness.ended is None else witness.ended
        return self.too_many or any(began <= ended < over for began, over in self.deletions)

    def overlaps(self, witness: Witness) -> bool:
        """True if an exchange may have come before a deletion that was recorded earlier."""
        return any(witness.began <= over < math.inf for _, over in self.deletions)


@dataclass(slots=True)
class KnownEnd:
    """End of a partition in the record. `received`: highest offset that a client has read up to or received in a
    response. `end`: highest log end. `open`: records of writes with an unknown offset. `looked`: a client has read
    records. `transactions`: markers may follow the end. `beyond`: candidates, each with its commit."""

    received: int = 0
    end: int = 0
    open: int = 0
    looked: bool = False
    transactions: bool = False
    beyond: deque[tuple[Candidate, CommitFact]] = field(default_factory=deque)
    loose: int = 0

    def has(self, offset: int) -> None:
        self.received, self.end = max(self.received, offset), max(self.end, offset)


class CommitsCheck(HistoryCheck):
    """Checks of the commits of all groups, and of the input that transactions commit with them."""

    names = ("lost-commit", "aborted-commit", "commit-goes-back", "commit-beyond", "skipped-input")

    def __init__(self, state: CheckState) -> None:
        super().__init__(state)
        self.committed: BoundedMap[CommitKey, CommittedOffsets] = self.recent(
            MOST_COMMITTED, CommittedOffsets, lambda known: known.size
        )
        self.ends: BoundedMap[PartitionPlace, KnownEnd] = self.recent(
            MOST_PARTITIONS, KnownEnd, lambda known: 500 + 2000 * len(known.beyond)
        )
        # By group, or by group and topic.
        self.groups: BoundedMap[str | tuple[str, str], CommittingGroup] = self.recent(
            2 * MOST_PARTITIONS, CommittingGroup, lambda group: 500 + 150 * len(group.deletions)
        )
        self.transactions: BoundedMap[int, list[CommitFact]] = self.recent(
            MOST_PRODUCERS, list[CommitFact], lambda pending: 500 + 100 * len(pending)
        )
        # Begin of the first EndTxn of a producer epoch without a known result.
        self.open_ends: BoundedMap[tuple[int, int], float] = self.recent(MOST_PRODUCERS, lambda: math.inf)
        # By group, the commit of an aborted transaction whose records no Fetch has read again.
        self.inputs: BoundedMap[PartitionPlace, dict[str, AppliedCommit]] = self.recent(
            MOST_PRODUCERS, dict[str, AppliedCommit], lambda inputs: 500 + 900 * len(inputs)
        )

    # ---- state of a group's partition

    def of(self, group: str, place: PartitionPlace) -> CommittedOffsets:
        """Commits of a group's partition since the group, topic or offsets were last deleted."""
        era = self.partitions.era(place.topic) + self.groups[group].era + self.groups[group, place.topic].era
        known = self.committed[group, place]
        if known.era != era:
            known = self.committed[group, place] = CommittedOffsets(era=era, unexplained=known.unexplained)
        return known

    @handles(DeletionFact)
    def forgotten(self, fact: DeletionFact) -> None:
        """Discard the commits of a deleted group, or of one topic in it."""
        if fact.group is None:
            return
        group = self.groups[fact.group if fact.topic is None else (fact.group, fact.topic)]
        group.era += 1
        if len(group.deletions) < MOST_DELETIONS:
            over = math.inf if fact.witness.ended is None else fact.witness.ended
            group.deletions.append((fact.witness.began, over))
        else:
            group.too_many = True

    @handles(CommitFact)
    def commit(self, fact: CommitFact) -> None:
        """Add a commit, and compare it with earlier commits and with the offsets that were read."""
        known = self.of(fact.group, fact.place)
        if fact.result == "failed":
            known.refused = fact.offset
            return
        began = fact.witness.began
        known.unexplained = [
            one for one in known.unexplained
            if fact.offset != one.fact.offset or began > (one.fact.witness.ended or math.inf)
        ]  # fmt: skip
        group, topic = self.groups[fact.group], self.groups[fact.group, fact.place.topic]
        deleted = group.overlaps(fact.witness) or topic.overlaps(fact.witness)
        if fact.producer is not None or fact.result == "open" or fact.witness.ended is None or deleted:
            self.wait(known, fact, deleted=deleted)
            return
        self.state.counts["commits"] += 1
        group.commits += 1
        self.state.counts["groups"] += group.commits == 1
        self.goes_back(known, fact)
        self.apply(known, AppliedCommit(fact))
        if known.highest is None or fact.offset >= known.highest.offset:
            known.highest, known.lowest = fact, None
        self.beyond(fact)

    def wait(self, known: CommittedOffsets, fact: CommitFact, *, deleted: bool) -> None:
        """Keep a commit without a known result. `deleted`: it overlaps a deletion, so its result stays unknown."""
        self.commits(fact)
        if len(known.open) >= MOST_OPEN:
            self.set_too_many(known)
            return
        known.open.append(fact)
        if fact.producer is not None and fact.result == "ok" and not deleted:
            pending = self.transactions[fact.producer[0]]
            if len(pending) < MOST_PENDING:
                pending.append(fact)

    def apply(self, known: CommittedOffsets, commit: AppliedCommit) -> None:
        """Add a commit to the last ones, and remove those that precede it, aborted or not."""
        known.aborted = [one for one in known.aborted if not one.fact.witness.before(commit.fact.witness)]
        known.last = [one for one in known.last if not one.fact.witness.before(commit.fact.witness)]
        if len(known.last) >= MOST_OPEN:
            self.set_too_many(known)
            del known.last[: MOST_OPEN // 2]
        known.last.append(commit)

    def set_too_many(self, known: CommittedOffsets) -> None:
        """Stop checking a partition of a group whose commits were not all kept."""
        self.state.forgot["lost-commit"] += not known.too_many
        self.state.forgot["aborted-commit"] += not known.too_many
        known.too_many = True

    # ---- commits of transactions

    @handles(TransactionEndFact)
    def ended(self, fact: TransactionEndFact) -> None:
        if fact.result == "open":
            key = fact.producer_id, fact.epoch
            self.open_ends[key] = min(self.open_ends[key], fact.witness.began)
        elif fact.result == "ok":
            self.decide_pending(fact, committed=fact.committed)

    @handles(ProducerFact)
    def initialized(self, fact: ProducerFact) -> None:
        """Discard the offsets of older epochs: InitProducerId aborts an open transaction before it succeeds."""
        if fact.aborts:
            self.decide_pending(fact, committed=False, older=True)

    def decide_pending(self, fact: TransactionEndFact | ProducerFact, *, committed: bool, older: bool = False) -> None:
        """Decide the pending commits of an epoch that precede its end, or those of `older` epochs."""
        pending = self.transactions.get(fact.producer_id) or []
        kept = []
        for commit in pending:
            epoch = -1 if commit.producer is None else commit.producer[1]
            if commit.witness.before(fact.witness) and (epoch < fact.epoch if older else epoch == fact.epoch):
                self.decide(commit, fact.witness, committed=committed)
            else:
                kept.append(commit)
        pending[:] = kept

    def decide(self, commit: CommitFact, end: Witness, *, committed: bool) -> None:
        known, decided = self.of(commit.group, commit.place), AppliedCommit(commit, end)
        for one in [one for one in known.unexplained if commit in one.waiting]:
            one.waiting.remove(commit)
            if end.began <= (one.fact.witness.ended or math.inf):
                known.unexplained.remove(one)
            else:
                (one.later if committed else one.aborted).append(decided)
        if commit not in known.open:  # its group or topic was deleted, or memory ran out
            return
        known.open.remove(commit)
        inputs = self.inputs[commit.place]
        before = inputs.pop(commit.group, None)
        if not committed:
            if len(known.aborted) == MOST_ABORTED:  # the first one may explain an offset if its end turns out unsure
                known.open.append(known.aborted.pop(0).fact)
            known.aborted.append(decided)
            if len(inputs) < MOST_INPUTS:
                inputs[commit.group] = decided
            return
        if before is not None:
            self.compared("skipped-input", before.fact.witness, end, place=commit.place)
            if commit.offset > before.fact.offset:
                self.skipped(before, decided)
        if not any(commit.witness.before(one.fact.witness) for one in known.last):
            # Coordinators order commits by when they were written, not by the marker that makes them visible.
            self.apply(known, decided)

    def skipped(self, aborted: AppliedCommit, commit: AppliedCommit) -> None:
        """Report a transaction beyond the input of an aborted one that no Fetch has read again."""
        first, last = aborted.fact, commit.fact
        says = (
            f"a transaction up to {first.offset} was aborted, and the next one goes up to {last.offset}, although "
            "no Fetch read the input of the first one again"
        )
        self.report(
            "skipped-input", f"group {last.group}, {last.place}", says,
            (aborted.end or first.witness, f"aborted, with offset {first.offset}"),
            (last.witness, f"offset {last.offset}"), (commit.end or last.witness, "committed"),
            doubts=("unseen",), place=last.place, level="suspect",
        )  # fmt: skip

    # ---- lost and aborted commits

    @handles(FetchedCommitFact)
    def reported(self, fact: FetchedCommitFact) -> None:
        """Compare the offset in an OffsetFetch response with the commits that may have been the last before it."""
        known = self.of(fact.group, fact.place)
        if known.lowest is None or fact.offset < known.lowest:
            known.lowest = fact.offset
        self.commits(fact)
        first, known.first = known.first, known.first or fact
        aborted = [one for one in known.aborted if one.fact.offset == fact.offset]
        if known.too_many or not all(one.is_done_before(fact) for one in known.last):
            return
        if fact.offset == NO_COMMIT and self.may_be_expired(known.last, fact):
            return
        if known.last:
            self.compared("lost-commit", known.last[-1].fact.witness, fact.witness)
        if known.aborted and (known.last or first is not None):
            self.compared("aborted-commit", known.aborted[-1].fact.witness, fact.witness)
        waiting = [one for one in known.open if one.offset == fact.offset]
        undecided = any(one.producer is None or one.result != "ok" for one in waiting)
        if undecided or any(one.fact.offset == fact.offset for one in known.last):
            return
        if len(known.unexplained) >= MOST_REPORTED:
            return
        # Without an accepted commit, an earlier OffsetFetch shows that the group was elsewhere before.
        if not known.last and (
            not aborted or first is None or first.offset == fact.offset
            or not first.witness.before(aborted[0].fact.witness)
        ):  # fmt: skip
            return
        highest = max((one.fact.offset for one in known.last), default=LAST_OFFSET)
        moved = fact.offset > highest and fact.offset != known.refused
        known.unexplained.append(ReportedOffset(fact, list(known.last), aborted, waiting, moved))

    def may_be_expired(self, last: list[AppliedCommit], reported: FetchedCommitFact) -> bool:
        """True if the coordinator may have removed the last commit after its retention."""
        for one in last:
            if one.fact.witness.api == "OffsetCommit" and one.fact.witness.version < RETENTION_BY_BROKER:
                return True
        ends = [one.end or one.fact.witness for one in last]
        ended = max((one.ended or one.began for one in ends), default=0.0)
        return (reported.witness.ended or reported.witness.began) - ended >= SHORTEST_RETENTION

    def pending(self) -> Iterable[Candidate]:
        """Yield a candidate for each offset of an OffsetFetch that no commit explains."""
        for (group, place), known in self.committed.items():
            deleted = (self.groups.get(group), self.groups.get((group, place.topic)))
            for one in known.unexplained:
                gone = any(by is not None and by.may_explain(one.fact.witness) for by in deleted)
                unsure = any(map(self.is_unsure, (*one.commits, *one.aborted, *one.later)))
                if not (known.too_many or gone or one.waiting or unsure):
                    yield self.unexplained(f"group {group}, {place}", place, one)

    def is_unsure(self, commit: AppliedCommit) -> bool:
        """True if an EndTxn without a known result may have ended the transaction of a commit. It may take effect at
        any time after it was sent, and is recorded when its connection ends."""
        if commit.end is None or commit.fact.producer is None:
            return False
        began = self.open_ends.get(commit.fact.producer)
        return began is not None and (commit.end.ended is None or began <= commit.end.ended)

    def unexplained(self, about: str, place: PartitionPlace, reported: ReportedOffset) -> Candidate:
        """Candidate for an OffsetFetch that reported an aborted transaction's offset, or not the last commit."""
        fact, aborted = reported.fact, reported.aborted[0] if reported.aborted else None
        commits = [one.fact for one in (reported.commits if aborted is None else [aborted])]
        doubts: tuple[str, ...] = ("elsewhere", "unclean")
        if fact.offset == NO_COMMIT:
            doubts += ("anew",)
        if any(one.witness.may_be_elsewhere(fact.witness) for one in commits):
            doubts += ("coordinator",)
        if reported.later or any(one.producer is not None for one in commits):
            doubts += ("unseen",)  # such as an EndTxn between the commit and the end that the record has
        offset = "none" if fact.offset == NO_COMMIT else str(fact.offset)
        last = max(commits, key=lambda one: one.witness.ended or 0.0)
        shown = [(last.witness, f"commits {last.offset}"), (fact.witness, f"reports {offset}")]
        if aborted is None or aborted.end is None:
            says = f"OffsetFetch reports {offset} although {last.offset} was committed last"
            shown += [(one.end, f"commits the transaction with {offset}") for one in reported.later if one.end]
            lost = not reported.moved or reported.later or self.terms.proves_absence()
            return candidate_of(
                "lost-commit", about, says, *shown, doubts=doubts, place=place, logs=(OFFSETS_LOG,),
                level="proved" if lost else "note",
            )  # fmt: skip
        says = f"OffsetFetch reports {offset}, which only an aborted transaction committed"
        shown.insert(1, (aborted.end, "aborts"))
        return candidate_of("aborted-commit", about, says, *shown, doubts=doubts, place=place, logs=COORDINATORS_LOGS)

    # ---- commits that go back, or beyond what was read

    def goes_back(self, known: CommittedOffsets, fact: CommitFact) -> None:
        highest = known.highest
        if highest is None or not highest.witness.before(fact.witness):
            return
        later = fact.generation > highest.generation >= 0
        lowest = known.lowest
        if later and lowest is not None:  # otherwise a finding is a note
            self.compared("commit-goes-back", highest.witness, fact.witness)
        if fact.offset >= highest.offset:
            return
        unread = later and lowest is not None and lowest > fact.offset
        says = f"{fact.offset} was committed after {highest.offset}"
        if unread:
            says += f", in a later generation to which OffsetFetch reported {lowest}"
        self.report(
            "commit-goes-back", f"group {fact.group}, {fact.place}", says,
            *((one.witness, f"commits {one.offset}") for one in (highest, fact)), doubts=("seek",), place=fact.place,
            level="suspect" if unread else "note",
        )  # fmt: skip
        known.highest, known.lowest = fact, None

    @handles(ReadFact)
    def read(self, read: ReadFact) -> None:
        known = self.ends[read.place]
        known.end = max(known.end, read.high_watermark, read.log_start)
        if not (read.batches or read.partial):
            return
        following = LAST_OFFSET if read.following is None else read.following
        known.looked = True
        known.has(following)
        first = read.position
        if first is None:
            first = read.batches[0].base if read.batches and not read.partial else 0
        inputs = self.inputs.get(read.place) or {}
        for group, one in list(inputs.items()):
            if first < one.fact.offset <= following and one.end is not None and one.end.before(read.witness):
                self.compared("skipped-input", one.fact.witness, read.witness, place=read.place)
                del inputs[group]
                self.compared("skipped-input", one.fact.witness, read.witness, place=read.place)

    @handles(ListedOffsetFact)
    def offset_listed(self, fact: ListedOffsetFact) -> None:
        self.ends[fact.place].has(fact.offset)

    @handles(WriteFact)
    def written(self, write: WriteFact) -> None:
        """Note the log end, and prove earlier commits beyond it by the lower offset of a later write. An idempotent
        batch proves nothing, since its base offset may be that of an earlier attempt."""
        if write.result == "failed":
            return
        known = self.ends[write.place]
        known.transactions |= any(one.transactional for one in write.batches)
        if write.base is None:
            known.open += sum(one.delta + 1 for one in write.batches)
        else:
            end = write.batches[-1].last + 1 if write.batches else write.base
            known.end = max(known.end, end)
            if write.acks != ALL_REPLICAS:
                known.loose = max(known.loose, end)
        sure = write.acks == ALL_REPLICAS and all(one.identity.producer_id < 0 for one in write.batches)
        for candidate, commit in known.beyond:
            if not commit.witness.before(write.witness):
                if known.transactions or commit.offset <= known.end + known.open:
                    excuse(candidate)
            elif write.base is not None and sure and commit.offset > write.base:
                candidate.level, candidate.doubts = "proved", ("anew", "unclean")
                if commit.offset <= known.loose:
                    candidate.doubts += ("truncation",)
                candidate.evidence.append(Evidence(write.witness, f"base_offset {write.base}"))
                known.beyond.remove((candidate, commit))
                break

    def commits(self, fact: CommitFact | FetchedCommitFact) -> None:
        known = self.ends[fact.place]
        known.received = max(known.received, fact.offset)

    def beyond(self, fact: CommitFact) -> None:
        """Report a commit beyond all offsets that clients read or received. An operator, or a client that seeks, may
        commit any offset of the log. A commit beyond the log end is proved in a complete record with the topic's
        creation. Otherwise the log may have had a higher end before."""
        known = self.ends[fact.place]
        if known.looked:
            self.compared("commit-beyond", fact.witness)
        if known.looked and fact.offset > known.received:
            of_log = fact.offset > known.end + known.open and not known.transactions
            made = self.topics.is_created(fact.place.topic)
            limit = f"no client had read or received more than {known.received}"
            if of_log:
                limit = f"the log ended at {known.end}"
            candidate = self.report(
                "commit-beyond", f"group {fact.group}, {fact.place}", f"{fact.offset} was committed, and {limit}",
                (fact.witness, f"commits {fact.offset}"), level="proved" if of_log and made else "suspect",
                doubts=("unseen", "anew") if of_log and made else ("operator", "unseen"), place=fact.place,
            )  # fmt: skip
            if len(known.beyond) == MOST_BEYOND:
                excuse(known.beyond.popleft()[0])
            known.beyond.append((candidate, fact))
        self.commits(fact)


def excuse(candidate: Candidate) -> None:
    """Make a candidate suspect, since the commit may be below the log end."""
    candidate.level, candidate.doubts = "suspect", ("operator", "unseen")
