"""No topic name, group id or transactional id anywhere in the protocol is left as it is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from kproxy.protocol.codec.structs import decode, encode
from kproxy.protocol.edit import Edits
from kproxy.protocol.scan.walk import walk
from kproxy.protocol.table import layout, schema
from kproxy.protocol.table.layout import Struct
from kproxy.rules.names.composed import NameMap, NameMaps
from kproxy.rules.names.layer import GROUP, NAMESPACES, TOPIC, TRANSACTIONAL_ID, PrefixLayer
from kproxy.session.counters import Counters
from kproxy.session.rewrite.context import Context
from kproxy.session.rewrite.names import name_rewrite
from kproxy.session.rewrite.names.translator import SPACES
from tests.support.random_values import random_struct

CARRIERS = {
    "topics": {
        "topic_name", "topic_regex", "config_resource_name", "acl_resource_name", "group_metadata", "group_assignment"
    },
    "groups": {"group_id", "coordinator_key", "config_resource_name", "acl_resource_name"},
    "transactional_ids": {"transactional_id", "coordinator_key", "acl_resource_name"},
}  # fmt: skip
"""Namespace → kinds of fields that hold its names."""
NOT_REWRITTEN: dict[tuple[str, str], str] = {}
"""(API, path) → why a field of these kinds stays as it is. None does."""
FETCH, ELECT_LEADERS = 1, 43
BODIES = 4 if os.environ.get("KPROXY_TEST_ALL") else 1
"""Random ones of each version; the versions of a message differ little."""
SPECIAL = {3, 75}  # their answers are tested in test_answers.py
ALL = [
    (api.key, version, direction)
    for api in schema.apis()
    for version in api.versions
    for direction in ("request", "response")
]
TOPICS = NameMap.of({"orders": "prod.orders", "clicks-*": "prod.clicks-*"})
GROUPS = NameMap.of({"app": "prod.app", "team-*": "x.team-*"}, space=GROUP)
IDS = NameMap.of({"pay": "blue.pay", "worker-*": "blue.worker-*"}, space=TRANSACTIONAL_ID)
RENAMES = {
    "topics": NameMaps(topics=TOPICS),
    "groups": NameMaps(groups=GROUPS),
    "transactional_ids": NameMaps(None, None, IDS),
}
TENANT = NameMaps(*(NameMap([PrefixLayer(space, b"tenant-a.")], space) for space in NAMESPACES))
BOTH = NameMaps(
    NameMap([*TOPICS.layers, PrefixLayer(TOPIC, b"t.")]),
    NameMap([*GROUPS.layers, PrefixLayer(GROUP, b"g.")], GROUP),
    NameMap([*IDS.layers, PrefixLayer(TRANSACTIONAL_ID, b"i.")], TRANSACTIONAL_ID),
)
SETS = {**RENAMES, "tenant": TENANT, "renamed tenant": BOTH}
CLIENT_SIDE = {
    "topic_name": ("orders", "clicks-", "clicks-1", "clicks-" + "x" * 130, "other", "__consumer_offsets", ""),
    "group_id": ("app", "team-", "team-ü", "other group", "team-" + "y" * 300, ""),
    "transactional_id": ("pay", "worker-1", "x", "worker-" + "z" * 200, ""),
}


def renamed(struct: Struct, value: Any, name: Any) -> Any:
    """The decoded value with `name(kind, text)` applied to every name."""
    if value is None:
        return None
    found = dict(value)
    for slot in struct.all_slots:
        item = found[slot.name]
        if slot.struct is not None:
            inner: Any = slot.struct
            found[slot.name] = (
                renamed(inner, item, name) if not slot.array else item and [renamed(inner, one, name) for one in item]
            )
        elif slot.kind in SPACES:
            found[slot.name] = (
                name(slot.kind, item) if not slot.array else item and [name(slot.kind, one) for one in item]
            )
    return found


def bodies(key: int, version: int, direction: str) -> Iterator[dict[str, Any]]:
    """Random bodies whose names are ones that a client may use."""
    struct = layout.body(key, version, direction)
    for seed in range(BODIES):
        rng = Random(f"{version} {seed}")
        body = random_struct(struct, rng)
        yield renamed(struct, body, lambda kind, name, rng=rng: name and rng.choice(CLIENT_SIDE[kind]))


def rewritten(key: int, version: int, direction: str, data: bytes, names: NameMaps) -> bytes:
    rewrite = name_rewrite(key, version, direction, names)
    assert rewrite is not None
    found = walk(key, version, direction, rewrite.wanted)
    hits: list[tuple[int, int, int]] = []
    found.run(data, 0, len(data), hits)
    edits = Edits(data, 0, len(data), found, hits)
    context = Context(Counters(), {})
    context.known_topics = []
    bound = rewrite.bind(found)
    context.looked_up = bound(data, hits, edits, context)
    if context.looked_up is not None:  # the ids stay unknown after the lookup
        edits = Edits(data, 0, len(data), found, hits)
        assert bound(data, hits, edits, context) is None
    return b"".join(edits.pieces())


def paths(struct: Struct, kinds: set[str]) -> set[str]:
    return {slot.path for slot in struct.everywhere() if slot.kind in kinds}


@pytest.mark.parametrize("which", CARRIERS)
def test_every_carrier_of_a_name_is_wanted(which: str) -> None:
    """Walks the whole table: a field of a kind that holds names is looked at by the rewrite of its message."""
    missing = []
    for key, version, direction in ALL:
        struct = layout.body(key, version, direction)
        rewrite = name_rewrite(key, version, direction, RENAMES[which])
        kinds = CARRIERS[which] | ({"transactional_id_regex"} if which == "transactional_ids" else set())
        carried = paths(struct, kinds)
        left = carried - (rewrite.wanted if rewrite else frozenset())
        missing += sorted({(schema.load(key).name, path) for path in left} - set(NOT_REWRITTEN))
        assert carried or rewrite is None
    assert missing == []


def test_every_topic_id_of_a_tenant_is_wanted() -> None:
    """Requests, since it may be somebody else's; responses, since it may be one in disguise."""
    for key, version, direction in ALL:
        carried = paths(layout.body(key, version, direction), {"topic_id"})
        rewrite = name_rewrite(key, version, direction, TENANT)
        assert not carried or (rewrite is not None and carried <= rewrite.wanted)


