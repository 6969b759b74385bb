"""What a tenant may write to reach others, in every place of a request; what a broker may be told by it.

The places come from the protocol's table, by the kind of the field.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any
from uuid import UUID

import re2

from kproxy.base.errors import DecodeError
from kproxy.protocol import Message
from kproxy.protocol.codec.structs import decode
from kproxy.protocol.codec.structs import encode as encode_body
from kproxy.protocol.framing import framed
from kproxy.protocol.table import layout
from kproxy.protocol.table.layout import Slot, Struct
from kproxy.rules.names.layer import GROUP, TOPIC, TRANSACTIONAL_ID
from kproxy.session.counters import Counters
from kproxy.session.rewrite.context import Context
from kproxy.session.rewrite.names.topic_ids import OURS, disguise, version_of
from tests.support.frames import message
from tests.support.random_values import random_struct

RULES = "rules:\n- {name: a, kind: prefix, prefix: a.}\n"
MINE, ALSO_MINE, SECRET, OTHER = (UUID(int=0x4000 << 64 | 0x8 << 60 | number << 96 | number) for number in (1, 2, 3, 4))
TOPICS = {"a.mine": MINE, "a.too": ALSO_MINE, "b.secret": SECRET, "secret": OTHER, "__consumer_offsets": UUID(int=1)}
OWN_IDS = {UUID(int=0), MINE, ALSO_MINE}
MATCH = 2  # a pattern of ACL filters: all that a name matches, prefixes of it and * among them
NAMES = ("mine", "b.secret", "secret", "a.mine", "", "!x", "!1", "__consumer_offsets", "b.secret\0", "*", "b.\udcff",
         "!unreachable:b.secret", "b" * 249)  # fmt: skip
PATTERNS = (".*", "b\\..*", "secret", "", "(", "mine|b.secret", "[^a].*", "\\Qb.secret\\E")
KEYS = ("mine", "b.secret", f"b.secret:{SECRET}:0", "::", "b:secret", "")

NO_NAMES = {
    "error_code", "error_text", "broker_id", "host", "port", "rack", "producer_id", "cluster_id", "listener_name",
    "offset_metadata", "member_id", "group_instance_id", "group_protocol", "client_id", "client_address",
    "config_value",
    "principal", "acl_host", "log_dir", "sasl_token", "secret", "quota_entity_type", "quota_entity_name",
    "request_frame", "principal_bytes", "response_frame", "client_instance_id", "telemetry", "app_host", "app_port",
}  # fmt: skip
"""Kinds that name no topic, group or transactional id. `request_frame` is Envelope's, which a tenant cannot send."""


def transformed(rng: Random, topic_id: UUID) -> UUID:
    """The id with bits turned over or around, as it is, or what would be sent for it."""
    number = topic_id.int
    turn = rng.randrange(1, 128)
    return UUID(int=rng.choice((
        number, number ^ 0xF0 << 72, number ^ 0xF << rng.randrange(0, 125), number ^ 1 << rng.randrange(128),
        (number << turn | number >> 128 - turn) & (1 << 128) - 1, int.from_bytes(topic_id.bytes[::-1], "big"),
        number ^ (1 << 128) - 1, int.from_bytes(disguise(topic_id.bytes, Context(Counters(), {})), "big"),
    )))  # fmt: skip


def any_id(rng: Random) -> UUID:
    """Ids of whoever it may be, reserved ones, and what they may become on the way."""
    one = rng.choice((*TOPICS.values(), UUID(int=0), UUID(int=2), UUID(int=rng.getrandbits(128))))
    while rng.randrange(2):
        one = transformed(rng, one)
    return one


def subscription(rng: Random) -> bytes:
    """Bytes of the consumer protocol."""
    version = rng.randrange(4)
    return version.to_bytes(2, "big") + encode_embedded("consumer_subscription", version, rng)


def encode_embedded(name: str, version: int, rng: Random) -> bytes:
    struct = layout.embedded(name, version)
    return bytes(encode_body(struct, filled(struct, random_struct(struct, rng), rng)))


def assignment(rng: Random) -> bytes:
    version = rng.randrange(4)
    return version.to_bytes(2, "big") + encode_embedded("consumer_assignment", version, rng)


HOSTILE: dict[str, Callable[[Random], Any]] = {
    "topic_name": lambda rng: rng.choice(NAMES),
    "group_id": lambda rng: rng.choice(NAMES),
    "transactional_id": lambda rng: rng.choice(NAMES),
    "topic_id": any_id,
    "topic_regex": lambda rng: rng.choice(PATTERNS),
    "transactional_id_regex": lambda rng: rng.choice(PATTERNS),
    "coordinator_key": lambda rng: rng.choice(KEYS),
    "config_resource_name": lambda rng: rng.choice(NAMES),
    "acl_resource_name": lambda rng: rng.choice(NAMES),
    "group_metadata": subscription,
    "group_assignment": assignment,
}
"""What a tenant may write in a field of each kind that names something."""


