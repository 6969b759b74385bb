"""Answers in which a broker names what is others', and some of the client's own, in every place."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any
from uuid import UUID

from kproxy.protocol.codec.structs import encode
from kproxy.protocol.table import layout
from kproxy.protocol.table.layout import Struct
from kproxy.rules.entity import ACL_TYPES, CONFIG_TYPES
from tests.support.random_values import random_struct

MINE, FOREIGN = (UUID(int=0x4000 << 64 | 0x8 << 60 | number << 96 | number) for number in (1, 12))
SECRET = "b.SECRET"
NAMES = {"topic_name", "group_id", "transactional_id", "acl_resource_name", "config_resource_name", "coordinator_key"}
EMBEDDED = {"group_metadata": "consumer_subscription", "group_assignment": "consumer_assignment"}
ROLES = {"topic_name": "topic", "group_id": "group", "transactional_id": "transactional_id"}
ROLE_BY_TYPE = {"acl_resource_name": ACL_TYPES, "config_resource_name": CONFIG_TYPES}
CARRIERS = NAMES | set(EMBEDDED) | {"topic_id"}


@dataclass(frozen=True)
class Words:
    """What is said: names with the ids of the topics that are called so.

    `paired`: of an element with both fields, the id is that of the name, as a broker has it; `paths`: only there;
    `texts`: sentences that have a name in them, too; `others`: names of groups and transactional ids, if not the same.
    """

    topics: tuple[tuple[str, UUID], ...] = ((SECRET, FOREIGN), ("a.mine", MINE))
    paired: bool = False
    paths: Container[str] | None = None
    texts: Container[str] = ()
    others: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def at(self, path: str) -> bool:
        return self.paths is None or path in self.paths

    def name(self, role: str | None, topic: tuple[str, UUID] | None, rng: Random) -> str:
        """One of those of this role; of topics, this one if it is given."""
        names = self.others.get(role or "")
        return (topic or rng.choice(self.topics))[0] if names is None else rng.choice(names)


EVERYWHERE = Words()


def telling(struct: Struct, value: Any, rng: Random, words: Words = EVERYWHERE) -> Any:
    """The decoded value with names and ids of others, and some of the client's own, in every place."""
    if value is None:
        return None
    found = dict(value)
    topic = rng.choice(words.topics) if words.paired else None
    kinds = {slot.kind for slot in struct.slots}
    both = topic is not None and {"topic_name", "topic_id"} <= kinds
    if both and "error_code" in found:  # with an error a broker says again what it was asked
        found["error_code"] = 0
    if "acl_resource_name" in kinds:
        found |= {"resource_type": rng.choice(tuple(ACL_TYPES)), "pattern_type": rng.choice((3, 4))}
    elif "config_resource_name" in kinds:
        found |= {"resource_type": rng.choice(tuple(CONFIG_TYPES))}
    for slot in struct.all_slots:
        item = found[slot.name]
        paired = both and slot.kind == "topic_name" and words.at(slot.path)
        if slot.struct is not None:
            inner = slot.struct
            if slot.array:
                found[slot.name] = item and [telling(inner, one, rng, words) for one in item]
            else:
                found[slot.name] = telling(inner, item, rng, words)
        elif slot.path in words.texts:
            found[slot.name] = f"there is {rng.choice(words.topics)[0]}, too."
        elif not paired and (item is None or (slot.kind in CARRIERS and not words.at(slot.path))):
            continue
        elif slot.kind in NAMES:
            role = ROLES.get(slot.kind) or ROLE_BY_TYPE.get(slot.kind, {}).get(found.get("resource_type", 0))
            names = [words.name(role, topic, rng) for _ in (item if slot.array else (1,))]
            found[slot.name] = names if slot.array else names[0]
        elif slot.kind == "topic_id":
            found[slot.name] = (topic or rng.choice(words.topics))[1]
        elif slot.kind in EMBEDDED:
            inside = layout.embedded(EMBEDDED[slot.kind], 0)
            embedded = Words(words.topics)
            found[slot.name] = b"\0\0" + encode(inside, telling(inside, random_struct(inside, rng), rng, embedded))
        elif slot.name == "protocol_type":
            found[slot.name] = "consumer"
    return {name: one for name, one in found.items() if name in value}