@pytest.mark.parametrize("which", SETS)
@pytest.mark.parametrize(
    ("key", "direction"),
    sorted({
        (key, direction) for key, version, direction in ALL
        if paths(layout.body(key, version, direction), set(SPACES)) and not (key in SPECIAL and direction == "response")
    }),
)  # fmt: skip
def test_names_change_and_nothing_else(which: str, key: int, direction: str) -> None:
    """A request leaves with the broker's names, a response with the client's; all other bytes are the same. In every
    version."""
    for version in schema.load(key).versions:
        if name_rewrite(key, version, direction, SETS[which]) is not None:
            names_change_and_nothing_else(which, key, version, direction)


def names_change_and_nothing_else(which: str, key: int, version: int, direction: str) -> None:
    names, struct = SETS[which], layout.body(key, version, direction)

    def other_side(kind: str, name: str | None) -> str | None:
        found = names.get(SPACES[kind])
        return name if name is None or found is None else found.to_broker(name.encode()).decode()

    for body in bodies(key, version, direction):
        if "tenant" in which and (key, direction) == (ELECT_LEADERS, "request"):
            body["topic_partitions"] = body["topic_partitions"] or []  # null: all of the cluster, see test_tenants.py
        if "tenant" in which and (key, direction) == (FETCH, "request") and version >= 7:
            body["session_id"] = 0  # that of any other session becomes this one, see test_fetch_owner.py
        client, broker = encode(struct, body), encode(struct, renamed(struct, body, other_side))
        if direction == "request":
            sent = rewritten(key, version, direction, client, names)
            assert comparable(struct, sent) == comparable(struct, broker), version
        else:
            found = rewritten(key, version, direction, broker, names)
            assert comparable(struct, found) == comparable(struct, client), version


TESTED_ELSEWHERE = {"topic_regex", "transactional_id_regex", "coordinator_key", "acl_resource_name",
                    "config_resource_name", "group_metadata", "group_assignment", "topic_id"}  # fmt: skip


def comparable(struct: Struct, data: bytes) -> Any:
    """The bytes, or the values where some fields become others: their own tests say which."""
    if not paths(struct, TESTED_ELSEWHERE):
        return data
    body, end = decode(struct, data)
    assert end == len(data)
    return without(struct, body)


def without(struct: Struct, value: Any) -> Any:
    """The decoded value without the fields that are tested elsewhere."""
    if value is None:
        return None
    found = {}
    for slot in struct.all_slots:
        if slot.struct is not None:
            inner, item = slot.struct, value[slot.name]
            found[slot.name] = (
                without(inner, item) if not slot.array else item and [without(inner, one) for one in item]
            )
        elif slot.kind not in TESTED_ELSEWHERE:
            found[slot.name] = value[slot.name]
    return found


@pytest.mark.parametrize(
    "key", sorted({one[0] for one in ALL if one[2] == "response" and paths(layout.body(*one), set(SPACES))})
)
def test_no_answer_tells_a_tenant_of_others(key: int) -> None:
    """Whatever names of others an answer of the brokers holds, in whatever field, none of them leaves."""
    for version in schema.load(key).versions:
        struct = layout.body(key, version, "response")
        for seed in range(2 * BODIES if paths(struct, set(SPACES)) else 0):
            rng = Random(f"{version} {seed}")
            body = random_struct(struct, rng)
            body = renamed(struct, body, lambda kind, name, rng=rng: name and rng.choice(("b.SECRET", "tenant-a.x")))
            data = rewritten(key, version, "response", encode(struct, body), TENANT)
            assert b"SECRET" not in data, version
            decoded, end = decode(struct, data)
            assert end == len(data), version
            assert b"tenant-a." not in encode(struct, decoded), version
