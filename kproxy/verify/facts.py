"""Facts of exchanges, which the checks compare, each with the exchange as its witness.

Results: *ok*, the fact was confirmed; *failed*, the request certainly had no effect; *open*, it may have an effect.
Facts are immutable, so several views of a record share them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

Result = Literal["ok", "failed", "open"]
ConnectionKey = tuple[str, int, int]
"""Address of a client, number of the connection, and number of the recording among several."""


class PartitionPlace(NamedTuple):
    """Topic by the name it has in the record (its id as text where no name is known), and partition."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.number}]"


@dataclass(slots=True, eq=False)
class Witness:
    """Exchange as a finding names it.

    `number`: of the exchange in its record, from 1 on; 0 for a request of kproxy's own. `began`, `ended`: seconds since
    1970 of the request's first and the response's last byte; `ended` is None without a response. `clock`: number of the
    recording with this clock, 0 for one clock. `altered`: the bytes at the client and at the broker differ. `differs`:
    partitions with other batches or offsets at the broker. `made_by_kproxy`: a rule made the response. `server`: its
    address, if its cluster is unknown.
    """

    number: int
    began: float
    ended: float | None
    connection: ConnectionKey
    client: str
    node: int | None
    api: str
    version: int
    rules: tuple[str, ...] = ()
    made_by_kproxy: bool = False
    software: str = ""
    altered: bool = False
    differs: frozenset[str] = frozenset()
    correlation_id: int = 0
    server: str = ""
    clock: int = 0

    def before(self, other: Witness) -> bool:
        """Return True if this exchange was over when the other began: nothing else is known to be before."""
        return self.ended is not None and self.ended < other.began

    def may_be_elsewhere(self, other: Witness) -> bool:
        """Return True unless both exchanges were certainly with the same node."""
        return self.node is None or self.node != other.node

    @property
    def client_key(self) -> tuple[str, str]:
        """Return the address, without its port, and the client id, which a client's connections have in common.

        Many processes may share both, so they do not identify a client, and prove nothing.
        """
        return self.connection[0].rpartition(":")[0], self.client


@dataclass(slots=True, eq=False)
class Fact:
    """Fact that an exchange tells, its `witness`."""

    witness: Witness

    @property
    def weight(self) -> int:
        """Return how many small things it is made of, by which what is held is bounded."""
        return 1


@dataclass(slots=True, eq=False)
class PartitionFact(Fact):
    """Fact about one partition."""

    place: PartitionPlace


@dataclass(slots=True, eq=False)
class RequestFact(Fact):
    """Request that passed, whatever it was about."""

    key: int


@dataclass(slots=True, eq=False)
class VersionsFact(Fact):
    """Versions of APIs that a broker offered on this connection, (first, last) by key."""

    offered: dict[int, tuple[int, int]]

    @property
    def weight(self) -> int:
        return 1 + len(self.offered) // 8


@dataclass(slots=True, eq=False)
class SessionFact(Fact):
    """Fetch session that a request opens or continues, and what the answer says of it."""

    session: int
    epoch: int
    error: int | None
    given: int


LogBound = Literal["start", "end", "stable"]
"""Offset of a log that ListOffsets reports: the earliest one, the high watermark, or the last stable offset."""
ALL_REPLICAS = -1
"""Acks of a write that counts once all replicas in sync have it."""
TransactionEnd = Literal["commit", "abort"]
LAST_OFFSET = (1 << 63) - 1
Marker = TransactionEnd | Literal["", "other"]


class BatchIdentity(NamedTuple):
    """Identity of a batch, the same wherever it is stored: brokers change base offset and leader epoch only, which the
    checksum leaves out."""

    crc: int
    records: int
    producer_id: int
    epoch: int
    sequence: int


@dataclass(slots=True, eq=False)
class BatchFact:
    """Batch of a Produce request or a Fetch response, by its header.

    `delta`: its last offset less its first. `attributes`, `oldest`, `newest`: of its header, its first and its highest
    timestamp; below zero where it has none, or the record does not tell it. `marker`: of a control batch, what it says
    of its transaction; "other" where its record was not kept. `comparable`: False for messages older than batches,
    whose checksums brokers make anew.
    """

    base: int
    delta: int
    identity: BatchIdentity
    attributes: int
    oldest: int
    newest: int
    marker: Marker = ""
    transactional: bool = False
    comparable: bool = True
    content: int | None = None
    """Hash of the keys, values and headers of its records; None where they were not looked at, or cannot be read."""
    ascending: bool = True
    """False if the offsets of its records were looked at, and do not ascend."""

    @property
    def last(self) -> int:
        return self.base + self.delta

    @property
    def end(self) -> TransactionEnd | None:
        """Return how a transaction ends with this batch; None if it is no marker, or one that was not kept."""
        if self.marker == "commit":
            return "commit"
        return "abort" if self.marker == "abort" else None


