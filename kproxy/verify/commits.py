"""Checks of a group's commits: they are kept, do not go back, and are below the offsets that clients have read."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from .facts import (
    ALL_REPLICAS,
    LAST_OFFSET,
    CommitFact,
    CommitToldFact,
    Fact,
    ForgottenFact,
    OffsetToldFact,
    PartitionPlace,
    ReadFact,
    WriteFact,
)
from .finding import Evidence
from .history_check import CheckState, FactHandler, HistoryCheck
from .recent import RecentMap
from .suspicion import Suspicion
from .topics import OFFSETS_LOG

MOST_COMMITTED = 100_000
"""Partitions of groups whose commits are remembered."""
MOST_OPEN = 64
"""Commits that may have been made, of one partition of a group; with more, nothing is said of it."""
MOST_TOLD = 16
SHORTEST_RETENTION = 60.0
"""Seconds that brokers keep a group's offsets at least, whatever they are told (offsets.retention.minutes)."""
RETENTION_BY_BROKER = 5
"""Version of OffsetCommit from which on clients do not say for how long a commit is kept, which may be 0."""
NO_COMMIT = -1
MOST_PARTITIONS = 100_000
MOST_BEYOND = 8
"""Commits beyond what was read, of one partition, that later writes may prove to be beyond the log end."""

CommitKey = tuple[str, PartitionPlace]


@dataclass(slots=True)
class CommittedOffsets:
    """Commits of one partition of a group. `last`: accepted ones of which none is known to be before another;
    `open`: those that may have been made, or may be at any later time. `told`: answers that told another offset.
    `lowest_told`: the lowest offset that was told since the highest commit, which `highest` is."""

    last: list[CommitFact] = field(default_factory=list)
    open: list[CommitFact] = field(default_factory=list)
    too_many: bool = False
    told: list[tuple[CommitToldFact, list[CommitFact]]] = field(default_factory=list)
    highest: CommitFact | None = None
    lowest_told: int | None = None
    era: int = 0


@dataclass(slots=True)
class KnownEnd:
    """End of a partition in the record. `received`: highest offset that some client has read up to, or received in a
    response. `end`: highest end of the log. `open`: records of writes with an unknown offset. `looked`: some client has
    read records. `transactions`: markers may follow the end. `beyond`: suspicions, each with its commit."""

    received: int = 0
    end: int = 0
    open: int = 0
    looked: bool = False
    transactions: bool = False
    beyond: deque[tuple[Suspicion, CommitFact]] = field(default_factory=lambda: deque(maxlen=MOST_BEYOND))

    def has(self, offset: int) -> None:
        """Take in an offset of the log that a client has received."""
        self.received, self.end = max(self.received, offset), max(self.end, offset)


def weight_of(known: CommittedOffsets) -> int:
    """Return how many bytes the commits of a group's partition take, roughly."""
    return 800 + 700 * (len(known.last) + len(known.open)) + 900 * len(known.told)