def filled(struct: Struct, value: Any, rng: Random) -> Any:
    """The decoded value with something hostile in every place."""
    if value is None:
        return None
    found = dict(value)
    for slot in struct.all_slots:
        item = found[slot.name]
        if slot.struct is not None:
            inner = slot.struct
            if slot.array:
                found[slot.name] = item and [filled(inner, one, rng) for one in item]
            else:
                found[slot.name] = filled(inner, item, rng)
        elif slot.kind in HOSTILE and item is not None:
            write = HOSTILE[slot.kind]
            found[slot.name] = [write(rng) for _ in item] if slot.array else write(rng)
        elif slot.name == "protocol_type":
            found[slot.name] = rng.choice(("consumer", item or ""))
        elif slot.name in ("resource_type", "resource_type_filter"):
            found[slot.name] = rng.choice((1, 2, 3, 4, 5, 16, 32))
        elif slot.name in ("pattern_type", "resource_pattern_type", "pattern_type_filter"):
            found[slot.name] = rng.choice((1, 2, 3, 4))
        elif slot.name == "key_type":
            found[slot.name] = rng.randrange(4)
    return found


def places(struct: Struct, value: Any) -> Iterator[tuple[Slot, Any, dict[str, Any]]]:
    """(slot, value, the element around it) for each field that names something."""
    if value is None:
        return
    for slot in struct.all_slots:
        item = value[slot.name]
        if slot.struct is not None:
            for one in (item or ()) if slot.array else (item,):
                yield from places(slot.struct, one)
        elif slot.kind in HOSTILE and item is not None:
            for one in item if slot.array else (item,):
                yield slot, one, value


def is_own(space: Any, name: str) -> bool:
    """Names of the tenant, what brokers refuse as a name, and what nothing has."""
    return name.startswith("a.") or not space.takes_prefix(name.encode("utf-8", "surrogateescape"))


def may_leave(asked: Message, slot: Slot, value: Any, around: dict[str, Any]) -> bool:
    """Return True if a broker that reads this value finds nothing of others by it."""
    match slot.kind:
        case "topic_name":
            return is_own(TOPIC, value)
        case "group_id":
            return is_own(GROUP, value)
        case "transactional_id":
            return is_own(TRANSACTIONAL_ID, value)
        case "topic_id":
            return value in OWN_IDS or (version_of(value.bytes) == OURS and value not in TOPICS.values())
        case "topic_regex":
            return value.startswith("*") or not any(
                re2.fullmatch(value, name) for name in TOPICS if not name.startswith("a.")
            )
        case "transactional_id_regex":
            return value == "" or value.startswith("*")
        case "coordinator_key":
            space = {1: TRANSACTIONAL_ID}.get(asked.body.get("key_type", 0), GROUP)
            return is_own(space, value)
        case "config_resource_name":
            space = {2: TOPIC, 32: GROUP}.get(around["resource_type"])
            return space is None or is_own(space, value)
        case "acl_resource_name":
            kind = around.get("resource_type", around.get("resource_type_filter"))
            if asked.api.name == "DeleteAcls" and around.get("pattern_type_filter") == MATCH and value != "!":
                return kind not in (1, 2, 3, 5)  # it would match what covers more than the tenant
            if asked.api.name == "CreateAcls" and kind == 1:
                return True  # brokers create none for any type
            return kind not in (1, 2, 3, 5) or value in ("", "!") or value.startswith("a.")
        case _:
            return embedded_is_own(slot.kind or "", value, asked)


def embedded_is_own(kind: str, data: bytes, asked: Message) -> bool:
    """The topics of consumer protocol bytes, as the broker's coordinator would read them."""
    if asked.body.get("protocol_type", "consumer") not in ("consumer", None):
        return True
    return all(is_own(TOPIC, name) for name in embedded_topics(kind, data))


def embedded_topics(kind: str, data: bytes) -> list[str]:
    """The topics that a coordinator reads in consumer protocol bytes; none where they are not that protocol's."""
    if len(data) < 2:
        return []
    name = "consumer_subscription" if kind == "group_metadata" else "consumer_assignment"
    struct = layout.embedded(name, min(int.from_bytes(data[:2], "big"), 3))
    try:
        body, _ = decode(struct, data[2:])
    except DecodeError:  # what is not the consumer protocol's is read by nobody
        return []
    return [value for slot, value, _ in places(struct, body) if slot.kind == "topic_name"]


def request(key: int, version: int, correlation: int, body: dict[str, Any]) -> bytes:
    """A frame with its size."""
    return framed(message(key, version, "request", body, correlation, "x"))


def hostile_body(key: int, version: int, seed: int) -> dict[str, Any]:
    struct = layout.body(key, version, "request")
    rng = Random(f"{key} {version} {seed}")
    body: dict[str, Any] = filled(struct, random_struct(struct, rng), rng)
    if key == 0:
        body["acks"] = 1
    return body
