"""Facts about what coordinators keep: groups with their members and commits, producers with their transactions."""

from __future__ import annotations

from dataclasses import dataclass

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
    """Committed offset of a group, as OffsetFetch tells it; -1: there is none."""

    place: PartitionPlace
    offset: int


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
        """Return how many small things it is made of."""
        return 1 + sum(1 + len(places) // 8 for places in self.members.values())


@dataclass(slots=True, eq=False)
class OwnershipFact(GroupFact):
    """Heartbeat of a member whose broker assigns (KIP-848). `owned`: what the request says it has, `given`: what the
    answer gives it, each None where that is as before. `gone`: it left, or was refused."""

    member: str
    owned: list[PartitionPlace] | None
    given: list[PartitionPlace] | None
    gone: bool

    @property
    def weight(self) -> int:
        """Return how many small things it is made of."""
        return 1 + (len(self.owned or ()) + len(self.given or ())) // 8


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
    """Epoch that a producer id has from now on, by InitProducerId or by EndTxn (`ended`)."""

    ended: bool = False


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
        """Return how many small things it is made of."""
        return 1 + len(self.places) // 8


@dataclass(slots=True, eq=False)
class TransactionEndFact(ProducerEpochFact):
    """End of a transaction as its producer asked for it. `own_epoch`: the answer gives the next epoch, so that no other
    transaction has this one, and its markers have the next one (KIP-890)."""

    committed: bool
    result: Result
    own_epoch: bool = False
