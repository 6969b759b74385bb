"""Checks of what consumers pass over: input that nobody was given, and input of an aborted transaction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .facts import (
    LAST_OFFSET,
    AskedFact,
    AssignmentFact,
    CommitFact,
    CommitToldFact,
    Fact,
    JoinFact,
    MemberFact,
    OffsetToldFact,
    OwnershipFact,
    PartitionPlace,
    ReadFact,
    TransactionEndFact,
    Witness,
)
from .finding import Evidence
from .history_check import CheckState, FactHandler, HistoryCheck
from .recent import RecentMap
from .suspicion import Suspicion

MOST_CLIENTS = 20_000
MOST_POSITIONS = 1000
"""Partitions of one client whose next offset is remembered."""
MOST_PRODUCERS = 20_000
MOST_INPUTS = 256
"""Partitions that one transaction commits offsets of."""


@dataclass(slots=True)
class ConsumerPositions:
    """Next offsets of one client's partitions. `given`: by connection and partition, as the answer there left it, with
    that answer; `furthest`: of any connection."""

    given: RecentMap[tuple[tuple[str, int], PartitionPlace], list[tuple[int, Witness]]] = field(
        default_factory=lambda: RecentMap(MOST_POSITIONS, list[tuple[int, Witness]])
    )
    furthest: RecentMap[PartitionPlace, list[int]] = field(
        default_factory=lambda: RecentMap(MOST_POSITIONS, lambda: [0])
    )


class PositionsCheck(HistoryCheck):
    """Check that a consumer asks for what follows on what it was given."""

    names = ("skipped-input",)

    def __init__(self, state: CheckState) -> None:
        super().__init__(state)
        self.clients: RecentMap[tuple[str, str], ConsumerPositions] = self.recent(
            MOST_CLIENTS, ConsumerPositions, lambda one: 1000 + 700 * len(one.given) + 400 * len(one.furthest)
        )

    def handlers(self) -> Mapping[type[Fact], FactHandler]:
        """Return what is to be called with each kind of fact."""
        moved = (CommitToldFact, OffsetToldFact, JoinFact, AssignmentFact, OwnershipFact, MemberFact)
        return {AskedFact: self.asked, ReadFact: self.read, **dict.fromkeys(moved, self.moved)}

    def moved(
        self, fact: CommitToldFact | OffsetToldFact | JoinFact | AssignmentFact | OwnershipFact | MemberFact
    ) -> None:
        """Forget where a client is: it was given other partitions or offsets, or may be."""
        if isinstance(fact, MemberFact) and not fact.left:
            return
        if isinstance(fact, OwnershipFact) and fact.given is None and not fact.gone:
            return
        self.clients.forget(fact.witness.client_key)

    def read(self, read: ReadFact) -> None:
        """Note what follows on an answer."""
        following = read.following
        if following is None:
            if read.partial:
                self.clients.forget(read.witness.client_key)
            return
        client = self.clients[read.witness.client_key]
        client.given[read.witness.connection, read.place][:] = [(following, read.witness)]
        furthest = client.furthest[read.place]
        furthest[0] = max(furthest[0], following)

    def asked(self, asked: AskedFact) -> None:
        """Keep a suspicion if a client asks for more than follows on what it was given."""
        client = self.clients.get(asked.witness.client_key)
        if client is None:
            return
        key = asked.witness.connection, asked.place
        given = client.given.get(key)
        if asked.failed:
            client.given.forget(key)
            return
        if not given or not given[0][1].before(asked.witness):
            return
        following, witness = given[0]
        self.compared("skipped-input", witness, asked.witness, place=asked.place)
        if asked.position <= client.furthest[asked.place][0]:
            return
        self.suspect(
            Suspicion(
                "skipped-input",
                "suspect",
                str(asked.place),
                f"a consumer was given what is below {following}, and asks for {asked.position} next",
                [Evidence(witness, f"given up to {following - 1}"), Evidence(asked.witness, f"from {asked.position}")],
                ("seek",),
                asked.place,
            )
        )
        client.given.forget(key)


@dataclass(slots=True)
class AbortedInput:
    """Offset that an aborted transaction would have committed. `again`: the record before it was read again since."""

    offset: int
    end: TransactionEndFact
    again: bool = False


InputKey = tuple[str, PartitionPlace]


class CopiersCheck(HistoryCheck):
    """Check that what a transaction had consumed is consumed again when it was aborted."""

    names = ("skipped-input",)

    def __init__(self, state: CheckState) -> None:
        super().__init__(state)
        self.inputs: RecentMap[int, dict[InputKey, CommitFact]] = self.recent(
            MOST_PRODUCERS, dict[InputKey, CommitFact], lambda inputs: 500 + 900 * len(inputs)
        )
        self.aborted: RecentMap[PartitionPlace, dict[str, AbortedInput]] = self.recent(
            MOST_PRODUCERS, dict[str, AbortedInput], lambda aborted: 500 + 900 * len(aborted)
        )

    def handlers(self) -> Mapping[type[Fact], FactHandler]:
        """Return what is to be called with each kind of fact."""
        return {CommitFact: self.committed, TransactionEndFact: self.ended, ReadFact: self.read}

    def committed(self, fact: CommitFact) -> None:
        """Note an offset that is committed with a transaction."""
        if fact.producer is None or fact.result == "failed":
            return
        inputs = self.inputs[fact.producer[0]]
        if len(inputs) < MOST_INPUTS:
            inputs[fact.group, fact.place] = fact

    def read(self, read: ReadFact) -> None:
        """Note that input of an aborted transaction was read again."""
        aborted = self.aborted.get(read.place)
        if not aborted or not (read.batches or read.partial):
            return
        first = read.position
        if first is None:
            first = read.batches[0].base if read.batches and not read.partial else 0
        following = LAST_OFFSET if read.following is None else read.following
        for one in aborted.values():
            if first < one.offset <= following and one.end.witness.before(read.witness):
                one.again = True

    def ended(self, fact: TransactionEndFact) -> None:
        """Compare the offsets that a transaction commits with those of one that was aborted before."""
        inputs = self.inputs.get(fact.producer_id)
        if not inputs or fact.result != "ok":
            return
        for (group, place), commit in inputs.items():
            aborted = self.aborted[place]
            if not fact.committed:
                if len(aborted) < MOST_INPUTS:
                    aborted[group] = AbortedInput(commit.offset, fact)
                continue
            before = aborted.pop(group, None)
            if before is not None:
                self.compared("skipped-input", before.end.witness, fact.witness, place=place)
            if before is not None and not before.again and commit.offset > before.offset:
                self.skipped(group, place, before, commit, fact)
        self.inputs.forget(fact.producer_id)

    def skipped(
        self, group: str, place: PartitionPlace, before: AbortedInput, commit: CommitFact, end: TransactionEndFact
    ) -> None:
        """Keep a suspicion that the input of an aborted transaction was passed over."""
        self.suspect(
            Suspicion(
                "skipped-input",
                "suspect",
                f"group {group}, {place}",
                f"a transaction up to {before.offset} was aborted, and the next one goes up to {commit.offset}, "
                "although nobody read the input of the first one again",
                [
                    Evidence(before.end.witness, f"aborted, with offset {before.offset}"),
                    Evidence(commit.witness, f"offset {commit.offset}"),
                    Evidence(end.witness, "committed"),
                ],
                ("unseen",),
                place,
            )
        )
