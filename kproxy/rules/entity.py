"""Entities: the smallest units of a request, which rules select and which fail one by one.

The roles in `protocol/shapes.yaml` define an entity: its own fields and the fields of its outer levels. A level with a
null ("all") or empty inner array is itself an entity. A request without levels is one entity.

Two roles depend on other fields. A coordinator key is a group, a transactional id or a share partition by key type
(KIP-98, KIP-932). The name of a config or ACL resource is also a topic, group or transactional id by its type.
So a rule on the topic `orders` matches changes of its configs.

The reader of a request collects the positions of identifying fields in one walk. It never decodes records.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode
from binascii import Error
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from struct import Struct as Format
from typing import Any
from uuid import UUID

from kproxy.base.cooperative import yield_point, yielding, yielding_tuple
from kproxy.protocol import Message
from kproxy.protocol.elements import Roles, request_elements, top_roles
from kproxy.protocol.primitives import Buffer
from kproxy.protocol.scan.walk import Hits, Walk, read_string, walk
from kproxy.protocol.table import layout
from kproxy.protocol.table.layout import ZERO_UUID, Slot
from kproxy.protocol.table.shapes import RoleFields, Shape, shape

USER_RESOURCE = 7
"""The resource type of a SCRAM user, as ACLs have it (KIP-373)."""

LITERAL = 3
"""The pattern type of an ACL on one name; 4 is a prefix, 1 and 2 are filters over both (KIP-290)."""

PREFIXED = 4
ANY_TYPE = 1
EVERY = "*"
"""Literal name in an ACL for all resources of its type."""
CONFIG_TYPES = {2: "topic", 32: "group"}
ACL_TYPES = {2: "topic", 3: "group", 5: "transactional_id"}
KEY_TYPES = {0: "group", 1: "transactional_id"}
SHARE_KEY = 2


@dataclass(frozen=True, slots=True)
class Entity:
    """Smallest unit of a request, with the client's names. A field is None if the API and version lack it.

    resource: type and name of a config resource or ACL. where: indexes into the request's nested arrays; () for a
    request that is one entity, and for a partition of a fetch session that this request does not list. offset: the
    requested or committed offset, only if a rule selects on it; not part of the identity.
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
        raise ValueError(f"expected a request, got a response of {message.api.name}")
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
    """Return `make` extended by the offset among the roles."""
    return lambda roles, where: replace(make(roles, where), offset=roles.get(OFFSET))


def make_plain(roles: Roles, where: tuple[int, ...]) -> Entity:
    yield_point()
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
    yield_point()
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
    """Return the roles of a coordinator key. A share partition's key is `group:topic id:partition` with a base64 id. A
    key of an unknown type is both a group and a transactional id."""
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


TOP = -1
FORMATS = {"int8": Format(">b"), "int16": Format(">h"), "int32": Format(">i"), "int64": Format(">q")}

ValueReader = Callable[[Buffer, int, int], Any]


def string_reader(compact: bool) -> ValueReader:
    def read(buf: Buffer, start: int, end: int) -> str | None:
        data = read_string(buf, start, end, compact)
        return None if data is None else data.decode("utf-8", "surrogateescape")

    return read


def number_reader(name: str) -> ValueReader:
    unpack = FORMATS[name].unpack_from

    def read(buf: Buffer, start: int, end: int) -> Any:
        return unpack(buf, start)[0]

    return read


def read_uuid(buf: Buffer, start: int, end: int) -> UUID:
    return UUID(bytes=bytes(buf[start:end]))


def reader(slot: Slot) -> ValueReader:
    """Return the function that reads the value hit of this slot, or of an element of it."""
    if slot.type == "string":
        return string_reader(slot.compact)
    return read_uuid if slot.type == "uuid" else number_reader(slot.type)


@dataclass(frozen=True, slots=True)
class Sighting:
    """Meaning of a hit: a value of this role at this level; whether it opens an element or completes an entity."""

    level: int
    role: str
    read: ValueReader | None
    opens: bool
    completes: bool