class CommitsCheck(HistoryCheck):
    """Check of the commits of all groups."""

    names = ("lost-commit", "commit-goes-back", "commit-beyond")

    def __init__(self, state: CheckState) -> None:
        super().__init__(state)
        self.committed: RecentMap[CommitKey, CommittedOffsets] = self.recent(
            MOST_COMMITTED, CommittedOffsets, weight_of
        )
        self.ends: RecentMap[PartitionPlace, KnownEnd] = self.recent(
            MOST_PARTITIONS, KnownEnd, lambda known: 500 + 2000 * len(known.beyond)
        )
        self.group_eras: RecentMap[str, list[int]] = self.recent(MOST_PARTITIONS, lambda: [0])
        self.groups: RecentMap[str, list[int]] = self.recent(MOST_PARTITIONS, list[int])

    def handlers(self) -> Mapping[type[Fact], FactHandler]:
        """Return what is to be called with each kind of fact."""
        return {
            CommitFact: self.commit,
            CommitToldFact: self.told,
            ForgottenFact: self.forgotten,
            ReadFact: self.read,
            OffsetToldFact: self.offset_told,
            WriteFact: self.written,
        }

    # ---- what is kept

    def of(self, group: str, place: PartitionPlace) -> CommittedOffsets:
        """Return the commits of a partition of a group, none from before either was deleted."""
        era = (
            self.partitions.era(place.topic) + self.group_eras[group][0] + self.group_eras[f"{group}\0{place.topic}"][0]
        )
        known = self.committed[group, place]
        if known.era != era:
            known = self.committed.entries[group, place] = CommittedOffsets(era=era)
        return known

    def forgotten(self, fact: ForgottenFact) -> None:
        """Begin the commits of a group again, or those of a topic in it: they were deleted."""
        if fact.group is not None:
            self.group_eras[fact.group if fact.topic is None else f"{fact.group}\0{fact.topic}"][0] += 1

    def commit(self, fact: CommitFact) -> None:
        """Take in a commit, and compare it with those before it and with what had been read."""
        if fact.result == "failed":
            return
        known = self.of(fact.group, fact.place)
        known.told = [
            (told, before)
            for told, before in known.told
            if not (fact.offset == told.offset and self.may_precede(fact, told))
        ]
        if fact.producer is not None or fact.result == "open" or fact.witness.ended is None:
            if len(known.open) >= MOST_OPEN:
                self.state.forgot["lost-commit"] += not known.too_many
                known.too_many = True
            else:
                known.open.append(fact)
            self.commits(fact)
            return
        self.state.counts["commits"] += 1
        self.groups[fact.group]
        self.goes_back(known, fact)
        known.last = [one for one in known.last if not one.witness.before(fact.witness)]
        if len(known.last) >= MOST_OPEN:
            self.state.forgot["lost-commit"] += not known.too_many
            known.too_many, known.last = True, known.last[-MOST_OPEN // 2 :]
        known.last.append(fact)
        if known.highest is None or fact.offset >= known.highest.offset:
            known.highest, known.lowest_told = fact, None
        self.beyond(fact)

    # ---- lost commits

    def told(self, fact: CommitToldFact) -> None:
        """Compare an offset that a group is told with those that it may have committed last."""
        known = self.of(fact.group, fact.place)
        if known.lowest_told is None or fact.offset < known.lowest_told:
            known.lowest_told = fact.offset
        self.commits(fact)
        if known.too_many or not known.last:
            return
        before = [one for one in known.last if one.witness.before(fact.witness)]
        if not before or (fact.offset == NO_COMMIT and self.may_be_expired(before, fact)):
            return
        self.compared("lost-commit", before[-1].witness, fact.witness)
        if any(one.offset == fact.offset for one in (*known.last, *known.open)):
            return
        if len(known.told) < MOST_TOLD:
            known.told.append((fact, before))

    def may_precede(self, commit: CommitFact, told: CommitToldFact) -> bool:
        """Return True if a commit may have been made before an answer told of it."""
        return told.witness.ended is None or commit.witness.began <= told.witness.ended

    def may_be_expired(self, before: list[CommitFact], told: CommitToldFact) -> bool:
        """Return True if a broker may have forgotten the last commit for its age."""
        if any(one.witness.api == "OffsetCommit" and one.witness.version < RETENTION_BY_BROKER for one in before):
            return True
        ended = max(one.witness.ended or one.witness.began for one in before)
        return (told.witness.ended or told.witness.began) - ended >= SHORTEST_RETENTION

    def pending(self) -> Iterable[Suspicion]:
        """Return the answers for which no commit that may have been the last one is known by now."""
        self.state.counts["groups"] = len(self.groups)
        return self._lost()

    def _lost(self) -> Iterator[Suspicion]:
        for (group, place), known in self.committed.entries.items():
            if known.too_many:
                continue
            for told, before in known.told:
                last = max(before, key=lambda one: one.witness.ended or 0.0)
                doubts = ["elsewhere", "unclean"]
                if told.offset == NO_COMMIT:
                    doubts.append("anew")
                if any(one.witness.node is None or one.witness.node != told.witness.node for one in before):
                    doubts.append("coordinator")
                offset = "none" if told.offset == NO_COMMIT else str(told.offset)
                yield Suspicion(
                    "lost-commit",
                    "proved",
                    f"group {group}, {place}",
                    f"the group is told {offset} although {last.offset} was committed last",
                    [
                        Evidence(last.witness, f"commits {last.offset}"),
                        Evidence(told.witness, f"tells {offset}"),
                    ],
                    tuple(doubts),
                    place,
                    logs=(OFFSETS_LOG,),
                )

    # ---- commits that go back, or beyond what was read

    def goes_back(self, known: CommittedOffsets, fact: CommitFact) -> None:
        """Keep a suspicion if a commit is less than an earlier one."""
        highest = known.highest
        if highest is None or not highest.witness.before(fact.witness):
            return
        later = fact.generation > highest.generation >= 0
        told = known.lowest_told
        if later and told is not None:  # otherwise a finding is a note
            self.compared("commit-goes-back", highest.witness, fact.witness)
        if fact.offset >= highest.offset:
            return
        unasked = later and told is not None and told > fact.offset
        self.suspect(
            Suspicion(
                "commit-goes-back",
                "suspect" if unasked else "note",
                f"group {fact.group}, {fact.place}",
                f"{fact.offset} was committed after {highest.offset}"
                + (f", in a later generation that was told {told}" if unasked else ""),
                [
                    Evidence(highest.witness, f"commits {highest.offset}"),
                    Evidence(fact.witness, f"commits {fact.offset}"),
                ],
                ("seek",),
                fact.place,
            )
        )
        known.highest, known.lowest_told = fact, None

    def read(self, read: ReadFact) -> None:
        """Note up to where a partition was read, and where its log ends."""
        known = self.ends[read.place]
        known.end = max(known.end, read.high_watermark, read.log_start)
        if read.batches or read.partial:
            known.looked = True
            known.has(LAST_OFFSET if read.following is None else read.following)

    def offset_told(self, fact: OffsetToldFact) -> None:
        """Note an offset in a ListOffsets response."""
        self.ends[fact.place].has(fact.offset)

    def written(self, write: WriteFact) -> None:
        """Note the end of a log by a write, and prove commits beyond it: what is written later has lower offsets.

        A batch with sequences proves nothing, since its base offset may be that of an earlier send.
        """
        if write.result == "failed":
            return
        known = self.ends[write.place]
        known.transactions |= any(one.transactional for one in write.batches)
        if write.base is None:
            known.open += sum(one.delta + 1 for one in write.batches)
            return
        known.end = max(known.end, write.batches[-1].last + 1 if write.batches else write.base)
        if write.acks != ALL_REPLICAS or any(one.identity.producer_id >= 0 for one in write.batches):
            return
        for suspicion, commit in known.beyond:
            if "unseen" in suspicion.doubts and commit.offset > write.base and commit.witness.before(write.witness):
                suspicion.level, suspicion.doubts = "proved", ("anew", "unclean")
                suspicion.evidence.append(Evidence(write.witness, f"base_offset {write.base}"))

    def commits(self, fact: CommitFact | CommitToldFact) -> None:
        """Note an offset that a client has committed, or that OffsetFetch has returned."""
        known = self.ends[fact.place]
        known.received = max(known.received, fact.offset)

    def beyond(self, fact: CommitFact) -> None:
        """Keep a suspicion if a commit is beyond all that clients had read or received.

        An operator may commit any offset of the log, and so may a client that seeks. In a complete record a commit
        beyond the end of the log is proved.
        """
        known = self.ends[fact.place]
        if known.looked:
            self.compared("commit-beyond", fact.witness)
        if known.looked and fact.offset > known.received:
            of_log = fact.offset > known.end + known.open and not known.transactions
            limit = (
                f"the log ended at {known.end}"
                if of_log
                else f"no client had read or received more than {known.received}"
            )
            suspicion = Suspicion(
                "commit-beyond",
                "proved" if of_log else "suspect",
                f"group {fact.group}, {fact.place}",
                f"{fact.offset} was committed, and {limit}",
                [Evidence(fact.witness, f"commits {fact.offset}")],
                ("unseen",) if of_log else ("operator", "unseen"),
                fact.place,
            )
            self.suspect(suspicion)
            known.beyond.append((suspicion, fact))
        self.commits(fact)
