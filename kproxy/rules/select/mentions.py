"""Names in messages that are not keys of entities: subscriptions, assignments, topologies, cursors of paged responses.

`protocol/shapes.yaml` lists the keys of entities, which rules evaluate one by one. Every other field that the protocol
table marks as a name is found here by its kind, so new APIs are covered. A denied mention in a request fails the whole
request, except for `HARMLESS`. In a response it is redacted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from kproxy.protocol.codec.message import Message
from kproxy.protocol.table import layout, schema
from kproxy.protocol.table.layout import ZERO_UUID, Slot, Struct
from kproxy.protocol.table.shapes import Level, Shape, shape
from kproxy.rules.entity import Entity

ROLES: Mapping[str, frozenset[str]] = {
    "topic_name": frozenset(("topic",)),
    "topic_id": frozenset(("topic",)),
    "topic_regex": frozenset(("topic",)),
    "group_metadata": frozenset(("topic",)),
    "group_assignment": frozenset(("topic",)),
    "group_id": frozenset(("group",)),
    "transactional_id": frozenset(("transactional_id",)),
    "coordinator_key": frozenset(("group", "transactional_id")),
    "config_resource_name": frozenset(("topic", "group")),
    "acl_resource_name": frozenset(("topic", "group", "transactional_id")),
}
"""Kind of a field → the roles of the names that it may hold."""
TOPICS = ("topic_name", "topic_id")
NAMES: Mapping[str, str] = {
    "topic_name": "topic", "topic_id": "topic_id", "group_id": "group", "transactional_id": "transactional_id",
}  # fmt: skip

HARMLESS: Mapping[tuple[str, str], str] = {
    ("Fetch", "forgotten_topics_data[].topic"): "takes partitions out of a session",
    ("Fetch", "forgotten_topics_data[].topic_id"): "takes partitions out of a session",
    ("ShareFetch", "forgotten_topics_data[].topic_id"): "takes partitions out of a session",
    ("ConsumerGroupHeartbeat", "topic_partitions[].topic_id"): "what a member holds already of what it was given",
    ("ConsumerGroupHeartbeat", "subscribed_topic_regex"): "a pattern; what it finds is left out of the answers",
    ("StreamsGroupHeartbeat", "topology.subtopologies[].source_topic_regex[]"): "the same",
    ("DescribeTopicPartitions", "cursor.topic_name"): "a place in the order of names, where nothing need stand",
    ("JoinGroup", "protocols[].metadata"): "left out of the bytes before they go to the broker",
    ("SyncGroup", "assignments[].assignment"): "left out of the bytes before they go to the broker",
}
"""(API, path) of a request → why it may pass although it mentions what is forbidden."""
MAKES: Mapping[str, frozenset[str]] = {
    "StreamsGroupHeartbeat": frozenset((
        "topology.subtopologies[].state_changelog_topics[].name",
        "topology.subtopologies[].repartition_source_topics[].name",
    )),
}  # fmt: skip
"""API → mentions of topics that brokers create if they are missing."""

TEXTS: Mapping[str, frozenset[str]] = {
    "CreateTopics": frozenset(("topics[].error_message",)),
    "StreamsGroupHeartbeat": frozenset(("status[].status_detail",)),
}
"""API → error texts with topics that the request did not name."""

FieldPaths = frozenset[str]


@cache
def loose(key: int, version: int, direction: str) -> FieldPaths:
    """Return the paths of names in this message that are not keys of an entity and not next to one."""
    if version not in schema.load(key).versions:
        return frozenset()
    form, slots = shape(key, version), list(layout.body(key, version, direction).everywhere())
    kinds = {slot.path: slot.kind for slot in slots}
    keys = keyed(form, direction)
    beside = {parent(path) for path in keys if kinds.get(path) in TOPICS}
    return frozenset(
        slot.path
        for slot in slots
        if slot.kind in ROLES and slot.path not in keys and not (slot.kind in TOPICS and parent(slot.path) in beside)
    )


def keyed(form: Shape, direction: str) -> set[str]:
    levels: tuple[Level, ...] = form.request if direction == "request" else (*form.response, *form.lists)
    paths = {field for _, field in form.top} if direction == "request" else set()
    for level in levels:
        for array in level.arrays:
            path = f"{parent(level.path)}.{array}[]".lstrip(".")
            paths |= {path} if level.struct is None else {f"{path}.{field}" for _, field in level.keys}
            paths |= {f"{path}.{field}[]" for _, field in level.keys}
    return paths


def parent(path: str) -> str:
    return path.rpartition(".")[0]


@cache
def mentioned(key: int, version: int, direction: str) -> FieldPaths:
    """Return the selectors that can match mentions in such a message."""
    paths = loose(key, version, direction)
    slots = layout.body(key, version, direction).everywhere() if paths else ()
    roles = frozenset[str]().union(*(ROLES[slot.kind or ""] for slot in slots if slot.path in paths))
    if direction == "response" and texts(key, version):
        roles |= {"topic"}
    return roles | {"topic_id"} if "topic" in roles else roles


@cache
def texts(key: int, version: int) -> FieldPaths:
    """Return the paths of error texts in this response that may name topics outside the request."""
    paths = TEXTS.get(schema.load(key).name, frozenset())
    if not paths or version not in schema.load(key).versions:
        return frozenset()
    return paths & {slot.path for slot in layout.body(key, version, "response").everywhere()}


@cache
def refused(key: int, version: int) -> FieldPaths:
    """Return the paths of mentions that fail the whole request if they are denied."""
    api = schema.load(key).name
    slots = layout.body(key, version, "request").everywhere() if loose(key, version, "request") else ()
    paths = loose(key, version, "request")
    return frozenset(
        slot.path for slot in slots if slot.path in paths and slot.kind in NAMES and (api, slot.path) not in HARMLESS
    )


def said(request: Message, paths: FieldPaths | None = None) -> Iterator[Entity]:
    """Yield the things that a request mentions, as entities of their own; `paths`: only there."""
    key, version = request.api.key, request.version
    wanted = refused(key, version) if paths is None else paths
    if wanted:
        group = request.body.get("group_id")
        for slot, value in values(layout.body(key, version, "request"), request.body, wanted):
            if value is not None and value != ZERO_UUID:
                yield Entity(**{"group": group, NAMES[slot.kind or ""]: value})


def made(request: Message) -> Iterator[Entity]:
    """Yield the topics that brokers would create for a request."""
    paths = MAKES.get(request.api.name)
    if paths:
        yield from said(request, paths)


def values(struct: Struct, body: Mapping[str, Any], paths: FieldPaths) -> Iterator[tuple[Slot, Any]]:
    """Yield the fields at these paths with their values, those of arrays one by one."""
    for slot in struct.all_slots:
        value = body.get(slot.name)
        if value is None:
            continue
        each = value if slot.array else (value,)
        if slot.struct is not None:
            if any(path.startswith(slot.path) for path in paths):
                for element in each:
                    yield from values(slot.struct, element, paths)
        elif slot.path in paths:
            yield from ((slot, element) for element in each)
