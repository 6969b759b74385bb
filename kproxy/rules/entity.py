"""Entities: the smallest things that a request asks about, which rules select on and which fail one by one.

What an entity carries comes from the roles of `protocol/shapes.yaml`: its own fields and those of the levels around it,
down from the top of the request. A level whose inner array is null ("all") or empty is itself an entity, and so is a
request without any level.

Two roles depend on others. A coordinator key is a group, a transactional id or a share partition, by the request's key
type (KIP-98, KIP-932). The name of a config or ACL resource is also a topic, group or transactional id if its type says
so, so that a rule on the topic `orders` sees who alters its configs.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode
from binascii import Error
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from kproxy.protocol import Message
from kproxy.protocol.breath import breathe
from kproxy.protocol.elements import Roles, request_elements, top_roles
from kproxy.protocol.table.layout import ZERO_UUID
from kproxy.protocol.table.shapes import Shape, shape

USER_RESOURCE = 7
"""The resource type of a SCRAM user, as ACLs have it (KIP-373)."""

LITERAL = 3
"""The pattern type of an ACL on one name; 4 is a prefix, 1 and 2 are filters over both (KIP-290)."""

PREFIXED = 4
ANY_TYPE = 1
EVERY = "*"
"""Literal name in an ACL that stands for all there is of its type."""
CONFIG_TYPES = {2: "topic", 32: "group"}
ACL_TYPES = {2: "topic", 3: "group", 5: "transactional_id"}
KEY_TYPES = {0: "group", 1: "transactional_id"}
SHARE_KEY = 2


@dataclass(frozen=True, slots=True)
class Entity:
    """Smallest thing that a request asks about, in the client's names; None for what its API and version do not say.

    `resource`: type and name of a config resource or ACL. `where`: indexes into the request's nested arrays, () for a
    request that is one entity, and for a partition of a fetch session that this request does not list. `offset`: what
    is asked for there, or committed; no part of what it is, and only there where somebody selects on it.
    """

    topic: str | None = None
    topic_id: UUID | None = None
    partition: int | None = None
    group: str | None = None
    transactional_id: str | None = None
    resource: tuple[int, str] | None = None
    member: str | None = None
    where: tuple[int, ...] = ()
    covers: tuple[tuple[str, str], ...] = ()
    """Names that ACLs hold for besides, which are made or deleted: role and beginning of names, "" for all."""
    offset: int | None = field(default=None, compare=False)


OFFSET = "offset"
"""Role of the place in the log that is asked for or committed, where it is read."""

EntityMaker = Callable[[Roles, tuple[int, ...]], Entity]


def entities(message: Message) -> tuple[Entity, ...]:
    """Return the entities of a decoded request, in its order. One without arrays, or with none of them filled, is
    one."""
    if message.direction != "request":
        raise ValueError(f"entities are those of a request, found a response of {message.api.name}")
    form = shape(message.api.key, message.version)
    make = maker(form)
    found = tuple(make(element.roles, element.where) for element in request_elements(message))
    if form.offset is not None:
        offsets = (element.chain[-1].get(form.offset) for element in request_elements(message))
        found = tuple(replace(one, offset=offset) for one, offset in zip(found, offsets, strict=True))
    return found or (make(top_roles(form, message.body), ()),)


def maker(form: Shape) -> EntityMaker:
    """Return the function that makes entities of this shape from their roles."""
    roles = {role for keys in (form.top, *(level.keys for level in form.request)) for role, _ in keys}
    return make_special if roles & SPECIAL else make_plain


def make(roles: Roles, where: tuple[int, ...]) -> Entity:
    """Return an entity with these roles, whether they depend on others or not."""
    return make_plain(roles, where) if SPECIAL.isdisjoint(roles) else make_special(roles, where)


def with_offset(make: EntityMaker) -> EntityMaker:
    """Return the same, with the offset that stands among the roles."""
    return lambda roles, where: replace(make(roles, where), offset=roles.get(OFFSET))


def make_plain(roles: Roles, where: tuple[int, ...]) -> Entity:
    breathe()
    value = roles.get
    return Entity(
        value("topic"),
        None if (topic_id := value("topic_id")) == ZERO_UUID else topic_id,
        value("partition"),
        value("group"),
        value("transactional_id"),
        None,
        value("member"),
        where,
    )


def make_special(roles: Roles, where: tuple[int, ...]) -> Entity:
    breathe()
    known = dict(roles)
    if "coordinator_key" in known:
        known |= coordinator(known["coordinator_key"], known.get("key_type", 0))
    elif known.get("user") is not None:
        known["resource"] = USER_RESOURCE, known["user"]
    elif known.get("resource_name") is not None:
        known |= resource(known)
    covers = granted(known) if "granted_acl" in known else ()
    values = {name: known[name] for name in SAID if name in known and known[name] is not None}
    return Entity(**values, where=where, covers=covers)


SPECIAL = frozenset(("coordinator_key", "user", "resource_name", "granted_acl"))
SAID = ("topic", "topic_id", "partition", "group", "transactional_id", "resource", "member")


def coordinator(key: str | None, key_type: int) -> dict[str, Any]:
    """Return the roles that a coordinator key stands for. That of a share partition is `group:topic id:partition`, the
    id in base64; one of a type that kproxy does not know stands for a group and for a transactional id."""
    if key_type in KEY_TYPES:
        return {KEY_TYPES[key_type]: key}
    if key_type != SHARE_KEY:
        return dict.fromkeys(KEY_TYPES.values(), key)
    group, *rest = (key or "").rsplit(":", 2)
    if len(rest) != 2:
        return {}
    try:
        return {"group": group, "topic_id": UUID(bytes=urlsafe_b64decode(rest[0] + "==")), "partition": int(rest[1])}
    except (Error, ValueError):
        return {"group": group}


def resource(said: Roles) -> dict[str, Any]:
    """Return a config or ACL resource, and the topic, group or transactional id that it names: of ACLs that are made or
    deleted literally, of those that are listed also as what names begin with."""
    name = said["resource_name"]
    if "acl_type" in said:
        number, known = said["acl_type"], ACL_TYPES
        named = said.get("pattern_type", LITERAL) in (LITERAL, PREFIXED) and name != EVERY
    elif "granted_acl" in said:
        number, known = said["granted_acl"], ACL_TYPES
        named = said.get("granted_type", LITERAL) == LITERAL and name != EVERY
    else:
        number, known, named = said.get("config_type", CLIENT_METRICS), CONFIG_TYPES, True
    named_roles: dict[str, Any] = {"resource": (number, name)}
    if named and number in known:
        named_roles[known[number]] = name
    elif named and number == ANY_TYPE and "granted_acl" in said:
        named_roles |= dict.fromkeys(known.values(), name)
    return named_roles


def granted(said: Roles) -> tuple[tuple[str, str], ...]:
    """Return the names that ACLs of a request hold for beyond the one of a literal ACL: role and beginning, "" for
    all."""
    name, number = said.get("resource_name"), said["granted_acl"]
    roles = tuple(ACL_TYPES.values()) if number == ANY_TYPE else tuple(filter(None, (ACL_TYPES.get(number),)))
    pattern = said.get("granted_type", LITERAL)
    if pattern == LITERAL and name not in (None, EVERY):
        return ()
    begins = name if pattern == PREFIXED and name is not None else ""
    return tuple((role, begins) for role in roles)


CLIENT_METRICS = 16
"""The only type of config resources that ListConfigResources v0 lists."""
