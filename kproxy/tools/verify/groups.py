"""Checks of groups: partitions with two owners or without one, and generations that go back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from kproxy.base.bounded_map import BoundedMap

from .candidate import Candidate
from .cluster import OFFSETS_LOG
from .facts import AssignmentFact, JoinFact, MemberEpochFact, OwnedPartition, OwnershipFact, PartitionPlace, Witness
from .finding import Evidence
from .history_check import CheckState, HistoryCheck, handles

# Assignors that give each partition to one member, in all clients.
ASSIGNORS = frozenset({"range", "roundrobin", "sticky", "cooperative-sticky", "uniform"})
CONSUMERS = "consumer"
SESSION = 45.0  # default session timeout in seconds
PartitionKey = tuple[str, str, int]
MOST_GROUPS = 20_000
MOST_OWNED = 200_000
MOST_MEMBERS = 50_000
MOST_DOUBTED = 64  # gifts of one member's partitions that its heartbeats confirm or excuse


@dataclass(slots=True)
class ClassicGroup:
    """Classic group in its members' requests. `protocol`: generation and assignor of the last JoinGroup response.
    `joining`: the first JoinGroup since the last assignment. `timeout`: rebalance timeout in seconds."""

    protocol_type: str = ""
    protocol: tuple[int, str] = (-1, "")
    joining: Witness | None = None
    timeout: float = 0.0


class ClassicGroupsCheck(HistoryCheck):
    names = ("two-owners", "rebalance-gap")

    def __init__(self, state: CheckState) -> None:
        super().__init__(state)
        self.groups: BoundedMap[str, ClassicGroup] = self.recent(MOST_GROUPS, ClassicGroup)

    @handles(JoinFact)
    def joined(self, fact: JoinFact) -> None:
        group = self.groups[fact.group]
        group.protocol_type = fact.protocol_type or group.protocol_type
        if fact.protocol:
            group.protocol = fact.generation, fact.protocol
        group.joining = group.joining or fact.witness
        group.timeout = max(group.timeout, fact.timeout)

    @handles(AssignmentFact)
    def assigned(self, fact: AssignmentFact) -> None:
        """Check the owners of an assignment, and the time since the rebalance began."""
        if fact.result == "failed":
            return
        group = self.groups[fact.group]
        if (fact.protocol_type or group.protocol_type) == CONSUMERS:
            assignor = group.protocol[1] if group.protocol[0] == fact.generation else ""
            self.owners(fact, (fact.protocol or assignor).lower() in ASSIGNORS)
        joining, ended = group.joining, fact.witness.ended
        if joining is not None and ended is not None and group.timeout > 0:
            self.compared("rebalance-gap", joining, fact.witness)
        if joining is not None and ended is not None and ended - joining.began > group.timeout > 0:
            gap = ended - joining.began
            says = f"its partitions had no owner for {gap:.1f} s, and a rebalance may take {group.timeout:g} s"
            shown = [(joining, "joins"), (fact.witness, f"assigns, generation {fact.generation}")]
            self.report("rebalance-gap", f"group {fact.group}", says, *shown, level="note")
        group.joining, group.timeout = None, 0.0

    def owners(self, fact: AssignmentFact, known: bool) -> None:
        """Report a partition that one assignment gives to two members. `known`: the assignor never does so."""
        doubts = () if known else ("assignor",)
        if sum(map(bool, fact.members.values())) > 1:
            self.compared("two-owners", fact.witness, doubts=doubts)
        owners: dict[PartitionPlace, str] = {}
        for member, places in fact.members.items():
            for place in places:
                other = owners.setdefault(place, member)
                if other != member:
                    says = f"{place} belongs to {other} and to {member} in generation {fact.generation}"
                    shown = fact.witness, f"generation {fact.generation}: {place} twice"
                    self.report("two-owners", f"group {fact.group}", says, shown, doubts=() if known else ("assignor",))


class PartitionOwner(NamedTuple):
    """Member with a partition. `era`: era of the member when it last had the partition."""

    member: str
    era: int
    witness: Witness


class DoubtedGift(NamedTuple):
    """Response that gave a member's partition to another member, with its candidate."""

    candidate: Candidate
    partition: PartitionKey
    witness: Witness


@dataclass(slots=True)
class OwningMember:
    """Member of a consumer group (KIP-848). Each list of its partitions begins a new era, since it gives up those of
    earlier eras that are not in the list. `last`: its last heartbeat. `doubted`: assignments of its partitions to other
    members, which its later heartbeats confirm or excuse."""

    era: int = 0
    last: Witness | None = None
    doubted: list[DoubtedGift] = field(default_factory=list)


