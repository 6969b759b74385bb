"""Facts of exchanges, which the checks compare, each with the exchange as its witness.

Results: *ok*, the fact was confirmed; *failed*, the request certainly had no effect; *open*, it may have an effect.
Facts are immutable, so several views of a record share them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

Result = Literal["ok", "failed", "open"]
ConnectionKey = tuple[str, int, int]  # client address, connection number, and recording number


class PartitionPlace(NamedTuple):
    """Topic by its name in the record (its id as text if the name is unknown), and partition."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.number}]"


@dataclass(slots=True, eq=False)
class Witness:
    """Exchange as a finding names it. `number`: of the exchange in its record, from 1 on; 0 for a request of kproxy's
    own. `began`, `ended`: seconds since 1970 of the request's first and the response's last byte; `ended` is None
    without a response. `clock`: number of the recording with this clock, 0 for one clock. `altered`: the bytes at the
    client and at the broker differ. `differs`: partitions with other batches or offsets at the broker.
    `made_by_kproxy`: a rule made the response. `server`: its address, if its cluster is unknown."""

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
        """True if this exchange ended before the other began. No other order is certain."""
        return self.ended is not None and self.ended < other.began

    @property
    def by_rule(self) -> bool:
        """True if a rule of kproxy may have changed or made the response."""
        return self.made_by_kproxy or bool(self.rules)

    def may_be_elsewhere(self, other: Witness) -> bool:
        """True unless both exchanges were certainly with the same node."""
        return self.node is None or self.node != other.node

    @property
    def client_key(self) -> tuple[str, str]:
        """Address without port, and client id. Many processes may share both, so they do not identify a client."""
        return self.connection[0].rpartition(":")[0], self.client


@dataclass(slots=True, eq=False)
class Fact:
    witness: Witness

    @property
    def weight(self) -> int:
        """Number of small objects in this fact, for the bound of `TimeOrder`."""
        return 1


@dataclass(slots=True, eq=False)
class PartitionFact(Fact):
    place: PartitionPlace


@dataclass(slots=True, eq=False)
class RequestFact(Fact):
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
    """Fetch session id and epoch of a request; `error` and `given`: error code and session id of its response."""

    session: int
    epoch: int
    error: int | None
    given: int


LogBound = Literal["start", "end", "stable"]  # bound in ListOffsets: log start, high watermark, or last stable offset
ALL_REPLICAS = -1  # acks of a write that all in-sync replicas must have
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
    """Batch of a Produce request or a Fetch response, by its header. `delta`: last offset minus base offset. `oldest`,
    `newest`: base and maximum timestamp in ms, below 0 if missing or not recorded. `marker`: transaction end of a
    control batch, "other" if its record was not kept. `comparable`: False for messages older than batches, whose
    checksums brokers compute again."""

    base: int
    delta: int
    identity: BatchIdentity
    attributes: int
    oldest: int
    newest: int
    marker: Marker = ""
    transactional: bool = False
    comparable: bool = True
    # Hash of the records' keys, values and headers; None if they were not read, or are unreadable.
    content: int | None = None
    ascending: bool = True  # false if the record offsets were read and do not ascend

    @property
    def last(self) -> int:
        return self.base + self.delta

    @property
    def end(self) -> TransactionEnd | None:
        """Transaction end in this batch; None if it is not a marker, or the marker was not kept."""
        if self.marker == "commit":
            return "commit"
        return "abort" if self.marker == "abort" else None


@dataclass(slots=True, eq=False)
class WriteFact(PartitionFact):
    """Write of one partition. `base`: its base offset, None if no response contains it. The offsets of `batches` begin
    there, or at 0."""

    batches: list[BatchFact]
    result: Result
    base: int | None
    acks: int
    log_start: int = -1
    stamped: bool = False  # the broker wrote its own time into the records
    topic_id: str = ""

    @property
    def weight(self) -> int:
        return 1 + len(self.batches)


@dataclass(slots=True, eq=False)
class ReadFact(PartitionFact):
    """Partition in a Fetch response. `position`: the requested offset, None if unknown. `aborted`: producer ids and
    first offsets of the aborted transactions that the response lists. `partial`: some batches are malformed or were not
    recorded. `last`: last offset, if the record has it apart from the batches. `topic_id`: as text, empty if the
    response has the topic's name. `shared`: read by a share group, which receives acquired records only, in any order
    and more than once."""

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
    # Leader epoch in the request, -1 for none. A broker answers with another epoch's error if it has another one.
    leader_epoch: int = -1

    @property
    def following(self) -> int | None:
        """Offset after the last batch; None without batches, or if the end is unknown."""
        if self.last is not None:
            return self.last + 1
        if self.partial or not self.batches:
            return None
        return max(one.last for one in self.batches) + 1

    @property
    def weight(self) -> int:
        return 1 + len(self.batches) + len(self.aborted) // 8


