"""Numbers of resources, operations and the like in the protocol, and the words for them.

From Kafka's enums ResourceType, AclOperation, AclPermissionType, PatternType, ConfigResource.Type, ScramMechanism,
AlterConfigOp.OpType and FeatureUpdate.UpgradeType. A number that is not here stands in events as it is.
"""

from __future__ import annotations

from collections.abc import Mapping

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


def word(words: Mapping[int, str], number: int) -> str:
    """Return the word for a number of the protocol, or the number as text."""
    return words.get(number) or str(number)