class BrokerGroupsCheck(HistoryCheck):
    """Check of assignments by coordinators (KIP-848): a partition gets a new owner after the old one gave it up."""

    names = ("two-owners",)

    def __init__(self, state: CheckState) -> None:
        super().__init__(state)
        self.owners: BoundedMap[PartitionKey, PartitionOwner] = self.recent(MOST_OWNED)
        self.members: BoundedMap[tuple[str, str], OwningMember] = self.recent(
            MOST_MEMBERS, OwningMember, lambda member: 800 + 3000 * len(member.doubted)
        )

    @handles(OwnershipFact)
    def heartbeat(self, fact: OwnershipFact) -> None:
        """Update a member's partitions, and find other owners of those that it receives."""
        member = self.members[fact.group, fact.member]
        if member.last is None or member.last.began < fact.witness.began:
            member.last = fact.witness
        joins = fact.epoch == 0
        self.review(fact, member)
        if fact.gone or joins or fact.owned is not None:
            member.era += 1
            if fact.accepted and not (fact.gone or joins):
                # Without a response the coordinator may have fenced the member, and given its partitions away.
                for one in fact.owned or ():
                    self.own(fact, one, member)
        for one in fact.given or ():
            self.give(fact, one)
            self.own(fact, one, member)

    def review(self, fact: OwnershipFact, member: OwningMember) -> None:
        """Confirm or excuse assignments of a member's partitions by its other heartbeats. A coordinator fences a
        removed member, so a later accepted heartbeat shows that the member kept its partitions until then. A heartbeat
        without a response may be recorded late, and then excuses a confirmed assignment."""
        if not member.doubted:
            return
        owned = None if fact.owned is None and not fact.gone else {key_of(fact, one) for one in fact.owned or ()}
        for one in member.doubted:
            candidate, ended = one.candidate, one.witness.ended
            later = one.witness.before(fact.witness)
            if not later:
                given_up = owned is not None and one.partition not in owned
                candidate.void = given_up and (ended is None or fact.witness.began <= ended)
            elif "expired" not in candidate.doubts or fact.witness.ended is None:
                continue
            elif not fact.accepted or fact.epoch <= 0:
                candidate.void = True
            elif not one.witness.may_be_elsewhere(fact.witness):
                candidate.doubts = tuple(doubt for doubt in candidate.doubts if doubt != "expired")
                candidate.evidence.append(Evidence(fact.witness, f"{fact.member} is still a member"))
        member.doubted = [one for one in member.doubted if not one.candidate.void]

    def own(self, fact: OwnershipFact, partition: OwnedPartition, member: OwningMember) -> None:
        self.owners[key_of(fact, partition)] = PartitionOwner(fact.member, member.era, fact.witness)

    def give(self, fact: OwnershipFact, partition: OwnedPartition) -> None:
        """Report the assignment of a partition that another member has not given up."""
        key = key_of(fact, partition)
        owner = self.owners.get(key)
        if owner is None or owner.member == fact.member:
            return
        if owner.witness.before(fact.witness):
            self.compared("two-owners", owner.witness, fact.witness)
        other = self.members.get((fact.group, owner.member))
        ended = fact.witness.ended
        if other is None or other.last is None or other.era != owner.era or ended is None:
            return
        if ended - (other.last.ended or other.last.began) > SESSION or not owner.witness.before(fact.witness):
            return
        if len(other.doubted) >= MOST_DOUBTED:
            self.state.forgot["two-owners"] += 1
            return
        doubts = ["expired", "unseen", "unclean"]
        doubts += ["coordinator"] * owner.witness.may_be_elsewhere(fact.witness)
        place = partition.place
        candidate = self.report(
            "two-owners", f"group {fact.group}",
            f"{place} is given to {fact.member} although {owner.member} has not given it up",
            (owner.witness, f"{owner.member} has {place}"), (fact.witness, f"{fact.member} is given it"),
            doubts=doubts, logs=(OFFSETS_LOG,),
        )  # fmt: skip
        other.doubted.append(DoubtedGift(candidate, key, fact.witness))


def key_of(fact: OwnershipFact, partition: OwnedPartition) -> PartitionKey:
    """Key by topic id, since the name may be another topic's later."""
    return fact.group, partition.topic_id, partition.place.number


@dataclass(slots=True)
class KnownEpoch:
    """Highest stored generation or epoch of a member. `joined`: the last heartbeat with epoch 0, which begins again."""

    highest: MemberEpochFact | None = None
    joined: Witness | None = None


class MemberEpochsCheck(HistoryCheck):
    """Check that the generation or epoch of a member never goes back. Coordinators refuse the id of a removed member,
    so this includes groups that were emptied or deleted."""

    names = ("generation-goes-back",)

    def __init__(self, state: CheckState) -> None:
        super().__init__(state)
        self.members: BoundedMap[tuple[str, str], KnownEpoch] = self.recent(MOST_MEMBERS, KnownEpoch)
        self.consumer_groups: BoundedMap[str, object] = self.recent(MOST_GROUPS, object)

    @handles(MemberEpochFact)
    def accepted(self, fact: MemberEpochFact) -> None:
        known = self.members[fact.group, fact.member]
        if fact.requested is not None:
            self.consumer_groups[fact.group]
            if fact.requested <= 0:
                known.highest, known.joined = (fact if fact.epoch >= 0 else None), fact.witness
                return
            if 0 <= fact.epoch < fact.requested:
                self.went_back(fact, fact.requested, (fact.witness, f"epoch {fact.requested}: {fact.epoch}"))
                return
        if known.joined is not None and not known.joined.before(fact.witness):
            return
        highest = known.highest
        if highest is not None and highest.witness.before(fact.witness):
            self.compared("generation-goes-back", highest.witness, fact.witness)
            # Members of a consumer group may commit with the epoch of their assignment (KIP-1251).
            excused = fact.commit and self.consumer_groups.get(fact.group) is not None
            if fact.epoch < highest.epoch and not excused:
                doubts = ["unclean"] + ["unseen"] * (fact.commit or fact.requested is not None)
                doubts += ["coordinator"] * highest.witness.may_be_elsewhere(fact.witness)
                shown = [(one.witness, f"{fact.member}: {one.epoch}") for one in (highest, fact)]
                self.went_back(fact, highest.epoch, *shown, doubts=doubts)
        if fact.stored and (highest is None or fact.epoch >= highest.epoch):
            known.highest = fact

    def went_back(
        self, fact: MemberEpochFact, before: int, *evidence: tuple[Witness, str], doubts: Iterable[str] = ()
    ) -> None:
        word = "generation" if fact.requested is None else "member epoch"
        says = f"{fact.witness.api} succeeded for member {fact.member} with {word} {fact.epoch} after {before}"
        self.report("generation-goes-back", f"group {fact.group}", says, *evidence, doubts=doubts, logs=(OFFSETS_LOG,))
