"""Facts about logs: what was written and read, what is told of offsets, leaders and topics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from .exchanges import Fact, PartitionFact, Result

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
