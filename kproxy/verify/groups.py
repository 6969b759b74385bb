"""Checks of groups: that a partition has one owner, and not none for too long."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from .facts import AssignmentFact, Fact, JoinFact, OwnershipFact, PartitionPlace, Witness
from .finding import Evidence
from .history_check import CheckState, FactHandler, HistoryCheck
from .recent import RecentMap
from .suspicion import Suspicion

ASSIGNORS = frozenset({"range", "roundrobin", "sticky", "cooperative-sticky", "uniform"})
"""Assignors that give a partition to one member, in all clients that have them."""
CONSUMERS = "consumer"
SESSION = 45.0
"""Seconds of silence after which a broker takes a member for gone, unless it is told otherwise."""
MOST_GROUPS = 20_000
MOST_OWNED = 200_000
MOST_MEMBERS = 50_000
MOST_DOUBTED = 64
"""Suspicions about one member that wait for what it may have said meanwhile."""


@dataclass(slots=True)
class ClassicGroup:
    """Classic group as its members' requests show it. `protocol`: generation and assignor, as JoinGroup told them last.
    `joining`: the first JoinGroup since the last assignment;
    `timeout`: seconds that its members say a rebalance may take."""

    protocol_type: str = ""
    protocol: tuple[int, str] = (-1, "")
    joining: Witness | None = None
    timeout: float = 0.0


class ClassicGroupsCheck(HistoryCheck):
    """Check of the assignments that leaders of classic groups make."""

    names = ("two-owners", "rebalance-gap")

    def __init__(self, state: CheckState) -> None:
        super().__init__(state)
        self.groups: RecentMap[str, ClassicGroup] = self.recent(MOST_GROUPS, ClassicGroup)

    def handlers(self) -> Mapping[type[Fact], FactHandler]:
        """Return what is to be called with each kind of fact."""
        return {JoinFact: self.joined, AssignmentFact: self.assigned}

    def joined(self, fact: JoinFact) -> None:
        """Note that a group's members are to get other partitions."""
        group = self.groups[fact.group]
        group.protocol_type = fact.protocol_type or group.protocol_type
        if fact.protocol:
            group.protocol = fact.generation, fact.protocol
        group.joining = group.joining or fact.witness
        group.timeout = max(group.timeout, fact.timeout)

    def assigned(self, fact: AssignmentFact) -> None:
        """Look for partitions that belong to two members, and at how long the group had none."""
        if fact.result == "failed":
            return
        group = self.groups[fact.group]
        if (fact.protocol_type or group.protocol_type) == CONSUMERS:
            told = group.protocol[1] if group.protocol[0] == fact.generation else ""
            self.owners(fact, (fact.protocol or told).lower() in ASSIGNORS)
        joining, ended = group.joining, fact.witness.ended
        if joining is not None and ended is not None and group.timeout > 0:
            self.compared("rebalance-gap", joining, fact.witness)
        if joining is not None and ended is not None and ended - joining.began > group.timeout > 0:
            self.suspect(
                Suspicion(
                    "rebalance-gap",
                    "note",
                    f"group {fact.group}",
                    f"its partitions had no owner for {ended - joining.began:.1f} s, and a rebalance may take "
                    f"{group.timeout:g} s",
                    [Evidence(joining, "joins"), Evidence(fact.witness, f"assigns, generation {fact.generation}")],
                )
            )
        group.joining, group.timeout = None, 0.0

    def owners(self, fact: AssignmentFact, known: bool) -> None:
        """Keep a suspicion for a partition that one assignment gives to two members. `known`: by an assignor that gives
        each to one."""
        doubts = () if known else ("assignor",)
        if sum(map(bool, fact.members.values())) > 1:
            self.compared("two-owners", fact.witness, doubts=doubts)
        owners: dict[PartitionPlace, str] = {}
        for member, places in fact.members.items():
            for place in places:
                other = owners.setdefault(place, member)
                if other != member:
                    self.suspect(
                        Suspicion(
                            "two-owners",
                            "proved",
                            f"group {fact.group}",
                            f"{place} belongs to {other} and to {member} in generation {fact.generation}",
                            [Evidence(fact.witness, f"generation {fact.generation}: {place} twice")],
                            doubts,
                        )
                    )


