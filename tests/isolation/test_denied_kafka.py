"""What got around `deny` and `read_only` on a real Kafka: the same requests, with and without a rule."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka.admin import AdminClient

from kproxy.testing.kafka import Kafka
from kproxy.testing.one_request import topics
from kproxy.testing.process import Proxy
from tests.support.raw_client import RawClient
from tests.support.topics import create_topics

pytestmark = pytest.mark.kafka
METADATA, FIND_COORDINATOR, DESCRIBE_GROUPS = 3, 10, 15
CONSUMER_HEARTBEAT, CONSUMER_DESCRIBE, DESCRIBE_TOPIC_PARTITIONS, STREAMS_HEARTBEAT = 68, 69, 75, 88
OFFSET_COMMIT, OFFSET_FETCH = 8, 9
CREATE_TOPICS, INVALID_TOPIC_EXCEPTION = 19, 17
UNKNOWN_TOPIC_ID, TOPIC_AUTHORIZATION_FAILED = 100, 29
NOT_YET = (14, 15, 16)
"""The group's coordinator is being made."""
PATIENCE = 60
_numbers = itertools.count(1)
RULES = [
    {"name": "denied", "kind": "deny", "match": {"client_id": "denied", "topic": "secret*"}},
    {"name": "dots", "kind": "deny", "match": {"client_id": "denied", "topic": "dotted.*"}},
    {"name": "reader", "kind": "read_only", "match": {"client_id": "reader", "topic": "secret*"}},
]


@pytest.fixture(scope="module")
def proxy(kafka: Kafka) -> Iterator[Proxy]:
    """Rules for the clients `denied` and `reader`; `free` is under none."""
    with Proxy(kafka.bootstrap("PROXIED"), rules=RULES) as proxy:
        limit = time.monotonic() + PATIENCE
        with client(proxy, "free") as free:  # groups have a coordinator once somebody has asked for one
            asked_for = {"key_type": 0, "coordinator_keys": ["g"]}
            while free.call(FIND_COORDINATOR, 4, asked_for)["coordinators"][0]["error_code"]:
                assert time.monotonic() < limit
                time.sleep(0.2)
        yield proxy


@pytest.fixture(scope="module")
def names(kafka: Kafka) -> tuple[str, str]:
    """An open topic and a secret one, which comes last in the order of names among those of this test."""
    found = f"open-{next(_numbers)}", f"secret-{next(_numbers)}"
    create_topics(kafka.bootstrap("DIRECT"), *found)
    return found


def client(proxy: Proxy, who: str) -> RawClient:
    return RawClient(proxy.bootstrap, client_id=who)


def asked(*named: dict[str, Any], create: bool = False) -> dict[str, Any]:
    return {
        "topics": [{"topic_id": UUID(int=0), "name": None} | one for one in named],
        "allow_auto_topic_creation": create,
        "include_topic_authorized_operations": False,
    }


def ids(proxy: Proxy, *wanted: str) -> list[UUID]:
    """As a client that is under no rule is told."""
    with client(proxy, "free") as free:
        answer = free.call(METADATA, 12, asked(*({"name": name} for name in wanted)))
    return [topic["topic_id"] for topic in answer["topics"]]


def test_an_open_name_with_a_secret_id(proxy: Proxy, names: tuple[str, str]) -> None:
    """Kafka answers for the id; so does kproxy."""
    open_, secret = names
    (secret_id,) = ids(proxy, secret)
    both = asked({"name": open_, "topic_id": secret_id})
    with client(proxy, "free") as free, client(proxy, "denied") as denied:
        shown = free.call(METADATA, 12, both)["topics"]
        hidden = denied.call(METADATA, 12, both)["topics"]

    assert [topic["name"] for topic in shown] == [secret]
    assert [topic["error_code"] for topic in hidden] == [UNKNOWN_TOPIC_ID]
    assert not any(topic["partitions"] for topic in hidden)


def heartbeat(who: RawClient, group: str, member: str, epoch: int, regex: str | None) -> dict[str, Any]:
    return who.call(CONSUMER_HEARTBEAT, 1, {
        "group_id": group, "member_id": member, "member_epoch": epoch, "instance_id": None, "rack_id": None,
        "rebalance_timeout_ms": 10_000 if epoch == 0 else -1, "subscribed_topic_names": None,
        "subscribed_topic_regex": regex, "server_assignor": None, "topic_partitions": [] if epoch == 0 else None,
    })  # fmt: skip


