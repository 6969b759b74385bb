"""Columns of resources other than topics: groups, configs, ACLs, users, quotas, features, …

The elements of the request's innermost level are matched with the response as in responses that kproxy makes: by their
keys, or by position. If topics are nested in several groups or transactions, those are the resources.

The `detail` column describes the requested change, by API. Keys of configs are recorded, their values never. The same
holds for quotas and tokens. `requested` and `answered` are elements of the request and of the response; each may be
None. Numbers are named as in Kafka's enums ResourceType, AclOperation, AclPermissionType, PatternType,
ConfigResource.Type, ScramMechanism, AlterConfigOp.OpType and FeatureUpdate.UpgradeType. Unknown numbers stay numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kproxy.base.cooperative import yielding
from kproxy.protocol.table.api_keys import (
    CREATE_DELEGATION_TOKEN,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DESCRIBE_ACLS,
    END_TXN,
    FIND_COORDINATOR,
    SASL_HANDSHAKE,
    UNREGISTER_BROKER,
)
from kproxy.protocol.table.errors import error_name
from kproxy.protocol.table.shapes import Level, Shape
from kproxy.record.audit.lines import plain
from kproxy.rules.entity import CLIENT_METRICS
from kproxy.session.respond.error_responses import Handle, handles_of

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
    """Join words with commas, and append the number of words beyond MAX_KEYS."""
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
    keys = [config["name"] or "" for config in yielding(requested.get("configs") or ())]
    return listed([*described, *(f"set {key}" for key in yielding(keys))])


def more_partitions(requested: MessageElement, answered: MessageElement) -> str:
    """Describe a topic of CreatePartitions by its new count of partitions."""
    return f"partitions {requested['count']}" if requested else ""


def acl(element: MessageElement, filters: str = "") -> str:
    """Describe an ACL, or an ACL filter, whose field names end in `_filter`."""
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
    return "all keys" if keys is None else listed([key or "" for key in yielding(keys)])


def all_configs(requested: MessageElement, answered: MessageElement) -> str:
    """List the keys that AlterConfigs sets; it replaces what was set before."""
    return listed([f"set {config['name']}" for config in yielding(requested.get("configs") or ())])


def some_configs(requested: MessageElement, answered: MessageElement) -> str:
    configs = requested.get("configs") or ()
    return listed([f"{word(CONFIG_OPERATIONS, one['config_operation'])} {one['name']}" for one in yielding(configs)])


def quotas(requested: MessageElement, answered: MessageElement) -> str:
    return listed(
        [f"{'remove' if one['remove'] else 'set'} {one['key']}" for one in yielding(requested.get("ops") or ())]
    )


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


ResourceRow = dict[str, Any]
NOTHING: MessageElement = {}
OF_TOPICS = frozenset(("topic", "topic_id"))
NAMES = {"dir": "log_dir", "member": "member", "instance": "member"}
"""Roles with another name as resource type."""
TOPICS_WITH_DETAIL = frozenset((CREATE_TOPICS, CREATE_PARTITIONS))
"""CreateTopics and CreatePartitions: the resource contains the requested properties of a topic."""


def type_and_name(roles: Mapping[str, Any]) -> tuple[str, str | None]:
    """Return the resource's type and name for an element with these roles; the first role decides."""
    if "resource_name" in roles:
        name = roles["resource_name"]
        for role in ("acl_type", "granted_acl"):
            if role in roles:
                return word(ACL_RESOURCES, roles[role]), name
        return word(CONFIG_RESOURCES, roles.get("config_type", CLIENT_METRICS)), name
    if "coordinator_key" in roles:
        return word(COORDINATORS, roles.get("key_type", 0)), roles["coordinator_key"]
    if "quota" in roles:
        parts = roles["quota"] or ()
        return "quota", ", ".join(f"{part['entity_type']} {part['entity_name'] or '(default)'}" for part in parts)
    role, value = next(iter(roles.items()))
    return NAMES.get(role, role), None if value is None else str(value)