@dataclass(slots=True)
class PartitionOwner:
    """Member that a broker has given a partition to. `era`: of the member, when it had it last."""

    member: str = ""
    era: int = -1
    witness: Witness | None = None


@dataclass(slots=True)
class OwningMember:
    """Member of a group whose broker assigns. What it owned in an earlier era it has given up. `last`: its last
    heartbeat; `doubted`: suspicions that a heartbeat of its own may clear, with the partition and the time of each."""

    era: int = 0
    last: Witness | None = None
    doubted: list[tuple[Suspicion, PartitionPlace, float]] = field(default_factory=list)


class BrokerGroupsCheck(HistoryCheck):
    """Check of the partitions that brokers assign (KIP-848): each is given up before another member gets it."""

    names = ("two-owners",)

    def __init__(self, state: CheckState) -> None:
        super().__init__(state)
        self.owners: RecentMap[tuple[str, PartitionPlace], PartitionOwner] = self.recent(MOST_OWNED, PartitionOwner)
        self.members: RecentMap[tuple[str, str], OwningMember] = self.recent(
            MOST_MEMBERS, OwningMember, lambda member: 800 + 3000 * len(member.doubted)
        )

    def handlers(self) -> Mapping[type[Fact], FactHandler]:
        """Return what is to be called with each kind of fact."""
        return {OwnershipFact: self.heartbeat}

    def heartbeat(self, fact: OwnershipFact) -> None:
        """Take in what a member has, and look whose it was what it is given."""
        member = self.members[fact.group, fact.member]
        member.last = fact.witness
        if fact.gone or fact.owned is not None:
            owned = set(() if fact.gone or fact.owned is None else fact.owned)
            for suspicion, place, ended in member.doubted:
                if place not in owned and fact.witness.began <= ended:
                    suspicion.void = True
            member.doubted = [one for one in member.doubted if not one[0].void]
            member.era += 1
            for place in owned:
                self.own(fact, place, member)
        for place in fact.given or ():
            self.give(fact, place)
            self.own(fact, place, member)

    def own(self, fact: OwnershipFact, place: PartitionPlace, member: OwningMember) -> None:
        """Note that a partition is a member's."""
        owner = self.owners[fact.group, place]
        owner.member, owner.era, owner.witness = fact.member, member.era, fact.witness

    def give(self, fact: OwnershipFact, place: PartitionPlace) -> None:
        """Keep a suspicion if a partition that a member is given is another's."""
        owner = self.owners.get((fact.group, place))
        if owner is None or owner.witness is None or owner.member == fact.member:
            return
        if owner.witness.before(fact.witness):
            self.compared("two-owners", owner.witness, fact.witness)
        other = self.members.get((fact.group, owner.member))
        ended = fact.witness.ended
        if other is None or other.last is None or other.era != owner.era or ended is None:
            return
        if ended - (other.last.ended or other.last.began) > SESSION or not owner.witness.before(fact.witness):
            return
        suspicion = self.suspect(
            Suspicion(
                "two-owners",
                "proved",
                f"group {fact.group}",
                f"{place} is given to {fact.member} although {owner.member} has not given it up",
                [
                    Evidence(owner.witness, f"{owner.member} has {place}"),
                    Evidence(fact.witness, f"{fact.member} is given it"),
                ],
                ("expired",),
            )
        )
        if len(other.doubted) < MOST_DOUBTED:
            other.doubted.append((suspicion, place, ended))

    def pending(self) -> Iterable[Suspicion]:
        """Return nothing more: what is suspected has been told, and may be void by now."""
        return ()
