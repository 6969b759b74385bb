"""Permissions that brokers check for each API, and the state that its requests change.

*checks*: resource types whose permission brokers check, in the order in which a rule looks for its selectors. The first
one applies if the rule selects none. `resource` is the topic, group or cluster of a config resource, `coordinator` the
group or transactional id of a coordinator key. `nobody`: no permission, so no authorization error. Source: KafkaApis,
ControllerApis and AclApis of Kafka 3.9 and 4.

*changes*: `nothing`; `data`, stored or configured; `offsets`, committed positions; `members`, group membership, which
read-only clients need.

*flags*: `makes-topics`, the request may create missing topics; `brokers-only`, only brokers and controllers send it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Literal, NamedTuple, get_args

from kproxy.protocol.table import schema

Check = Literal["topic", "group", "transactional_id", "cluster", "resource", "coordinator", "token", "nobody"]
ChangedState = Literal["nothing", "data", "offsets", "members"]


class Permission(NamedTuple):
    """Line of the table of permissions."""

    checks: tuple[Check, ...]
    changes: ChangedState
    makes_topics: bool = False
    brokers_only: bool = False


MAKES_TOPICS, BROKERS_ONLY = "makes-topics", "brokers-only"


TABLE = """
Produce                         topic transactional_id          data
Fetch                           topic                           nothing
ListOffsets                     topic                           nothing
Metadata                        topic                           nothing makes-topics
LeaderAndIsr                    cluster                         data brokers-only
StopReplica                     cluster                         data brokers-only
UpdateMetadata                  cluster                         data brokers-only
ControlledShutdown              cluster                         data brokers-only
OffsetCommit                    group topic                     offsets
OffsetFetch                     group topic                     nothing
FindCoordinator                 coordinator                     nothing
JoinGroup                       group                           members
Heartbeat                       group                           members
LeaveGroup                      group                           members
SyncGroup                       group                           members
DescribeGroups                  group                           nothing
ListGroups                      group                           nothing
SaslHandshake                   nobody                          nothing
ApiVersions                     nobody                          nothing
CreateTopics                    topic                           data
DeleteTopics                    topic                           data
DeleteRecords                   topic                           data
InitProducerId                  transactional_id cluster        data
OffsetForLeaderEpoch            topic                           nothing
AddPartitionsToTxn              transactional_id topic          data
AddOffsetsToTxn                 transactional_id group          data
EndTxn                          transactional_id                data
WriteTxnMarkers                 cluster                         data brokers-only
TxnOffsetCommit                 transactional_id group topic    offsets
DescribeAcls                    cluster                         nothing
CreateAcls                      cluster                         data
DeleteAcls                      cluster                         data
DescribeConfigs                 resource                        nothing
AlterConfigs                    resource                        data
AlterReplicaLogDirs             cluster                         data
DescribeLogDirs                 cluster                         nothing
SaslAuthenticate                nobody                          nothing
CreatePartitions                topic                           data
CreateDelegationToken           token                           data
RenewDelegationToken            token                           data
ExpireDelegationToken           token                           data
DescribeDelegationToken         token                           nothing
DeleteGroups                    group                           data
ElectLeaders                    cluster                         data
IncrementalAlterConfigs         resource                        data
AlterPartitionReassignments     cluster                         data
ListPartitionReassignments      cluster                         nothing
OffsetDelete                    group topic                     offsets
DescribeClientQuotas            cluster                         nothing
AlterClientQuotas               cluster                         data
DescribeUserScramCredentials    cluster                         nothing
AlterUserScramCredentials       cluster                         data
Vote                            cluster                         data brokers-only
BeginQuorumEpoch                cluster                         data brokers-only
EndQuorumEpoch                  cluster                         data brokers-only
DescribeQuorum                  cluster                         nothing
AlterPartition                  cluster                         data brokers-only
UpdateFeatures                  cluster                         data
Envelope                        cluster                         data brokers-only
FetchSnapshot                   cluster                         nothing brokers-only
DescribeCluster                 cluster                         nothing
DescribeProducers               topic                           nothing
BrokerRegistration              cluster                         data brokers-only
BrokerHeartbeat                 cluster                         data brokers-only
UnregisterBroker                cluster                         data
DescribeTransactions            transactional_id                nothing
ListTransactions                transactional_id                nothing
AllocateProducerIds             cluster                         data brokers-only
ConsumerGroupHeartbeat          group topic                     members
ConsumerGroupDescribe           group                           nothing
ControllerRegistration          cluster                         data brokers-only
GetTelemetrySubscriptions       cluster                         nothing
PushTelemetry                   cluster                         nothing
AssignReplicasToDirs            cluster                         data brokers-only
ListConfigResources             cluster                         nothing
DescribeTopicPartitions         topic                           nothing
ShareGroupHeartbeat             group topic                     members
ShareGroupDescribe              group                           nothing
ShareFetch                      group topic                     offsets
ShareAcknowledge                group topic                     offsets
AddRaftVoter                    cluster                         data
RemoveRaftVoter                 cluster                         data
UpdateRaftVoter                 cluster                         data brokers-only
InitializeShareGroupState       cluster                         offsets brokers-only
ReadShareGroupState             cluster                         nothing brokers-only
WriteShareGroupState            cluster                         offsets brokers-only
DeleteShareGroupState           cluster                         offsets brokers-only
ReadShareGroupStateSummary      cluster                         nothing brokers-only
StreamsGroupHeartbeat           group topic                     members makes-topics
StreamsGroupDescribe            group                           nothing
DescribeShareGroupOffsets       group topic                     nothing
AlterShareGroupOffsets          group topic                     offsets
DeleteShareGroupOffsets         group topic                     offsets
StreamsGroupTopologyDescriptionUpdate   group topic             members
UnregisterController            cluster                         data
"""


@cache
def permissions() -> Mapping[int, Permission]:
    """Return the line of the table for each API key."""
    return read(TABLE)


def read(text: str) -> Mapping[int, Permission]:
    """Return the lines of a table as it is written. Raises KeyError for an unknown API, ValueError for an unknown
    word."""
    permissions = {}
    for line in text.strip().splitlines():
        name, *words = line.split()
        extra = [word for word in words if word in (MAKES_TOPICS, BROKERS_ONLY)]
        *checks, changes = [word for word in words if word not in extra]
        for word, allowed in ((changes, get_args(ChangedState)), *((check, get_args(Check)) for check in checks)):
            if word not in allowed:
                raise ValueError(f"{name}: {word!r}, expected one of {allowed}")
        permissions[schema.names()[name]] = Permission(
            tuple(checks),  # type: ignore[arg-type]  # checked above
            changes,  # type: ignore[arg-type]
            MAKES_TOPICS in extra,
            BROKERS_ONLY in extra,
        )
    return MappingProxyType(permissions)
