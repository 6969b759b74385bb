"""Facts that exchanges tell, each with the exchange that is its witness: what checks are made of."""

from __future__ import annotations

from .coordinators import (
    AssignmentFact,
    CommitFact,
    CommitToldFact,
    FencedFact,
    JoinFact,
    MemberEpochFact,
    MemberFact,
    OwnedPartition,
    OwnershipFact,
    PartitionsAddedFact,
    ProducerFact,
    TransactionEndFact,
)
from .exchanges import (
    ConnectionKey,
    Fact,
    PartitionPlace,
    RequestFact,
    Result,
    SessionFact,
    VersionsFact,
    Witness,
)
from .logs import (
    ALL_REPLICAS,
    LAST_OFFSET,
    AskedFact,
    BatchFact,
    BatchIdentity,
    ConfigsAlteredFact,
    ForgottenFact,
    LeaderEpochFact,
    LogBound,
    Marker,
    OffsetToldFact,
    OutOfRangeFact,
    ReadFact,
    RecordsDeletedFact,
    TopicToldFact,
    TransactionEnd,
    WriteFact,
)

__all__ = [
    "ALL_REPLICAS", "LAST_OFFSET", "AskedFact", "AssignmentFact", "BatchFact", "BatchIdentity", "CommitFact",
    "CommitToldFact", "ConfigsAlteredFact", "ConnectionKey", "Fact", "FencedFact", "ForgottenFact", "JoinFact",
    "LeaderEpochFact",
    "LogBound", "Marker", "MemberEpochFact", "MemberFact", "OffsetToldFact", "OutOfRangeFact", "OwnedPartition",
    "OwnershipFact", "PartitionPlace", "PartitionsAddedFact", "ProducerFact", "ReadFact", "RecordsDeletedFact",
    "RequestFact", "Result", "SessionFact", "TopicToldFact", "TransactionEnd", "TransactionEndFact", "VersionsFact",
    "Witness", "WriteFact",
]  # fmt: skip
