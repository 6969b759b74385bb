"""Checks of groups: that a partition has one owner, and not none for too long."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from .cluster import OFFSETS_LOG
from .facts import (
    AssignmentFact,
    Fact,
    JoinFact,
    MemberEpochFact,
    OwnedPartition,
    OwnershipFact,
    PartitionPlace,
    Witness,
)
from .finding import Evidence
from .history_check import CheckState, FactHandler, HistoryCheck
from .lru_map import RecentMap
from .suspicion import Suspicion

ASSIGNORS = frozenset({"range", "roundrobin", "sticky", "cooperative-sticky", "uniform"})
"""Assignors that give a partition to one member, in all clients that have them."""
CONSUMERS = "consumer"
SESSION = 45.0
"""Seconds of silence after which a broker takes a member for gone, unless it is told otherwise."""
PartitionKey = tuple[str, str, int]
"""Group, topic id and partition."""
MOST_GROUPS = 20_000
MOST_OWNED = 200_000
MOST_MEMBERS = 50_000
MOST_DOUBTED = 64  # gifts of one member's partitions that its heartbeats confirm or excuse


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
        return {JoinFact: self.joined, AssignmentFact: self.assigned}

    def joined(self, fact: JoinFact) -> None:
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
            gap = ended - joining.began
            says = f"its partitions had no owner for {gap:.1f} s, and a rebalance may take {group.timeout:g} s"
            shown = [(joining, "joins"), (fact.witness, f"assigns, generation {fact.generation}")]
            self.report("rebalance-gap", f"group {fact.group}", says, *shown, level="note")
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
                    says = f"{place} belongs to {other} and to {member} in generation {fact.generation}"
                    shown = fact.witness, f"generation {fact.generation}: {place} twice"
                    self.report("two-owners", f"group {fact.group}", says, shown, doubts=() if known else ("assignor",))


@dataclass(slots=True)
class PartitionOwner:
    """Member that a partition was given to. `era`: of the member, when it had the partition last."""

    member: str = ""
    era: int = -1
    witness: Witness | None = None


class DoubtedGift(NamedTuple):
    """Response that gave a member's partition to another member, with the suspicion about it."""

    suspicion: Suspicion
    partition: PartitionKey
    witness: Witness


@dataclass(slots=True)
class OwningMember:
    """Member of a consumer group (KIP-848). A new era begins with each list of its partitions: it gave up those of
    earlier eras that are not in the list. `last`: its last heartbeat. `doubted`: gifts of its partitions to other
    members, which its later heartbeats confirm or excuse."""

    era: int = 0
    last: Witness | None = None
    doubted: list[DoubtedGift] = field(default_factory=list)


