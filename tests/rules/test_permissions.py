"""The table of what brokers check and what requests change."""

from __future__ import annotations

import pytest

from kproxy.protocol.table import schema
from kproxy.rules.permissions import Permission, permissions, read

WRITES = [
    "Produce",
    "CreateTopics",
    "DeleteTopics",
    "DeleteRecords",
    "CreatePartitions",
    "AlterConfigs",
    "IncrementalAlterConfigs",
    "CreateAcls",
    "DeleteAcls",
    "InitProducerId",
    "AddPartitionsToTxn",
    "AddOffsetsToTxn",
    "EndTxn",
    "WriteTxnMarkers",
    "DeleteGroups",
    "ElectLeaders",
    "AlterPartitionReassignments",
    "AlterReplicaLogDirs",
    "AlterClientQuotas",
    "AlterUserScramCredentials",
    "UpdateFeatures",
    "CreateDelegationToken",
    "RenewDelegationToken",
    "ExpireDelegationToken",
]
OFFSETS = [
    "OffsetCommit",
    "TxnOffsetCommit",
    "OffsetDelete",
    "ShareAcknowledge",
    "AlterShareGroupOffsets",
    "ShareFetch",
]
READS = [
    "Fetch",
    "ListOffsets",
    "Metadata",
    "OffsetFetch",
    "ListGroups",
    "DescribeConfigs",
    "DescribeAcls",
    "ApiVersions",
]
MEMBERS = ["JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "ConsumerGroupHeartbeat", "ShareGroupHeartbeat"]


def test_every_api_has_a_line() -> None:
    """None of the protocol's table is left out, and none is invented: each is classified as read or write."""
    assert permissions().keys() == schema.paths().keys()


@pytest.mark.parametrize(
    ("names", "changes"), [(WRITES, "data"), (OFFSETS, "offsets"), (READS, "nothing"), (MEMBERS, "members")]
)
def test_what_is_well_known_is_right(names: list[str], changes: str) -> None:
    """Reads, writes, offsets and membership."""
    assert {name: permissions()[schema.names()[name]].changes for name in names} == dict.fromkeys(names, changes)


@pytest.mark.parametrize("key", schema.paths())
def test_what_only_describes_changes_nothing(key: int) -> None:
    """An API whose name says that it looks, looks; one that creates, alters or deletes does not."""
    name, line = schema.load(key).name, permissions()[key]

    if name.startswith(("Describe", "List", "Read", "Get", "Find")) or name.endswith("Describe"):
        assert line.changes == "nothing"
    if name.startswith(("Create", "Alter", "Delete", "Update", "Add", "Remove", "Write", "Initialize", "Unregister")):
        assert line.changes in ("data", "offsets")


def test_what_makes_topics_besides_is_told() -> None:
    """Metadata, by the broker's own setting, and the topology of a streams group."""
    assert {schema.load(key).name for key, line in permissions().items() if line.makes_topics} == {
        "Metadata", "StreamsGroupHeartbeat",
    }  # fmt: skip


@pytest.mark.parametrize("key", schema.paths())
def test_what_clients_have_no_business_with_is_told(key: int) -> None:
    """What no listener for clients takes is said among brokers only; the other way round these few are."""
    api, line = schema.load(key), permissions()[key]
    taken = "broker" in api.listeners
    among_brokers = api.name == "WriteTxnMarkers" or api.name.endswith(("ShareGroupState", "ShareGroupStateSummary"))

    assert line.brokers_only == (not taken or among_brokers)


def test_lines_are_read_strictly() -> None:
    """A word that means nothing is an error, as is an API that does not exist."""
    assert read("Fetch topic group nothing") == {1: Permission(("topic", "group"), "nothing")}
    assert read("Vote cluster data brokers-only") == {52: Permission(("cluster",), "data", brokers_only=True)}
    with pytest.raises(ValueError, match="Fetch: 'topics', expected one of"):
        read("Fetch topics nothing")
    with pytest.raises(ValueError, match="Fetch: 'some', expected one of"):
        read("Fetch topic some")
    with pytest.raises(KeyError, match="Fetsch"):
        read("Fetsch topic nothing")
