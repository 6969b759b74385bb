"""Which error a broker answers with when something is not allowed."""

from __future__ import annotations

import pytest

from kproxy.protocol.table import errors as error_codes
from kproxy.protocol.table import schema
from kproxy.rules.entity import Entity
from kproxy.rules.kinds.base.access import denial

PARTITION = Entity(topic="t", partition=0)
ACL = Entity(topic="t", resource=(2, "t"))


@pytest.mark.parametrize(
    ("api", "selected", "entity", "error"),
    [
        ("Produce", "", PARTITION, "TOPIC"),
        ("Produce", "transactional_id", Entity(topic="t", partition=0, transactional_id="x"), "TRANSACTIONAL_ID"),
        ("Produce", "topic", Entity(topic="t", partition=0, transactional_id="x"), "TOPIC"),
        ("OffsetCommit", "", Entity(topic="t", partition=0, group="g"), "GROUP"),
        ("OffsetCommit", "topic", Entity(topic="t", partition=0, group="g"), "TOPIC"),
        ("OffsetCommit", "partition", Entity(topic="t", partition=0, group="g"), "TOPIC"),
        ("OffsetFetch", "member", Entity(group="g", member="m"), "GROUP"),
        ("TxnOffsetCommit", "", Entity(topic="t", group="g", transactional_id="x"), "TRANSACTIONAL_ID"),
        ("TxnOffsetCommit", "group", Entity(topic="t", group="g", transactional_id="x"), "GROUP"),
        ("AddOffsetsToTxn", "group", Entity(group="g", transactional_id="x"), "GROUP"),
        ("AddPartitionsToTxn", "topic", Entity(topic="t", transactional_id="x"), "TOPIC"),
        ("InitProducerId", "", Entity(), "CLUSTER"),
        ("InitProducerId", "", Entity(transactional_id="x"), "TRANSACTIONAL_ID"),
        ("FindCoordinator", "", Entity(group="g"), "GROUP"),
        ("FindCoordinator", "", Entity(transactional_id="x"), "TRANSACTIONAL_ID"),
        ("FindCoordinator", "", Entity(), "CLUSTER"),
        ("AlterConfigs", "", Entity(topic="t", resource=(2, "t")), "TOPIC"),
        ("DescribeConfigs", "", Entity(group="g", resource=(32, "g")), "GROUP"),
        ("IncrementalAlterConfigs", "", Entity(resource=(4, "1")), "CLUSTER"),
        ("DescribeConfigs", "", Entity(resource=(8, "1")), "CLUSTER"),
        ("CreateAcls", "topic", ACL, "CLUSTER"),
        ("ElectLeaders", "topic", PARTITION, "CLUSTER"),
        ("DeleteTopics", "", Entity(topic="t"), "TOPIC"),
        ("JoinGroup", "", Entity(group="g", member="m"), "GROUP"),
        ("DescribeTransactions", "", Entity(transactional_id="x"), "TRANSACTIONAL_ID"),
        ("CreateDelegationToken", "", Entity(), "DELEGATION_TOKEN"),
        ("Metadata", "", Entity(), "TOPIC"),
        ("ConsumerGroupHeartbeat", "", Entity(group="g"), "GROUP"),
    ],
)
def test_the_error_is_that_of_what_is_selected(api: str, selected: str, entity: Entity, error: str) -> None:
    """Of the checks that a broker makes for this API, the one that the rule selects on; else the first."""
    code = denial(schema.names()[api], frozenset(selected.split()), entity)

    assert error_codes.error_name(code) == f"{error}_AUTHORIZATION_FAILED"


@pytest.mark.parametrize("key", schema.paths())
def test_every_api_has_one(key: int) -> None:
    """Whatever is selected and whatever it is about."""
    for entity in (Entity(), PARTITION, ACL, Entity(group="g")):
        for selected in ((), ("topic",), ("group", "partition"), ("transactional_id",)):
            assert error_codes.error_name(denial(key, frozenset(selected), entity)).endswith("_AUTHORIZATION_FAILED")