class EntityReader:
    """Reader of the entities of one API and version; agrees with `entities` of the decoded message. `offsets`: with the
    offsets that it asks for or commits, which costs a field more of each partition."""

    __slots__ = ("deepest", "make", "seen", "walk")

    def __init__(self, form: Shape, offsets: bool = False) -> None:
        struct = layout.body(form.api.key, form.version, "request")
        slots = {slot.path: slot for slot in struct.everywhere()}
        self.deepest = len(form.request) - 1
        more = () if form.offset is None or not offsets else ((OFFSET, form.offset),)
        self.make: EntityMaker = with_offset(maker(form)) if more else maker(form)
        by_path = dict(sightings(form, slots, more))
        self.walk: Walk = walk(form.api.key, form.version, "request", frozenset(by_path))
        self.seen: tuple[Sighting | None, ...] = tuple(
            by_path[mark.path] if mark.what == what(slots[mark.path]) else None for mark in self.walk.marks
        )

    def read(self, buf: Buffer, body: int, end: int) -> tuple[Entity, ...]:
        """Return the entities of the body at buf[body:end], in order. Raises DecodeError."""
        hits: Hits = []
        self.walk.run(buf, body, end, hits)
        seen, deepest, make = self.seen, self.deepest, self.make
        entities: list[Entity] = []
        roles: list[dict[str, Any]] = [{} for _ in range(deepest + 2)]  # known at each level; last, at the top
        index = [-1] * (deepest + 1)
        opened = TOP
        for number, start, stop in yielding(hits):
            field = seen[number]
            if field is None:
                continue
            level = field.level
            if field.opens:
                if level <= opened < deepest:
                    entities.append(make(roles[opened], tuple(index[: opened + 1])))
                index[level] += 1
                if not index[level]:  # later elements of an array overwrite the keys of the one before
                    roles[level] = dict(roles[level - 1])
                if level < deepest:
                    index[level + 1 :] = [-1] * (deepest - level)
                opened = level
            if field.read is not None:
                roles[level][field.role] = field.read(buf, start, stop)
            if field.completes:
                entities.append(make(roles[level], tuple(index)))
        if opened < deepest or deepest < 0:
            entities.append(make(roles[opened], tuple(index[: opened + 1])))
        return yielding_tuple(tuple(entities))


def what(slot: Slot) -> str:
    """Return the hit of this slot's path that identifies an element. An array that is a key as a whole is identified by
    its count."""
    return "count" if slot.array and slot.struct is not None else "value"


def sightings(form: Shape, slots: dict[str, Slot], more: RoleFields = ()) -> list[tuple[str, Sighting]]:
    """Return the meaning of the hit at each path. The last field of the innermost level, in wire order, completes an
    entity. more: fields of that level in addition to its keys."""
    by_path = [
        (field, Sighting(TOP, role, reader(slots[field]), opens=False, completes=False)) for role, field in form.top
    ]
    order = list(slots)
    for number, level in enumerate(form.request):
        innermost = number == len(form.request) - 1
        for array in level.arrays:
            path = f"{level.path.rpartition('.')[0]}.{array}[]".lstrip(".")
            fields = (*level.keys, *more) if innermost else level.keys
            keys = [(key_path(path, field, slots), role) for role, field in fields]
            keys.sort(key=lambda key: order.index(key[0]))
            for place, (where, role) in enumerate(keys):
                read = None if what(slots[where]) == "count" else reader(slots[where])
                seen = Sighting(number, role, read, place == 0, innermost and place == len(keys) - 1)
                by_path.append((where, seen))
    return by_path


def key_path(array: str, field: str, slots: dict[str, Slot]) -> str:
    """Return the path of a key: the array's own if its elements are the values."""
    if field == "*":
        return array
    return f"{array}.{field}" if f"{array}.{field}" in slots else f"{array}.{field}[]"


@cache
def entity_reader(key: int, version: int, offsets: bool = False) -> EntityReader:
    """Return the reader of this API and version. Raises KeyError for one that the protocol table lacks."""
    return EntityReader(shape(key, version), offsets)