def assigned(proxy: Proxy, who: str, regex: str, wanted: set[UUID]) -> tuple[set[UUID], str]:
    """Ids of topics that a member is assigned, and its group, which goes on.

    The broker may resolve a pattern before it has heard of the newest topics: wait until `wanted` are among them.
    """
    group = f"group-{next(_numbers)}"
    member = f"member-{group}"
    found: set[UUID] = set()
    limit = time.monotonic() + PATIENCE
    with client(proxy, who) as one:
        epoch = 0
        while time.monotonic() < limit and not wanted <= found:
            answer = heartbeat(one, group, member, epoch, regex)
            if answer["error_code"] == 0:
                epoch = answer["member_epoch"]
                parts = (answer["assignment"] or {}).get("topic_partitions") or ()
                found |= {part["topic_id"] for part in parts}
            time.sleep(0.1)
    return found, group


def test_a_pattern_finds_nothing_secret(proxy: Proxy, names: tuple[str, str]) -> None:
    """Neither in the assignment nor in what describes the group afterwards."""
    open_id, secret_id = ids(proxy, *names)
    shown, _ = assigned(proxy, "free", ".*", {open_id, secret_id})
    hidden, group = assigned(proxy, "denied", ".*", {open_id})
    with client(proxy, "free") as free, client(proxy, "denied") as denied:
        body = {"group_ids": [group], "include_authorized_operations": False}
        described = [one.call(CONSUMER_DESCRIBE, 1, body)["groups"] for one in (free, denied)]

    assert {open_id, secret_id} <= shown
    assert open_id in hidden and secret_id not in hidden
    assert names[1] in str(described[0]) and "secret" not in str(described[1])
    assert names[0] in str(described[1])


def test_a_list_in_pages_names_no_secret_place(proxy: Proxy, names: tuple[str, str]) -> None:
    """One topic a page: all open topics come, and no cursor says what is between them."""
    cursor, seen, said = None, [], []
    with client(proxy, "free") as free:  # other tests have topics on this Kafka, too
        found = free.call(METADATA, 12, asked() | {"topics": None})["topics"]
    pages = sum(1 + len(topic["partitions"]) for topic in found)
    with client(proxy, "denied") as denied:
        for _ in range(pages + 1):
            body = {"topics": [], "response_partition_limit": 1, "cursor": cursor}
            answer = denied.call(DESCRIBE_TOPIC_PARTITIONS, 0, body)
            seen += [topic["name"] for topic in answer["topics"]]
            said.append(str(answer))
            cursor = answer["next_cursor"]
            if cursor is None:
                break

    assert cursor is None
    assert names[0] in seen
    assert not any("secret" in one for one in said)


def streams(group: str, made: str, source: str) -> dict[str, Any]:
    """A member of a streams application that keeps a changelog."""
    topic = {"name": made, "partitions": 0, "replication_factor": 1, "topic_configs": []}
    part = {
        "subtopology_id": "0", "source_topics": [source], "source_topic_regex": [], "state_changelog_topics": [topic],
        "repartition_sink_topics": [], "repartition_source_topics": [], "copartition_groups": [],
    }  # fmt: skip
    return {
        "group_id": group, "member_id": f"m-{group}", "member_epoch": 0, "endpoint_information_epoch": 0,
        "instance_id": None, "rack_id": None, "rebalance_timeout_ms": 10_000,
        "topology": {"epoch": 0, "subtopologies": [part]}, "active_tasks": [], "standby_tasks": [], "warmup_tasks": [],
        "process_id": "p", "user_endpoint": None, "client_tags": [], "task_offsets": None, "task_end_offsets": None,
        "shutdown_application": False,
    }  # fmt: skip


def exists(kafka: Kafka, name: str) -> bool:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap("DIRECT")})
    return name in admin.list_topics(timeout=PATIENCE).topics


