"""Every API is either open to tenants, with what is asked by it kept apart, or closed to them."""

from __future__ import annotations

import pytest

from kproxy.protocol import decode_response
from kproxy.protocol.framing import framed
from kproxy.protocol.table import schema
from kproxy.session.plan import STOP
from kproxy.tools.rehearse.dialogue import Dialogue, request, response

RULES = "rules:\n- {name: a, kind: prefix, prefix: a.}\n"
OPEN = {
    "Produce", "Fetch", "ListOffsets", "Metadata", "OffsetCommit", "OffsetFetch", "FindCoordinator", "JoinGroup",
    "Heartbeat", "LeaveGroup", "SyncGroup", "DescribeGroups", "ListGroups", "SaslHandshake", "ApiVersions",
    "CreateTopics", "DeleteTopics", "DeleteRecords", "InitProducerId", "OffsetForLeaderEpoch", "AddPartitionsToTxn",
    "AddOffsetsToTxn", "EndTxn", "WriteTxnMarkers", "TxnOffsetCommit", "DescribeAcls", "CreateAcls", "DeleteAcls",
    "DescribeConfigs", "AlterConfigs", "AlterReplicaLogDirs", "DescribeLogDirs", "SaslAuthenticate", "CreatePartitions",
    "CreateDelegationToken", "RenewDelegationToken", "ExpireDelegationToken", "DescribeDelegationToken", "DeleteGroups",
    "ElectLeaders", "IncrementalAlterConfigs", "AlterPartitionReassignments", "ListPartitionReassignments",
    "OffsetDelete", "DescribeClientQuotas", "AlterClientQuotas", "DescribeUserScramCredentials",
    "AlterUserScramCredentials", "DescribeQuorum", "DescribeCluster", "DescribeProducers", "DescribeTransactions",
    "ListTransactions", "ConsumerGroupHeartbeat", "ConsumerGroupDescribe", "GetTelemetrySubscriptions", "PushTelemetry",
    "ListConfigResources", "DescribeTopicPartitions", "ShareGroupHeartbeat", "ShareGroupDescribe", "ShareFetch",
    "ShareAcknowledge", "StreamsGroupHeartbeat", "StreamsGroupDescribe", "DescribeShareGroupOffsets",
    "AlterShareGroupOffsets", "DeleteShareGroupOffsets", "StreamsGroupTopologyDescriptionUpdate",
}  # fmt: skip
"""APIs of clients. docs/names-tenants.md lists the cluster-wide ones, which need `deny` or the brokers' ACLs."""
CLOSED = {
    "LeaderAndIsr", "StopReplica", "UpdateMetadata", "ControlledShutdown", "Vote", "BeginQuorumEpoch", "EndQuorumEpoch",
    "AlterPartition", "UpdateFeatures", "Envelope", "FetchSnapshot", "BrokerRegistration", "BrokerHeartbeat",
    "UnregisterBroker", "AllocateProducerIds", "ControllerRegistration", "AssignReplicasToDirs", "AddRaftVoter",
    "RemoveRaftVoter", "UpdateRaftVoter", "InitializeShareGroupState", "ReadShareGroupState", "WriteShareGroupState",
    "DeleteShareGroupState", "ReadShareGroupStateSummary", "UnregisterController",
}  # fmt: skip


def test_every_api_is_open_or_closed() -> None:
    """A new one in the table fails here until somebody has decided."""
    assert {api.name for api in schema.apis()} == OPEN | CLOSED
    assert not OPEN & CLOSED


@pytest.mark.parametrize("name", sorted(CLOSED))
def test_what_brokers_say_to_each_other_is_not_for_tenants(name: str) -> None:
    """In no version: it closes the connection before anything of it has left."""
    api = next(one for one in schema.apis() if one.name == name)
    for version in api.versions:
        talk = Dialogue(RULES).client(request(18, 3, 1)).broker(response(18, 3, 1))
        before = talk.to_broker
        header = api.key.to_bytes(2, "big") + version.to_bytes(2, "big") + (2).to_bytes(4, "big") + b"\xff\xff"
        talk.client(framed(header + bytes(8)), 3)
        assert talk.to_broker == before
        assert talk.closed is not None and "for those who run the cluster" in talk.closed.message


def test_what_is_closed_is_not_listed() -> None:
    """ApiVersions of a tenant names what is open to it."""
    rows = [{"api_key": api.key, "min_version": 0, "max_version": api.versions.last} for api in schema.apis()]
    talk = Dialogue(RULES).client(request(18, 3, 1)).broker(response(18, 3, 1, api_keys=rows))
    listed = {one["api_key"] for one in decode_response(talk.to_client[4:], 18, 3).body["api_keys"]}
    assert listed == {api.key for api in schema.apis() if api.name in OPEN}


def test_without_a_tenant_all_of_them_pass() -> None:
    """A proxy between brokers stays one."""
    plan = Dialogue("").session.plan
    assert [
        name for name in CLOSED if plan[next(a.key for a in schema.apis() if a.name == name) << 16].request == STOP
    ] == []