class ApiResources:
    """Extractor of the resources of one API and version.

    `requested`, `answered`: their levels in the request and the response; None: not present.
    """

    def __init__(self, form: Shape) -> None:
        self.form = form
        self.detail = DETAILS.get(form.api.key)
        self.requested = resource_level(form.request, form.api.key)
        self.answered = resource_level(form.response, form.api.key)
        # a single group around topics has columns of its own
        self.around = self.requested is not None and self.requested is not form.request[-1]
        self.single = self.requested is None and form.api.key in SINGLE

    def columns(
        self, request: MessageElement, response: MessageElement | None, top_code: int | None, most: int
    ) -> dict[str, Any]:
        """Return the columns about resources.

        `top_code`: error code at the top of the response; None: no such field.
        """
        other = OTHERS.get(self.form.api.key)
        if other is not None:
            return {"resources": [{name: value for name, value in other(request).items() if value is not None}]}
        if self.requested is None and not self.single:
            return {}
        rows: list[ResourceRow] = []
        count = 0
        for roles, requested, answered in self.pairs(request, response or NOTHING):
            count += 1
            if count <= most:
                rows.append(self.row(roles, requested, answered, top_code))
        return {} if self.around and count == 1 else counted(rows, count, most)

    def pairs(
        self, request: MessageElement, response: MessageElement
    ) -> Iterator[tuple[Mapping[str, Any], MessageElement, MessageElement]]:
        """Yield (roles, element of the request, its answer) of each resource."""
        top = {role: request.get(field) for role, field in self.form.top}
        if self.single:
            yield top, request, response
        if self.requested is None:
            return
        answers = self.answers(response)
        for number, element in enumerate(self.requested.elements(request)):
            own = self.requested.roles(element)
            handles = ((number,),) if self.form.positional else self.handles(own)
            answer = next((answers[handle] for handle in handles if handle in answers), NOTHING)
            yield {**own, **top}, element if isinstance(element, dict) else NOTHING, answer

    def handles(self, roles: Mapping[str, Any]) -> tuple[Handle, ...]:
        return handles_of(self.answered, roles) if self.answered is not None else ()

    def answers(self, response: MessageElement) -> dict[Handle, MessageElement]:
        if self.answered is None:
            return {}
        elements = self.answered.elements(response)
        if self.form.positional:
            return {(number,): element for number, element in enumerate(elements)}
        level = self.answered
        return {handle: element for element in elements for handle in handles_of(level, level.roles(element))}

    def row(
        self, roles: Mapping[str, Any], requested: MessageElement, answered: MessageElement, top_code: int | None
    ) -> ResourceRow:
        kind, name = type_and_name(roles)
        row: ResourceRow = {"type": kind}
        text = plain(name)
        if text is not None:
            row["name"] = text
        field = self.answered.code if self.answered is not None else None
        code = answered[field] if field is not None and field in answered else top_code
        if code:
            row["error"] = error_name(code)
        detail = plain(self.detail(requested, answered) if self.detail is not None else None)
        if detail is not None:
            row["detail"] = detail
        return row


def resource_level(levels: tuple[Level, ...], key: int) -> Level | None:
    """Return the outermost level unless it is a level of topics; otherwise None."""
    if not levels:
        return None
    roles = {role for role, _ in levels[0].keys}
    return None if roles & OF_TOPICS and key not in TOPICS_WITH_DETAIL else levels[0]


def counted(rows: list[ResourceRow], count: int, most: int) -> dict[str, Any]:
    data: dict[str, Any] = {"resources": rows} if rows else {}
    if count > most:
        data["omitted_resources"] = count - most
    return data


SINGLE = frozenset((FIND_COORDINATOR, DESCRIBE_ACLS))
"""APIs that ask about one resource, in fields at the top: FindCoordinator 0 to 3, DescribeAcls."""

ReadResource = Callable[[MessageElement], ResourceRow]


def mechanism(request: MessageElement) -> ResourceRow:
    return {"type": "mechanism", "name": plain(request["mechanism"])}


def end_of_transaction(request: MessageElement) -> ResourceRow:
    name = plain(request["transactional_id"])
    return {"type": "transactional_id", "name": name, "detail": "commit" if request["committed"] else "abort"}


def broker(request: MessageElement) -> ResourceRow:
    return {"type": "broker", "name": str(request["broker_id"])}


def token(request: MessageElement) -> ResourceRow:
    owner = plain(request.get("owner_principal_name"))
    return {"type": "delegation_token", "detail": None if owner is None else f"for {owner}"}


OTHERS: Mapping[int, ReadResource] = {
    SASL_HANDSHAKE: mechanism,
    END_TXN: end_of_transaction,
    CREATE_DELEGATION_TOKEN: token,
    UNREGISTER_BROKER: broker,
}
"""API key → the resource that a request is about which has no role in the table of shapes."""