@dataclass(slots=True, eq=False)
class FetchPositionFact(PartitionFact):
    position: int
    failed: bool = False  # the response has an error for the partition


@dataclass(slots=True, eq=False)
class ListedOffsetFact(PartitionFact):
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
class TopicFact(Fact):
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
    """Change of configs to unknown values: any topic may be compacted, or have unclean elections, after it. `settings`:
    those of "compacted" and "unclean" that it may have changed."""

    settings: tuple[str, ...] = ("compacted", "unclean")


@dataclass(slots=True, eq=False)
class DeletionFact(Fact):
    """Deletion that ends the validity of earlier facts: of a topic (`group` None), a group (`topic` None), or the
    commits of a topic in a group."""

    topic: str | None
    group: str | None


@dataclass(slots=True, eq=False)
class GroupFact(Fact):
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
class FetchedCommitFact(GroupFact):
    """Committed offset in an OffsetFetch response; -1: the group has none. `stable`: the request has `require_stable`,
    so the response has no offset while a transaction's commit of the partition is pending."""

    place: PartitionPlace
    offset: int
    stable: bool = False


@dataclass(slots=True, eq=False)
class JoinFact(GroupFact):
    """JoinGroup of a member. `timeout`: rebalance timeout in seconds, 0 if the request has none. `protocol`: the
    assignor in the response, empty if it has none."""

    member: str
    protocol_type: str
    timeout: float
    generation: int = -1
    protocol: str = ""


@dataclass(slots=True, eq=False)
class AssignmentFact(GroupFact):
    """Partitions that the leader of a classic group gave to its members in one generation. `protocol` (the assignor)
    and `protocol_type` are empty if the version lacks them."""

    generation: int
    protocol_type: str
    protocol: str
    members: dict[str, list[PartitionPlace]]
    result: Result

    @property
    def weight(self) -> int:
        return 1 + sum(1 + len(places) // 8 for places in self.members.values())


class OwnedPartition(NamedTuple):
    """Partition of an assignment by topic id. `place`: with the topic's name, if known by then."""

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
    """Generation or member epoch of a member that the coordinator gave or accepted. `stored`: it is in the
    coordinator's log, as a SyncGroup or ConsumerGroupHeartbeat response shows. `commit`: of an offset commit.
    `requested`: the member epoch of a ConsumerGroupHeartbeat request; None in the classic protocol."""

    member: str
    epoch: int
    stored: bool = False
    commit: bool = False
    requested: int | None = None


@dataclass(slots=True, eq=False)
class MemberFact(GroupFact):
    """Heartbeat or LeaveGroup of a classic member. `left`: a LeaveGroup that succeeded."""

    member: str
    left: bool


@dataclass(slots=True, eq=False)
class ProducerEpochFact(Fact):
    producer_id: int
    epoch: int


@dataclass(slots=True, eq=False)
class ProducerFact(ProducerEpochFact):
    """Producer id and epoch in the response to InitProducerId, or to EndTxn (`ended`). `transactional_id`: None for
    an idempotent producer. `expected`: the request names the producer id and epoch that its client has, so a
    repeated request gets the same epoch; True if not known. `keeps`: a prepared transaction may have been left open
    (KIP-939). `named`: the broker has this transactional id, whatever name its client uses."""

    ended: bool = False
    transactional_id: str | None = None
    expected: bool = True
    keeps: bool = False
    named: bool = True

    @property
    def aborts(self) -> bool:
        """True if every transaction of an older epoch has ended before this response."""
        return not (self.ended or self.keeps) and self.transactional_id is not None


@dataclass(slots=True, eq=False)
class FencedFact(ProducerEpochFact):
    """Refusal of a fenced epoch."""


@dataclass(slots=True, eq=False)
class PartitionsAddedFact(ProducerEpochFact):
    places: list[PartitionPlace]
    result: Result

    @property
    def weight(self) -> int:
        return 1 + len(self.places) // 8


@dataclass(slots=True, eq=False)
class TransactionEndFact(ProducerEpochFact):
    """EndTxn of a producer. `own_epoch`: the response has the next epoch, so no other transaction has this one, and its
    markers have the next one (KIP-890)."""

    committed: bool
    result: Result
    own_epoch: bool = False
