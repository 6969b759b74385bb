"""Details in words: what each API asks for of a resource."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.protocol.table import schema
from kproxy.record.audit.resource_columns import DETAILS, MOST_KEYS, listed

FILTER = {
    "pattern_type_filter": 3, "principal_filter": None, "host_filter": None, "operation": 6, "permission_type": 1,
}  # fmt: skip
ENTITY = {"entity_type": "user", "entity_name": "bob"}


def test_long_lists_are_cut() -> None:
    """So many are named, and the others counted."""
    words = [f"key{number}" for number in range(MOST_KEYS + 3)]
    assert listed(words).endswith(f"key{MOST_KEYS - 1} and 3 more")
    assert listed(words[:MOST_KEYS]).endswith(f"key{MOST_KEYS - 1}")
    assert listed([]) == ""


@pytest.mark.parametrize(
    ("api", "asked", "answered", "words"),
    [
        ("CreatePartitions", {"count": 12}, {}, "partitions 12"),
        ("CreateTopics", {"num_partitions": -1, "replication_factor": -1, "assignments": [{}, {}]}, {},
         "assigned partitions 2"),
        ("DeleteAcls", FILTER, {"matching_acls": [{}, {}]},
         "any delete, for any principal, from any host, literal; matched 2"),
        ("DescribeAcls", FILTER, {}, "any delete, for any principal, from any host, literal"),
        ("CreateAcls", {"principal": "User:a", "host": "*", "operation": 99, "permission_type": 3}, {},
         "allow 99, for User:a, from *"),
        ("DescribeConfigs", {"configuration_keys": None}, {}, "all keys"),
        ("DescribeConfigs", {"configuration_keys": ["a", "b"]}, {}, "a, b"),
        ("AlterConfigs", {"configs": [{"name": "a", "value": "secret"}]}, {}, "set a"),
        ("IncrementalAlterConfigs", {"configs": [{"name": "a", "config_operation": 2, "value": "secret"}]}, {},
         "append to a"),
        ("AlterClientQuotas", {"ops": [{"key": "consumer_byte_rate", "value": 5.0, "remove": True}]}, {},
         "remove consumer_byte_rate"),
        ("AlterUserScramCredentials", {"mechanism": 1, "iterations": 4096, "salt": b"secret"}, {},
         "set SCRAM-SHA-256"),
        ("AlterUserScramCredentials", {"mechanism": 2}, {}, "delete SCRAM-SHA-512"),
        ("UpdateFeatures", {"max_version_level": 25, "upgrade_type": 3}, {}, "max version level 25, unsafe downgrade"),
        ("UpdateFeatures", {"max_version_level": 25, "allow_downgrade": False}, {}, "max version level 25"),
        ("FindCoordinator", {}, {"node_id": 0}, "node 0"),
        ("FindCoordinator", {}, {"node_id": -1}, ""),
        ("DescribeGroups", {}, {"group_state": "Stable", "members": [{}]}, "Stable, members 1"),
        ("DescribeTransactions", {}, {"transaction_state": "Ongoing"}, "Ongoing"),
        ("LeaveGroup", {"member_id": "m", "group_instance_id": "till-2"}, {}, "instance till-2"),
    ],
)  # fmt: skip
def test_words(api: str, asked: dict[str, Any], answered: dict[str, Any], words: str) -> None:
    """Short and whole, without values."""
    assert DETAILS[schema.names()[api]](asked, answered) == words


@pytest.mark.parametrize("key", DETAILS)
def test_nothing_is_known(key: int) -> None:
    """Of a request that was not read, or not answered, no words are made up."""
    assert "None" not in DETAILS[key]({}, {})
