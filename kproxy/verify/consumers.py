"""Check of the positions of consumers: each requests the offset that follows its last response."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .facts import (
    AskedFact,
    AssignmentFact,
    CommitToldFact,
    ConnectionKey,
    Fact,
    JoinFact,
    MemberFact,
    OffsetToldFact,
    OwnershipFact,
    PartitionPlace,
    ReadFact,
    Witness,
)
from .history_check import CheckState, FactHandler, HistoryCheck
from .lru_map import RecentMap

MOST_CLIENTS = 20_000
MOST_POSITIONS = 1000
"""Partitions of one client whose next offset is remembered."""


@dataclass(slots=True)
class ConsumerPositions:
    """Next offsets of one client's partitions. `given`: by connection and partition, as the answer there left it, with
    that answer; `furthest`: of any connection."""

    given: RecentMap[tuple[ConnectionKey, PartitionPlace], list[tuple[int, Witness]]] = field(
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
        says = f"a consumer was given what is below {following}, and asks for {asked.position} next"
        self.report(
            "skipped-input", str(asked.place), says, (witness, f"given up to {following - 1}"),
            (asked.witness, f"from {asked.position}"), doubts=("seek",), place=asked.place, level="suspect",
        )  # fmt: skip
        client.given.forget(key)
