"""Requests and answers that name something forbidden, made from the protocol's table.

Strategy. A body is filled slot by slot: names are open ones, and at chosen places forbidden ones stand, in an element
of their own behind one that is open. Nothing here knows an API by name, but for fields that say how another is meant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from kproxy.protocol.framing import framed
from kproxy.protocol.table import layout, schema
from kproxy.protocol.table.layout import Slot, Struct
from kproxy.session.cluster import CORRELATION
from kproxy.session.rewrite.names.topic_ids import learn
from kproxy.tools.rehearse.dialogue import Dialogue, response
from tests.support.frames import message

OPEN_ID, SECRET_ID = UUID("0a0a0a0a-0a0a-4a0a-8a0a-0a0a0a0a0a0a"), UUID("0b0b0b0b-0b0b-4b0b-8b0b-0b0b0b0b0b0b")
OPEN, SECRET = "open.y", "secret.x"
ROLES: dict[str, set[str]] = {"topic": {"topic_name", "topic_id", "group_metadata", "group_assignment", "topic_regex"},
         "group": {"group_id"}, "transactional_id": {"transactional_id"}}  # fmt: skip
RESOURCES = {"topic": 2, "group": 32}
ACLS = {"topic": 2, "group": 3, "transactional_id": 5}
COORDINATORS = {"group": 0, "transactional_id": 1}
METADATA = 3
KINDS = frozenset[str]().union(*ROLES.values()) | {"coordinator_key", "config_resource_name", "acl_resource_name"}
PLAIN: dict[str, Any] = {"string": "", "uuid": UUID(int=0), "bytes": b"", "bool": False, "float64": 0.0}


@dataclass(frozen=True)
class Wanted:
    """What is forbidden: `role`, and `at`, whether it stands at a path. `both`: whether arrays have an open element
    and one that is forbidden."""

    role: str
    at: Callable[[str], bool]
    both: Callable[[str], bool] = lambda path: True

    def names(self, slot: Slot) -> bool:
        """Whether this slot can hold what is forbidden."""
        kinds = ROLES[self.role]
        if slot.kind == "coordinator_key":
            return self.role in COORDINATORS
        if slot.kind == "config_resource_name":
            return self.role in RESOURCES
        return slot.kind in kinds or slot.kind == "acl_resource_name"


def subscription(*topics: str) -> bytes:
    """A member's, in the consumer protocol's version 1: its topics, and the same as owned partitions."""
    data = b"\x00\x01" + strings(topics) + b"\xff\xff\xff\xff"
    return data + owned(topics)


def assignment(*topics: str) -> bytes:
    """One partition of each topic."""
    return b"\x00\x00" + owned(topics) + b"\xff\xff\xff\xff"


def strings(texts: tuple[str, ...]) -> bytes:
    return len(texts).to_bytes(4, "big") + b"".join(len(one).to_bytes(2, "big") + one.encode() for one in texts)


def owned(topics: tuple[str, ...]) -> bytes:
    each = [len(one).to_bytes(2, "big") + one.encode() + bytes((0, 0, 0, 1, 0, 0, 0, 0)) for one in topics]
    return len(topics).to_bytes(4, "big") + b"".join(each)


def filled(struct: Struct, wanted: Wanted, bad: bool = False) -> dict[str, Any]:
    """A body, or an element of it. `bad`: its own names are forbidden where `wanted` says so."""
    return {slot.name: value(slot, wanted, bad) for slot in struct.all_slots}


def value(slot: Slot, wanted: Wanted, bad: bool) -> Any:
    if slot.array:
        both = wanted.both(slot.path)
        if slot.struct is not None:
            return [filled(slot.struct, wanted, one) for one in ((False, True) if both else (bad,))]
        if slot.kind not in KINDS:
            return [PLAIN.get(slot.type, 0)]
        return [one_value(slot, wanted, one) for one in ((False, True) if both else (bad,))]
    if slot.struct is not None:
        return filled(slot.struct, wanted, bad or "[]" not in slot.path)
    return one_value(slot, wanted, bad or "[]" not in slot.path)


def one_value(slot: Slot, wanted: Wanted, bad: bool) -> Any:
    secret = bad and wanted.names(slot) and wanted.at(slot.path)
    match slot.kind:
        case "topic_name" | "group_id" | "transactional_id" | "coordinator_key" | "config_resource_name" \
                | "acl_resource_name" | "topic_regex":  # fmt: skip
            return SECRET if secret else OPEN
        case "topic_id":
            return SECRET_ID if secret else OPEN_ID
        case "group_metadata":
            return subscription(OPEN, SECRET) if secret else subscription(OPEN)
        case "group_assignment":
            return assignment(OPEN, SECRET) if secret else assignment(OPEN)
    if slot.name in ("protocol_type", "protocol_type"):
        return "consumer"
    return special(slot, wanted)


def special(slot: Slot, wanted: Wanted) -> Any:
    """Fields that say how others are meant."""
    if slot.name in ("resource_type", "resource_type_filter"):
        return ACLS[wanted.role] if "pattern" in str(slot.path) else ACLS.get(wanted.role)
    if slot.name in ("resource_pattern_type", "pattern_type", "pattern_type_filter"):
        return 3
    if slot.name == "key_type":
        return COORDINATORS.get(wanted.role, 0)
    if slot.name == "acks":
        return 1
    if slot.name in ("member_epoch", "session_epoch", "share_session_epoch"):
        return 0
    return slot.default()


def is_config(key: int) -> bool:
    """Whether its resources are configs, whose types have other numbers than those of ACLs."""
    return any(
        slot.kind == "config_resource_name"
        for direction in ("request", "response")
        for version in schema.load(key).versions
        for slot in layout.body(key, version, direction).everywhere()
    )


def fitting(key: int, wanted: Wanted, body: Any) -> Any:
    """The body with the types of resources that this API means."""
    if isinstance(body, list):
        return [fitting(key, wanted, one) for one in body]
    if not isinstance(body, dict):
        return body
    found = {name: fitting(key, wanted, one) for name, one in body.items()}
    if "resource_type" in found and is_config(key):
        found["resource_type"] = RESOURCES.get(wanted.role, 2)
    return found


def places(key: int, version: int, direction: str, role: str) -> Iterator[str]:
    """Where such a thing can be named."""
    wanted = Wanted(role, lambda path: True)
    for slot in layout.body(key, version, direction).everywhere():
        without_types = slot.kind == "coordinator_key" and (key, version) == (10, 0)
        if wanted.names(slot) and not (without_types and role != "group"):
            yield slot.path


def talking(rules: str, *, known: bool = True) -> Dialogue:
    """A connection to a cluster whose ids kproxy knows, or not."""
    talk = Dialogue(rules)
    if known:
        memory = talk.session.context.cluster_memory
        learn(memory, OPEN_ID.bytes, OPEN.encode())
        learn(memory, SECRET_ID.bytes, SECRET.encode())
    return talk


def say_topics(talk: Dialogue) -> bool:
    """The broker answers what kproxy asks it for itself, if it does; whether it did."""
    asked = [one for one in talk.requests() if one.header["correlation_id"] == CORRELATION]
    if not asked or talk.closed:
        return False
    struct = next(slot.struct for slot in layout.body(METADATA, 10, "response").everywhere() if slot.path == "topics[]")
    assert struct is not None
    blank = {slot.name: slot.default() for slot in struct.slots}
    topics = [blank | {"name": name, "topic_id": one} for name, one in ((OPEN, OPEN_ID), (SECRET, SECRET_ID))]
    talk.broker(response(METADATA, 10, CORRELATION, topics=topics))
    return True


def request(key: int, version: int, correlation: int, body: dict[str, Any]) -> bytes:
    """The frame of a request, with its size."""
    return framed(message(key, version, "request", body, correlation))
