"""Descriptions in words of what was asked for of a resource: the `detail` column, by API.

Keys of configs are told, their values never; of quotas and tokens the same. `requested` and `answered` are elements of
the request and of the response; each may be None. The words for numbers are from Kafka's enums ResourceType,
AclOperation, AclPermissionType, PatternType, ConfigResource.Type, ScramMechanism, AlterConfigOp.OpType and
FeatureUpdate.UpgradeType; a number without one stands in events as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kproxy.protocol.breath import each

ACL_RESOURCES = {
    1: "any", 2: "topic", 3: "group", 4: "cluster", 5: "transactional_id", 6: "delegation_token", 7: "user",
}  # fmt: skip
CONFIG_RESOURCES = {2: "topic", 4: "broker", 8: "broker_logger", 16: "client_metrics", 32: "group"}
OPERATIONS = {
    1: "any", 2: "all", 3: "read", 4: "write", 5: "create", 6: "delete", 7: "alter", 8: "describe",
    9: "cluster_action", 10: "describe_configs", 11: "alter_configs", 12: "idempotent_write", 13: "create_tokens",
    14: "describe_tokens", 15: "two_phase_commit",
}  # fmt: skip
PERMISSIONS = {1: "any", 2: "deny", 3: "allow"}
PATTERNS = {1: "any pattern", 2: "matching", 3: "literal", 4: "prefixed"}
COORDINATORS = {0: "group", 1: "transactional_id", 2: "share_partition"}
CONFIG_OPERATIONS = {0: "set", 1: "delete", 2: "append to", 3: "subtract from"}
MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
UPGRADES = {1: "upgrade", 2: "safe downgrade", 3: "unsafe downgrade"}


MessageElement = Mapping[str, Any]
DescribeElement = Callable[[MessageElement, MessageElement], str]

MOST_KEYS = 20
"""Keys of configs or quotas that one detail names."""


def word(words: Mapping[int, str], number: int) -> str:
    """Return the word for a number of the protocol, or the number as text."""
    return words.get(number) or str(number)


def listed(words: list[str]) -> str:
    """Join words with commas, and say how many were left out beyond MOST_KEYS."""
    more = len(words) - MOST_KEYS
    return ", ".join(words[:MOST_KEYS]) + (f" and {more} more" if more > 0 else "")


def new_topic(requested: MessageElement, answered: MessageElement) -> str:
    """Describe a topic of CreateTopics. A count of -1 asks for the broker's default, which the response may name."""
    partitions = answered.get("num_partitions", -1)
    replicas = answered.get("replication_factor", -1)
    parts = len(requested.get("assignments") or ())
    counts = [
        ("partitions", partitions if partitions > 0 else requested.get("num_partitions", -1)),
        ("replication factor", replicas if replicas > 0 else requested.get("replication_factor", -1)),
        ("assigned partitions", parts or -1),
    ]
    described = [f"{name} {count}" for name, count in counts if count > 0]
    keys = [config["name"] or "" for config in each(requested.get("configs") or ())]
    return listed([*described, *(f"set {key}" for key in each(keys))])


def more_partitions(requested: MessageElement, answered: MessageElement) -> str:
    """Describe a topic of CreatePartitions by its new count of partitions."""
    return f"partitions {requested['count']}" if requested else ""


def acl(element: MessageElement, filters: str = "") -> str:
    """Describe an ACL, or a filter over ACLs, whose field names end in `_filter`."""
    pattern = next((element[name] for name in PATTERN_FIELDS if name in element), None)
    principal, host = element[f"principal{filters}"], element[f"host{filters}"]
    words = [
        f"{word(PERMISSIONS, element['permission_type'])} {word(OPERATIONS, element['operation'])}",
        f"for {principal if principal is not None else 'any principal'}",
        f"from {host if host is not None else 'any host'}",
        "" if pattern is None else word(PATTERNS, pattern),
    ]
    return ", ".join(part for part in words if part)


PATTERN_FIELDS = ("resource_pattern_type", "pattern_type_filter", "pattern_type")


def created_acl(requested: MessageElement, answered: MessageElement) -> str:
    return acl(requested) if requested else ""


def deleted_acls(requested: MessageElement, answered: MessageElement) -> str:
    """Describe the filter of DeleteAcls and the number of ACLs that matched."""
    matched = answered.get("matching_acls")
    words = acl(requested, "_filter") if requested else ""
    return words if matched is None else f"{words}; matched {len(matched)}"


def shown_acls(requested: MessageElement, answered: MessageElement) -> str:
    return acl(requested, "_filter") if requested else ""


def shown_configs(requested: MessageElement, answered: MessageElement) -> str:
    keys = requested.get("configuration_keys")
    return "all keys" if keys is None else listed([key or "" for key in each(keys)])


def all_configs(requested: MessageElement, answered: MessageElement) -> str:
    """List the keys that AlterConfigs sets; it replaces what was set before."""
    return listed([f"set {config['name']}" for config in each(requested.get("configs") or ())])


def some_configs(requested: MessageElement, answered: MessageElement) -> str:
    configs = requested.get("configs") or ()
    return listed([f"{word(CONFIG_OPERATIONS, one['config_operation'])} {one['name']}" for one in each(configs)])


def quotas(requested: MessageElement, answered: MessageElement) -> str:
    return listed([f"{'remove' if one['remove'] else 'set'} {one['key']}" for one in each(requested.get("ops") or ())])


def scram(requested: MessageElement, answered: MessageElement) -> str:
    """Describe a change of AlterUserScramCredentials: an upsertion has iterations, a deletion none."""
    if not requested:
        return ""
    return f"{'set' if 'iterations' in requested else 'delete'} {word(MECHANISMS, requested['mechanism'])}"


def feature(requested: MessageElement, answered: MessageElement) -> str:
    if not requested:
        return ""
    how = UPGRADES.get(requested.get("upgrade_type", 0), "")
    return f"max version level {requested['max_version_level']}" + (f", {how}" if how else "")


def coordinator(requested: MessageElement, answered: MessageElement) -> str:
    """Describe the node that FindCoordinator answers, in the client's numbers."""
    return f"node {answered['node_id']}" if answered.get("node_id", -1) >= 0 else ""


def group(requested: MessageElement, answered: MessageElement) -> str:
    """Describe a group's state and member count, from DescribeGroups and its successors."""
    state, members = answered.get("group_state"), answered.get("members")
    words = [state or "", "" if members is None else f"members {len(members)}"]
    return ", ".join(part for part in words if part)


def transaction(requested: MessageElement, answered: MessageElement) -> str:
    return answered.get("transaction_state") or ""


def leaving(requested: MessageElement, answered: MessageElement) -> str:
    instance = requested.get("group_instance_id")
    return f"instance {instance}" if instance else ""


DETAILS: Mapping[int, DescribeElement] = {
    10: coordinator, 13: leaving, 15: group, 19: new_topic, 29: shown_acls, 30: created_acl, 31: deleted_acls,
    32: shown_configs, 33: all_configs, 37: more_partitions, 44: some_configs, 49: quotas, 51: scram, 57: feature,
    65: transaction, 69: group, 77: group, 89: group,
}  # fmt: skip
"""API key → its details."""
