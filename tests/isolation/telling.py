"""Answers in which a broker names what is others', and some of the tenant's own, in every place."""

from __future__ import annotations

from random import Random
from typing import Any
from uuid import UUID

from kproxy.testing.values import random_struct
from kproxy.wire import layout
from kproxy.wire.codec import encode
from kproxy.wire.layout import Struct

MINE, FOREIGN = (UUID(int=0x4000 << 64 | 0x8 << 60 | number << 96 | number) for number in (1, 12))
SECRET = "b.SECRET"
NAMES = {"topic_name", "group_id", "transactional_id", "acl_resource_name", "config_resource_name", "coordinator_key"}
EMBEDDED = {"group_metadata": "consumer_subscription", "group_assignment": "consumer_assignment"}
CARRIERS = NAMES | set(EMBEDDED) | {"topic_id"}
ACL_TYPES, CONFIG_TYPES = (2, 3, 5), (2, 32)
"""Types of resources whose names are tenants'."""


def telling(struct: Struct, value: Any, rng: Random) -> Any:
    """The decoded value with names and ids of others, and some of the tenant's own, in every place."""
    if value is None:
        return None
    found = dict(value)
    for slot in (*struct.slots, *struct.tagged):
        item = found[slot.name]
        if slot.struct is not None:
            inner = slot.struct
            if slot.array:
                found[slot.name] = item and [telling(inner, one, rng) for one in item]
            else:
                found[slot.name] = telling(inner, item, rng)
        elif item is None:
            continue
        elif slot.kind in NAMES:
            names = [rng.choice((SECRET, "a.mine")) for _ in (item if slot.array else (1,))]
            found[slot.name] = names if slot.array else names[0]
        elif slot.kind == "topic_id":
            found[slot.name] = rng.choice((FOREIGN, MINE))
        elif slot.kind in EMBEDDED:
            inside = layout.embedded(EMBEDDED[slot.kind], 0)
            found[slot.name] = b"\0\0" + encode(inside, telling(inside, random_struct(inside, rng), rng))
        elif slot.name == "protocol_type":
            found[slot.name] = "consumer"
        elif slot.name == "resource_type":
            acl = any(other.kind == "acl_resource_name" for other in struct.slots)
            found[slot.name] = rng.choice(ACL_TYPES if acl else CONFIG_TYPES)
        elif slot.name == "pattern_type":
            found[slot.name] = rng.choice((3, 4))
    return found
