"""Facts about what coordinators keep: groups with their members and commits, producers with their transactions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from .exchanges import Fact, PartitionPlace, Result


@dataclass(slots=True, eq=False)
class GroupFact(Fact):
    """Fact about one group."""

    group: str


@dataclass(slots=True, eq=False)
class CommitFact(GroupFact):
    """Commit of a group's offset. `generation`: -1 where the request names none. `producer`: of a transaction's commit,
    the producer id and epoch; it counts once the transaction is committed."""

    place: PartitionPlace
    offset: int
    result: Result
    generation: int
    producer: tuple[int, int] | None = None


@dataclass(slots=True, eq=False)
class CommitToldFact(GroupFact):
    """Committed offset in an OffsetFetch response; -1: the group has none. `stable`: the request has `require_stable`,
    so the response has no offset while a transaction's commit of the partition is pending."""

    place: PartitionPlace
    offset: int
    stable: bool = False


@dataclass(slots=True, eq=False)
class JoinFact(GroupFact):
    """JoinGroup of a member; `timeout`: seconds that a rebalance may take, 0 where the request has none.
    `protocol`: the assignor that the answer names for its generation, empty where it names none."""

    member: str
    protocol_type: str
    timeout: float
    generation: int = -1
    protocol: str = ""


@dataclass(slots=True, eq=False)
class AssignmentFact(GroupFact):
    """Partitions that the leader of a classic group gave to its members in one generation. `protocol`: the assignor,
    empty where the version does not tell it; `protocol_type` likewise."""

    generation: int
    protocol_type: str
    protocol: str
    members: dict[str, list[PartitionPlace]]
    result: Result

    @property
    def weight(self) -> int:
        return 1 + sum(1 + len(places) // 8 for places in self.members.values())


class OwnedPartition(NamedTuple):
    """Partition of an assignment, by the id of its topic. `place`: with the topic's name, if that is known by then."""

    topic_id: str
    place: PartitionPlace


@dataclass(slots=True, eq=False)
class OwnershipFact(GroupFact):
    """ConsumerGroupHeartbeat of a member (KIP-848). `epoch`: the member epoch of the request, 0 to join, negative to
    leave. `owned`: partitions in the request, `given`: in the response; None if unchanged. `gone`: the member left, or
    the response has an error. `accepted`: a response without an error."""

    member: str
    owned: list[OwnedPartition] | None
    given: list[OwnedPartition] | None
    gone: bool
    epoch: int = 0
    accepted: bool = False

    @property
    def weight(self) -> int:
        return 1 + (len(self.owned or ()) + len(self.given or ())) // 8


@dataclass(slots=True, eq=False)
class MemberEpochFact(GroupFact):
    """Generation or member epoch of a member that the coordinator gave or accepted.

    `stored`: it is in the coordinator's log, as a SyncGroup or ConsumerGroupHeartbeat response shows. `commit`: of an
    offset commit. `requested`: the member epoch of a ConsumerGroupHeartbeat request; None in the classic protocol.
    """

    member: str
    epoch: int
    stored: bool = False
    commit: bool = False
    requested: int | None = None


@dataclass(slots=True, eq=False)
class MemberFact(GroupFact):
    """Heartbeat or leave of a classic member. `left`: it left, and the answer says that it did."""

    member: str
    left: bool


@dataclass(slots=True, eq=False)
class ProducerEpochFact(Fact):
    """Fact about one epoch of a producer id."""

    producer_id: int
    epoch: int


@dataclass(slots=True, eq=False)
class ProducerFact(ProducerEpochFact):
    """Producer id and epoch in the response to InitProducerId, or to EndTxn (`ended`).

    `transactional_id`: None for an idempotent producer. `expected`: the request names the producer id and epoch that
    its client has, so a repeated request gets the same epoch; True if not known. `keeps`: a prepared transaction may
    have been left open (KIP-939).
    """

    ended: bool = False
    transactional_id: str | None = None
    expected: bool = True
    keeps: bool = False

    @property
    def aborts(self) -> bool:
        """Return True if this response comes after the end of every transaction of an older epoch."""
        return not (self.ended or self.keeps) and self.transactional_id is not None


@dataclass(slots=True, eq=False)
class FencedFact(ProducerEpochFact):
    """Refusal of an epoch that has been fenced."""


@dataclass(slots=True, eq=False)
class PartitionsAddedFact(ProducerEpochFact):
    """Partitions that a producer made part of its transaction."""

    places: list[PartitionPlace]
    result: Result

    @property
    def weight(self) -> int:
        return 1 + len(self.places) // 8


@dataclass(slots=True, eq=False)
class TransactionEndFact(ProducerEpochFact):
    """End of a transaction as its producer asked for it. `own_epoch`: the answer gives the next epoch, so that no other
    transaction has this one, and its markers have the next one (KIP-890)."""

    committed: bool
    result: Result
    own_epoch: bool = False