class BrokerGroupsCheck(HistoryCheck):
    """Check of the partitions that coordinators assign (KIP-848): another member gets one once its owner gave it up."""

    names = ("two-owners",)

    def __init__(self, state: CheckState) -> None:
        super().__init__(state)
        self.owners: RecentMap[PartitionKey, PartitionOwner] = self.recent(MOST_OWNED, PartitionOwner)
        self.members: RecentMap[tuple[str, str], OwningMember] = self.recent(
            MOST_MEMBERS, OwningMember, lambda member: 800 + 3000 * len(member.doubted)
        )

    def handlers(self) -> Mapping[type[Fact], FactHandler]:
        return {OwnershipFact: self.heartbeat}

    def heartbeat(self, fact: OwnershipFact) -> None:
        """Update a member's partitions, and look for other owners of those that it is given."""
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
        """Confirm or excuse the gifts of a member's partitions by its other heartbeats. A coordinator fences a member
        that it removed, so a later heartbeat that it accepts shows that the member kept its partitions until then. A
        heartbeat without a response may come late in the record, and then excuses a gift that was confirmed."""
        if not member.doubted:
            return
        owned = None if fact.owned is None and not fact.gone else {key_of(fact, one) for one in fact.owned or ()}
        for one in member.doubted:
            suspicion, ended = one.suspicion, one.witness.ended
            later = one.witness.before(fact.witness)
            if not later:
                given_up = owned is not None and one.partition not in owned
                suspicion.void = given_up and (ended is None or fact.witness.began <= ended)
            elif "expired" not in suspicion.doubts or fact.witness.ended is None:
                continue
            elif not fact.accepted or fact.epoch <= 0:
                suspicion.void = True
            elif not one.witness.may_be_elsewhere(fact.witness):
                suspicion.doubts = tuple(doubt for doubt in suspicion.doubts if doubt != "expired")
                suspicion.evidence.append(Evidence(fact.witness, f"{fact.member} is still a member"))
        member.doubted = [one for one in member.doubted if not one.suspicion.void]

    def own(self, fact: OwnershipFact, partition: OwnedPartition, member: OwningMember) -> None:
        owner = self.owners[key_of(fact, partition)]
        owner.member, owner.era, owner.witness = fact.member, member.era, fact.witness

    def give(self, fact: OwnershipFact, partition: OwnedPartition) -> None:
        """Suspect the gift of a partition that another member has not given up."""
        key = key_of(fact, partition)
        owner = self.owners.get(key)
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
        if len(other.doubted) >= MOST_DOUBTED:
            self.state.forgot["two-owners"] += 1
            return
        moved = owner.witness.may_be_elsewhere(fact.witness)
        place = partition.place
        suspicion = self.report(
            "two-owners", f"group {fact.group}",
            f"{place} is given to {fact.member} although {owner.member} has not given it up",
            (owner.witness, f"{owner.member} has {place}"), (fact.witness, f"{fact.member} is given it"),
            doubts=("expired", "unseen", "unclean", *(("coordinator",) if moved else ())), logs=(OFFSETS_LOG,),
        )  # fmt: skip
        other.doubted.append(DoubtedGift(suspicion, key, fact.witness))


def key_of(fact: OwnershipFact, partition: OwnedPartition) -> PartitionKey:
    """Return the key of a group's partition: by the id of its topic, since the name may be another topic's later."""
    return fact.group, partition.topic_id, partition.place.number


@dataclass(slots=True)
class KnownEpoch:
    """Highest stored generation or epoch of a member. `joined`: the last heartbeat with epoch 0, which begins again."""

    highest: MemberEpochFact | None = None
    joined: Witness | None = None


class MemberEpochsCheck(HistoryCheck):
    """Check that the generation or epoch of a group's member never goes back. Coordinators refuse the id of a removed
    member, so this includes groups that were emptied or deleted."""

    names = ("generation-goes-back",)

    def __init__(self, state: CheckState) -> None:
        super().__init__(state)
        self.members: RecentMap[tuple[str, str], KnownEpoch] = self.recent(MOST_MEMBERS, KnownEpoch)
        self.consumer_groups: RecentMap[str, object] = self.recent(MOST_GROUPS, object)

    def handlers(self) -> Mapping[type[Fact], FactHandler]:
        return {MemberEpochFact: self.accepted}

    def accepted(self, fact: MemberEpochFact) -> None:
        """Compare a member's generation or epoch with the highest one before."""
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
                doubts: tuple[str, ...] = ("unclean",)
                if fact.commit or fact.requested is not None:
                    doubts += ("unseen",)
                if highest.witness.may_be_elsewhere(fact.witness):
                    doubts += ("coordinator",)
                shown = [(one.witness, f"{fact.member}: {one.epoch}") for one in (highest, fact)]
                self.went_back(fact, highest.epoch, *shown, doubts=doubts)
        if fact.stored and (highest is None or fact.epoch >= highest.epoch):
            known.highest = fact

    def went_back(
        self, fact: MemberEpochFact, before: int, *evidence: tuple[Witness, str], doubts: tuple[str, ...] = ()
    ) -> None:
        """Suspect a generation or epoch that is lower than `before`."""
        word = "generation" if fact.requested is None else "member epoch"
        says = f"{fact.witness.api} succeeded for member {fact.member} with {word} {fact.epoch} after {before}"
        self.report("generation-goes-back", f"group {fact.group}", says, *evidence, doubts=doubts, logs=(OFFSETS_LOG,))
