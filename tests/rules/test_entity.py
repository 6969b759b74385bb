"""What a request is about."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kproxy.protocol import Message
from kproxy.protocol.table import layout, schema
from kproxy.rules.entity import Entity, entities

ID = UUID("2c9b7d1e-0000-4000-8000-000000000001")


def asked(name: str, version: int, **body: Any) -> tuple[Entity, ...]:
    """The entities of a request whose other fields have their defaults."""
    api = schema.load(schema.names()[name])
    struct = layout.body(api.key, version, "request")
    full = struct.defaults() | body
    return entities(Message(api, version, {"request_api_key": api.key}, full))


def test_partitions_inherit_the_top() -> None:
    """Each partition of a Produce is an entity, in order, with the request's transactional id."""
    topics = [
        {"name": "b", "partition_data": [{"index": 3}, {"index": 1}]},
        {"name": "a", "partition_data": [{"index": 0}]},
    ]

    assert asked("Produce", 9, transactional_id="tx", topic_data=topics) == (
        Entity("b", partition=3, transactional_id="tx", where=(0, 0)),
        Entity("b", partition=1, transactional_id="tx", where=(0, 1)),
        Entity("a", partition=0, transactional_id="tx", where=(1, 0)),
    )


def test_topics_by_id() -> None:
    """Versions that name topics by id give ids; one of all zeros is none."""
    topics = [{"topic_id": ID, "partitions": [{"partition": 2}]}]

    assert asked("Fetch", 13, topics=topics) == (Entity(topic_id=ID, partition=2, where=(0, 0)),)
    assert asked("Metadata", 12, topics=[{"topic_id": UUID(int=0), "name": "a"}]) == (Entity("a", where=(0,)),)
    assert asked("Metadata", 12, topics=[{"topic_id": ID, "name": None}]) == (Entity(topic_id=ID, where=(0,)),)


def test_all_is_one_entity() -> None:
    """A null or empty array makes one entity of what is around it."""
    assert asked("Metadata", 12, topics=None) == (Entity(),)
    assert asked("ListGroups", 4) == (Entity(),)
    assert asked("ApiVersions", 3) == (Entity(),)
    assert asked("OffsetFetch", 5, group_id="g", topics=None) == (Entity(group="g"),)
    groups = [{"group_id": "g", "topics": None}, {"group_id": "h", "topics": [{"name": "t", "partition_indexes": [4]}]}]
    assert asked("OffsetFetch", 8, groups=groups) == (
        Entity(group="g", where=(0,)),
        Entity("t", partition=4, group="h", where=(1, 0, 0)),
    )


def test_groups_and_members() -> None:
    """Group requests are about their group and member; LeaveGroup 3 about each member that leaves."""
    members = [{"member_id": "m", "group_instance_id": None}, {"member_id": "n", "group_instance_id": "i"}]

    assert asked("Heartbeat", 3, group_id="g", member_id="m") == (Entity(group="g", member="m"),)
    assert asked("LeaveGroup", 3, group_id="g", members=members) == (
        Entity(group="g", member="m", where=(0,)),
        Entity(group="g", member="n", where=(1,)),
    )
    assert asked("DeleteGroups", 1, groups_names=["g", "h"]) == (
        Entity(group="g", where=(0,)),
        Entity(group="h", where=(1,)),
    )


def test_coordinator_keys() -> None:
    """A key is a group, a transactional id, or (v6) a share partition; that of an unknown type may be either."""
    share = "a:b:LJt9HgAAQACAAAAAAAAAAQ:5"

    assert asked("FindCoordinator", 0, key="g") == (Entity(group="g"),)
    assert asked("FindCoordinator", 1, key="t", key_type=1) == (Entity(transactional_id="t"),)
    assert asked("FindCoordinator", 4, key_type=1, coordinator_keys=["t"]) == (
        Entity(transactional_id="t", where=(0,)),
    )
    assert asked("FindCoordinator", 6, key_type=2, coordinator_keys=[share, "odd", "g:?:x"]) == (
        Entity(topic_id=ID, partition=5, group="a:b", where=(0,)),
        Entity(where=(1,)),
        Entity(group="g", where=(2,)),
    )
    assert asked("FindCoordinator", 4, key_type=9, coordinator_keys=["t"]) == (
        Entity(group="t", transactional_id="t", where=(0,)),
    )


def test_resources() -> None:
    """Configs are about a resource, and about the topic or group that it is; brokers are only resources."""
    resources = [{"resource_type": kind, "resource_name": "x", "configuration_keys": None} for kind in (2, 4, 32)]

    assert asked("DescribeConfigs", 2, resources=resources) == (
        Entity("x", resource=(2, "x"), where=(0,)),
        Entity(resource=(4, "x"), where=(1,)),
        Entity(group="x", resource=(32, "x"), where=(2,)),
    )


@pytest.mark.parametrize(("kind", "name"), [(2, "topic"), (3, "group"), (5, "transactional_id"), (4, None)])
def test_acls(kind: int, name: str | None) -> None:
    """An ACL on a literal name is about that topic, group or transactional id; a prefix is about all that begin so."""
    acl = {"resource_type": kind, "resource_name": "x", "principal": "User:u", "host": "*"}
    literal, prefix = acl | {"resource_pattern_type": 3}, acl | {"resource_pattern_type": 4}
    named: dict[str, Any] = {name: "x"} if name else {}

    assert asked("CreateAcls", 2, creations=[literal, prefix]) == (
        Entity(resource=(kind, "x"), where=(0,), **named),
        Entity(resource=(kind, "x"), where=(1,), covers=((name, "x"),) if name else ()),
    )
    assert asked("CreateAcls", 0, creations=[acl]) == (Entity(resource=(kind, "x"), where=(0,), **named),)
    assert asked("DescribeAcls", 1, resource_type_filter=kind, resource_name_filter=None) == (Entity(),)


def test_users() -> None:
    """SCRAM users are resources of type USER; deletions and upsertions are counted through."""
    found = asked("AlterUserScramCredentials", 0, deletions=[{"name": "a"}], upsertions=[{"name": "b"}])

    assert found == (Entity(resource=(7, "a"), where=(0,)), Entity(resource=(7, "b"), where=(1,)))


def test_a_response_has_none() -> None:
    """Entities are what a request asks about; a response is refused by name."""
    with pytest.raises(ValueError, match="response of Metadata"):
        entities(Message(schema.load(3), 1, {"correlation_id": 1}, {}))
