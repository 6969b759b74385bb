"""What requests a broker whose ACLs are in the place of a rule of access would refuse."""

from __future__ import annotations

from base64 import urlsafe_b64decode
from binascii import Error
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from kproxy.protocol import Message
from kproxy.protocol.table.layout import Slot
from kproxy.rules.entity import ACL_TYPES, CONFIG_TYPES
from kproxy.rules.permissions import permissions
from kproxy.rules.select.mentions import HARMLESS, MAKES

PREFIX = "secret"
ANY_TYPE, ANY, MATCH, LITERAL, PREFIXED = 1, 1, 2, 3, 4
CREATE_ACLS, DELETE_ACLS = 30, 31
OF_SESSIONS = (1, 78, 79)
NAMED = {"topic_name": "topic", "group_id": "group", "transactional_id": "transactional_id"}


@dataclass(frozen=True)
class Access:
    """A rule of this kind about all that begins with `secret`."""

    kind: str
    roles: set[str]

    def covers(self, role: str | None, name: str | None) -> bool:
        return role in self.roles and name is not None and name.startswith(PREFIX)

    def protects(self, asked: Message, path: str) -> bool:
        """Whether what such a request names is forbidden at all."""
        if self.kind == "deny":
            return (asked.api.name, path) not in HARMLESS
        line = permissions()[asked.api.key]
        if asked.api.name == "Metadata":
            return bool(asked.body.get("allow_auto_topic_creation", asked.body["topics"]))
        if path in MAKES.get(asked.api.name, ()):
            return True
        return line.changes == "data" or ("offsets" in self.kind and line.changes == "offsets")


def forbidden(
    access: Access, topics: Mapping[str, UUID], asked: Message, slot: Slot, value: Any, around: Mapping[str, Any]
) -> bool:
    """Whether a broker would refuse this."""
    if not access.protects(asked, slot.path) or (asked.api.name, slot.path) in HARMLESS:
        return False
    if slot.kind in ("topic_id", "topic_name") and asked.api.key in OF_SESSIONS and not around["partitions"]:
        return False  # of no partition
    match slot.kind:
        case "topic_name" | "group_id" | "transactional_id":
            return access.covers(NAMED[slot.kind], value)
        case "topic_id":
            return any(access.covers("topic", name) for name, topic_id in topics.items() if topic_id == value)
        case "coordinator_key":
            return of_coordinator(access, topics, asked.body.get("key_type", 0), value)
        case "config_resource_name":
            return access.covers(CONFIG_TYPES.get(around["resource_type"]), value)
        case "acl_resource_name" if asked.api.key in (CREATE_ACLS, DELETE_ACLS):
            return of_acl(access, asked, value, around)
    return False


def of_coordinator(access: Access, topics: Mapping[str, UUID], kind: int, key: str) -> bool:
    """Keys of types that no broker knows yet may be anybody's."""
    if kind in (0, 1):
        return access.covers("transactional_id" if kind else "group", key)
    if kind != 2:
        return any(access.covers(role, key) for role in ("group", "transactional_id"))
    group, *rest = key.rsplit(":", 2)
    if len(rest) < 2:
        return False  # brokers refuse it
    if access.covers("group", group):
        return True
    try:
        topic = UUID(bytes=urlsafe_b64decode(rest[0] + "=="))
    except (Error, ValueError):
        return False
    return any(access.covers("topic", name) for name, topic_id in topics.items() if topic_id == topic)


def of_acl(access: Access, asked: Message, name: str | None, around: Mapping[str, Any]) -> bool:
    """An ACL that is made or deleted holds for a name that is forbidden, or may."""
    kind = around.get("resource_type", around.get("resource_type_filter"))
    pattern = around.get("resource_pattern_type", around.get("pattern_type_filter", LITERAL))
    if asked.api.key == CREATE_ACLS and kind == ANY_TYPE:
        return False  # brokers make none for any type
    roles = set(ACL_TYPES.values()) if kind == ANY_TYPE else {ACL_TYPES.get(kind or 0)}
    if not roles & access.roles:
        return False
    if name is None or (name == "*" and pattern != PREFIXED) or pattern == MATCH or name.startswith(PREFIX):
        return True
    return pattern in (ANY, PREFIXED) and PREFIX.startswith(name)