@dataclass(slots=True, eq=False)
class WriteFact(PartitionFact):
    """Write of one partition. `base`: the offset it was given, None where no answer tells it. `batches` have offsets
    from there on, or from 0 on."""

    batches: list[BatchFact]
    result: Result
    base: int | None
    acks: int
    log_start: int = -1
    stamped: bool = False
    """True if the broker put its own time into the records."""
    topic_id: str = ""

    @property
    def weight(self) -> int:
        return 1 + len(self.batches)


@dataclass(slots=True, eq=False)
class ReadFact(PartitionFact):
    """Answer of a Fetch about one partition. `position`: the offset it was asked from, None where that is not known.
    `aborted`: producers and the first offsets of their aborted transactions, as the answer lists them. `partial`: not
    all of its batches are here, since some make no sense, or were not recorded. `last`: where it ends, if the record
    tells that beside the batches. `topic_id`: as text, empty where the answer names its topic. `shared`: by a share
    group, whose answers bring what it acquires, from anywhere and not for the first time."""

    position: int | None
    batches: list[BatchFact]
    high_watermark: int
    last_stable: int
    log_start: int
    committed_only: bool
    aborted: list[tuple[int, int]]
    partial: bool = False
    topic_id: str = ""
    last: int | None = None
    shared: bool = False
    leader_epoch: int = -1
    """Leader epoch in the request, -1 for none. A broker answers with another epoch's error if it has another one."""

    @property
    def following(self) -> int | None:
        """Return the offset behind all that it brought; None if that was nothing, or nobody knows."""
        if self.last is not None:
            return self.last + 1
        if self.partial or not self.batches:
            return None
        return max(one.last for one in self.batches) + 1

    @property
    def weight(self) -> int:
        return 1 + len(self.batches) + len(self.aborted) // 8


@dataclass(slots=True, eq=False)
class AskedFact(PartitionFact):
    """Offset that a Fetch request names for a partition."""

    position: int
    failed: bool = False
    """True if the answer has an error for the partition."""


@dataclass(slots=True, eq=False)
class OffsetToldFact(PartitionFact):
    """Offset of a partition in a ListOffsets response. `bound`: the requested one; None for the offset of a time."""

    offset: int
    bound: LogBound | None = None


@dataclass(slots=True, eq=False)
class OutOfRangeFact(PartitionFact):
    """Fetch from `position` that a broker answered with OFFSET_OUT_OF_RANGE. `leader_epoch`: as of a ReadFact."""

    position: int
    leader_epoch: int = -1


@dataclass(slots=True, eq=False)
class RecordsDeletedFact(PartitionFact):
    """Successful DeleteRecords. `low_watermark`: the lowest log start of all live replicas afterwards."""

    low_watermark: int


@dataclass(slots=True, eq=False)
class LeaderEpochFact(PartitionFact):
    """Leader epoch of a partition in a response. `topic_id`: empty if the response has none. `leader`: node id of the
    leader in this epoch, -1 if the response has none."""

    topic_id: str
    epoch: int
    leader: int = -1


@dataclass(slots=True, eq=False)
class TopicToldFact(Fact):
    """Topic in a response. `topic_id`: as text, empty if the response has none. `compacted`, `unclean`: cleanup.policy
    contains compact, unclean.leader.election.enable is true; None if the response has no value. `made`: CreateTopics
    made it. `own`: kproxy requested it, so the id is the broker's."""

    topic: str
    topic_id: str = ""
    compacted: bool | None = None
    made: bool = False
    unclean: bool | None = None
    own: bool = False


@dataclass(slots=True, eq=False)
class ConfigsAlteredFact(Fact):
    """Change of configs to unknown values: any topic may be compacted, or have unclean elections, after it.

    `settings`: those of "compacted" and "unclean" that it may have changed.
    """

    settings: tuple[str, ...] = ("compacted", "unclean")


@dataclass(slots=True, eq=False)
class ForgottenFact(Fact):
    """Reason why earlier facts say nothing any more: a topic (`group` None) or a group was deleted. `topic` None: all
    of the group's."""

    topic: str | None
    group: str | None


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