def test_a_streams_group_makes_no_secret_topic(kafka: Kafka, proxy: Proxy, names: tuple[str, str]) -> None:
    """Without the rule the broker makes the changelog; who may only read is refused."""
    made = {who: f"secret-made-{next(_numbers)}" for who in ("free", "reader")}
    codes = {}
    limit = time.monotonic() + PATIENCE
    for who, name in made.items():
        with client(proxy, who) as one:
            body = streams(f"app-{name}", name, names[0])
            code = one.call(STREAMS_HEARTBEAT, 0, body)["error_code"]
            while code in NOT_YET and time.monotonic() < limit:
                time.sleep(0.2)
                code = one.call(STREAMS_HEARTBEAT, 0, body)["error_code"]
            codes[who] = code
    while not exists(kafka, made["free"]) and time.monotonic() < limit:
        time.sleep(0.2)

    assert codes == {"free": 0, "reader": TOPIC_AUTHORIZATION_FAILED}
    assert exists(kafka, made["free"]) and not exists(kafka, made["reader"])


@pytest.mark.parametrize("version", [0, 3, 4, 12])
def test_metadata_makes_no_secret_topic(kafka: Kafka, proxy: Proxy, version: int) -> None:
    """Old versions always let the broker make what they name, newer ones ask for it."""
    made = {who: f"secret-{who}-{version}-{next(_numbers)}" for who in ("free", "reader")}
    for who, name in made.items():
        with client(proxy, who) as one:
            body: dict[str, Any] = asked({"name": name}, create=True)
            if version < 10:
                body = {"topics": [{"name": name}]} | ({"allow_auto_topic_creation": True} if version >= 4 else {})
            one.call(METADATA, version, body)
    limit = time.monotonic() + PATIENCE
    while not exists(kafka, made["free"]) and time.monotonic() < limit:
        time.sleep(0.1)

    assert exists(kafka, made["free"]) and not exists(kafka, made["reader"])
    assert made["reader"] not in topics(kafka.bootstrap("DIRECT"), None)


def committed(who: RawClient, group: str, *topics: list[str] | None) -> dict[str, Any]:
    """What OffsetFetch tells of this group, asked for once for each of these lists of topics; None: all."""
    wanted = [None if some is None else [{"name": one, "partition_indexes": [0]} for one in some] for some in topics]
    return who.call(OFFSET_FETCH, 8, {"groups": [{"group_id": group, "topics": some} for some in wanted]})


def test_offsets_of_a_group_that_is_asked_for_twice(proxy: Proxy, names: tuple[str, str]) -> None:
    """All of them, and all of them again: brokers answer both, and both leave out what is secret."""
    open_, secret = names
    group = f"group-{next(_numbers)}"
    part = [{"partition_index": 0, "committed_offset": 0, "committed_leader_epoch": -1, "committed_metadata": ""}]
    commit = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
    with client(proxy, "free") as free, client(proxy, "denied") as denied:
        free.call(OFFSET_COMMIT, 8, commit | {"topics": [{"name": one, "partitions": part} for one in names]})
        shown = committed(free, group, None, None)["groups"]
        hidden = [
            committed(denied, group, *asked) for asked in ([None], [None, None], [None, [open_]], [[open_], None])
        ]

    assert [{topic["name"] for topic in one["topics"]} for one in shown] == [{open_, secret}] * 2
    assert open_ in str(hidden[1]) and not any("secret" in str(one) for one in hidden)


def test_a_topic_that_a_new_one_collides_with_is_not_named(kafka: Kafka, proxy: Proxy) -> None:
    """Names that differ in dots and underscores only: the broker says which other one is there."""
    number = next(_numbers)
    there, new = f"dotted.{number}", f"dotted_{number}"
    create_topics(kafka.bootstrap("DIRECT"), there)
    topic = {"name": new, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    said = {}
    for who in ("free", "denied"):
        with client(proxy, who) as one:
            answer = one.call(CREATE_TOPICS, 5, {"topics": [topic], "timeout_ms": 9000, "validate_only": True})
        said[who] = answer["topics"][0]

    assert there in said["free"]["error_message"]
    assert said["denied"]["error_code"] == said["free"]["error_code"] == INVALID_TOPIC_EXCEPTION
    assert "dotted." not in str(said["denied"])
