"""Two tenants on one real cluster, each behind a proxy with a prefix rule: neither sees or touches what is the other's.

Both use the same names for everything, and real clients: Java's and librdkafka's.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer
from confluent_kafka.admin import AdminClient

from kproxy.testing import one_request
from kproxy.testing.kafka import Kafka
from kproxy.testing.plugin import PROXIED
from kproxy.testing.process import Proxy
from tests.support.java_program import JavaProgram

ACCESS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "allow.everyone.if.no.acl.found": "true",
}
INTERNAL = {"__consumer_offsets", "__transaction_state", "__share_group_state"}
UNKNOWN_TOPIC_ID = 100


@dataclass
class Tenant:
    """One of the two: its letter, its proxy, and the JVM with the clients that both use."""

    letter: str
    proxy: Proxy
    java: JavaProgram

    @property
    def config(self) -> dict[str, str]:
        return {"bootstrap.servers": self.proxy.bootstrap}

    def admin(self, *steps: list[Any]) -> list[Any]:
        return list(self.java("admin", config=self.config, steps=list(steps)))

    def produce(self, topic: str, count: int = 5) -> None:
        self.java("produce", config=self.config, topic=topic, tag=self.letter, count=count)

    def consume(self, group: str, count: int, protocol: str = "consumer", **what: Any) -> list[Any]:
        """Topics and values of what a consumer of the group gets."""
        config = self.config | {"group.id": group, "group.protocol": protocol, "auto.offset.reset": "earliest"}
        rows = self.java("consume", config=config, count=count, seconds=30, **what)
        return sorted((topic, value.strip()) for topic, _, value in rows)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Kafka]:
    """A broker that keeps ACLs."""
    with Kafka(1, listeners=[PROXIED], properties=ACCESS) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def tenants(cluster: Kafka, java: JavaProgram) -> Iterator[tuple[Tenant, Tenant]]:
    rules = {letter: {"name": letter, "kind": "prefix", "prefix": f"{letter}."} for letter in "ab"}
    with (
        Proxy(cluster.bootstrap("PROXIED"), rules=[rules["a"]]) as a,
        Proxy(cluster.bootstrap("PROXIED"), rules=[rules["b"]]) as b,
    ):
        yield Tenant("a", a, java), Tenant("b", b, java)
        for proxy in (a, b):
            assert proxy.samples("kproxy_requests_blocked_total") == []


def expected(letter: str, topic: str, count: int = 5) -> list[tuple[str, str]]:
    return sorted((topic, f"{letter}-{number}") for number in range(count))


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_topics_and_groups_of_one_name_are_two(cluster: Kafka, tenants: Any, protocol: str) -> None:
    """Each gets its own records, sees its own lists, and commits its own offsets."""
    topic, group = f"orders-{protocol}", f"app-{protocol}"
    for tenant in tenants:
        tenant.admin(["create", topic, 1, 1])
        tenant.produce(topic)
    for tenant in tenants:
        assert tenant.consume(group, 5, protocol, topics=[topic]) == expected(tenant.letter, topic)
    a, b = tenants
    b.produce(topic)
    assert len(b.consume(group, 5, protocol, topics=[topic])) == 5

    for tenant, offset in ((a, 5), (b, 10)):
        topics, groups, described, offsets, folders = tenant.admin(
            ["list"], ["groups"], ["members", group], ["group_offsets", group], ["log_dirs"]
        )
        assert topic in topics and not {one for one in topics if one.startswith(("a.", "b.")) or one in INTERNAL}
        assert group in groups and not {one for one in groups if one.startswith(("a.", "b."))}
        assert described["members"] == 0
        assert offsets == {f"{topic}-0": offset}
        assert topic in folders and not {one for one in folders if one.startswith(("a.", "b.", "__"))}
    upstream = set(one_request.topics(cluster.bootstrap("DIRECT")))
    assert {f"a.{topic}", f"b.{topic}"} <= upstream
    assert topic not in upstream


def test_a_pattern_finds_ones_own(tenants: Any) -> None:
    """A regular expression that the broker evaluates for the group finds only this tenant's topics."""
    for tenant in tenants:
        for topic in ("clicks-eu", "clicks-us"):
            tenant.admin(["create", topic, 1, 1])
            tenant.produce(topic, 2)
    for tenant in tenants:
        found = tenant.consume("patterns", 4, broker_pattern="clicks-.*")
        assert found == expected(tenant.letter, "clicks-eu", 2) + expected(tenant.letter, "clicks-us", 2)


def test_librdkafka_lives_there_too(tenants: Any) -> None:
    """Produce, consume, list and describe groups, with confluent-kafka."""
    for tenant in tenants:
        settings = {"bootstrap.servers": tenant.proxy.bootstrap}
        producer = Producer(settings | {"transactional.id": "rd"})
        producer.init_transactions(20)
        producer.begin_transaction()
        producer.produce("rd", tenant.letter)
        producer.commit_transaction(20)
        consumer = Consumer(settings | {"group.id": "rd", "auto.offset.reset": "earliest", "enable.auto.commit": False})
        consumer.subscribe(["rd"])
        (message,) = consumer.consume(1, 30)
        consumer.commit(message, asynchronous=False)
        consumer.close()
        assert (message.topic(), message.value()) == ("rd", tenant.letter.encode())

        admin = AdminClient(settings)
        groups = {one.group_id for one in admin.list_consumer_groups().result(60).valid}
        assert "rd" in groups and not {one for one in groups if one.startswith(("a.", "b."))}
        assert admin.describe_consumer_groups(["rd"])["rd"].result(60).group_id == "rd"
        offsets = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("rd")])["rd"].result(60)
        assert [(one.topic, one.offset) for one in offsets.topic_partitions] == [("rd", 1)]


def test_transactional_ids_of_one_name_are_two(tenants: Any) -> None:
    """Neither tenant fences the other's producer, and each lists its own; a pattern is about its own spelling."""
    for tenant in tenants:
        tenant.admin(["create", "from", 1, 1])
        tenant.admin(["create", "to", 1, 1])
        tenant.produce("from")
        consumer = tenant.config | {
            "group.id": "copier", "auto.offset.reset": "earliest", "enable.auto.commit": "false"
        }  # fmt: skip
        producer = tenant.config | {"transactional.id": "copier-1"}
        copied = tenant.java("copy", consumer=consumer, producer=producer, count=5, **{"from": "from", "to": "to"})
        assert copied["copied"] == 5
    for tenant in tenants:
        everything, matching, nothing, state, foreign, bad = tenant.admin(
            ["transactions"],
            ["transactions", "copier-[0-9]"],
            ["transactions", r"[ab]\.copier.*"],
            ["transaction", "copier-1"],
            ["try", ["transaction", "b.copier-1"]],
            ["try", ["transactions", "("]],
        )
        assert "copier-1" in everything and not {one for one in everything if one.startswith(("a.", "b."))}
        assert (matching, nothing) == (["copier-1"], [])
        assert state == "CompleteCommit"
        assert foreign == "TransactionalIdNotFoundException"
        assert bad == "InvalidRegularExpression"


def topic_id(tenant: Tenant, topic: str) -> str:
    (described,) = tenant.admin(["describe", topic])
    return str(described["id"])


def uuid(text: str) -> UUID:
    return UUID(bytes=base64.urlsafe_b64decode(text + "=="))


def test_a_foreign_topic_id_is_an_unknown_one(cluster: Kafka, tenants: Any) -> None:
    """Described, deleted, written, read or committed by its id: it is not there, and nothing happens to it."""
    a, b = tenants
    b.admin(["create", "secret", 1, 1])
    b.produce("secret", 3)
    foreign = topic_id(b, "secret")

    assert a.admin(["try", ["name_of_id", foreign]], ["try", ["delete_by_id", foreign]]) == [
        "UnknownTopicIdException"
    ] * 2  # fmt: skip
    node = node_of(a)
    part = {"partition": 0, "current_leader_epoch": -1, "fetch_offset": 0, "last_fetched_epoch": -1}
    part |= {"log_start_offset": 0, "partition_max_bytes": 100_000}
    whole = {"replica_state": {"replica_id": -1, "replica_epoch": -1}, "max_wait_ms": 100, "min_bytes": 0,
             "max_bytes": 100_000, "isolation_level": 0, "session_id": 0, "session_epoch": 0, "rack_id": "",
             "forgotten_topics_data": [], "cluster_id": None}  # fmt: skip
    body = whole | {"topics": [{"topic_id": uuid(foreign), "partitions": [part]}]}
    for version in (13, 15, 17):
        fields = body if version > 14 else {k: v for k, v in body.items() if k != "replica_state"} | {"replica_id": -1}
        (entry,) = one_request.ask(node, 1, version, fields)["responses"]
        assert entry["topic_id"] == uuid(foreign)
        assert [one["error_code"] for one in entry["partitions"]] == [UNKNOWN_TOPIC_ID]
        assert not entry["partitions"][0]["records"]
    data = [{"topic_id": uuid(foreign), "partition_data": [{"index": 0, "records": None}]}]
    written = {"transactional_id": None, "acks": 1, "timeout_ms": 1000, "topic_data": data}
    (entry,) = one_request.ask(node, 0, 13, written)["responses"]
    assert entry["topic_id"] == uuid(foreign)
    assert [one["error_code"] for one in entry["partition_responses"]] == [UNKNOWN_TOPIC_ID]
    committed = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": ""}
    commit = {"group_id": "thief", "generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None,
              "topics": [{"topic_id": uuid(foreign), "partitions": [committed]}]}  # fmt: skip
    (entry,) = one_request.ask(node, 8, 10, commit)["topics"]
    assert (entry["topic_id"], entry["partitions"][0]["error_code"]) == (uuid(foreign), UNKNOWN_TOPIC_ID)

    assert a.proxy.metric("kproxy_topic_ids_unreachable_total") > 0
    assert b.consume("reader", 3, topics=["secret"]) == expected("b", "secret", 3)


def node_of(tenant: Tenant) -> str:
    """Where a client reaches the broker through the tenant's proxy."""
    return next(iter(one_request.brokers(tenant.proxy.bootstrap).values()))


def test_what_is_meant_for_all_stays_at_home(tenants: Any) -> None:
    """An election of all leaders is refused; internal topics and other prefixes are no topics here."""
    a, _ = tenants
    a.admin(["create", "mine", 1, 1], ["set_config", "TOPIC", "mine", "retention.ms", "1000"])
    elected, described, foreign, configs = a.admin(
        ["try", ["elect_all"]],
        ["try", ["describe", "__consumer_offsets"]],
        ["try", ["describe", "b.orders-classic"]],
        ["config_resources"],
    )
    assert elected == "ClusterAuthorizationException"
    assert described == foreign == "UnknownTopicOrPartitionException"
    assert "TOPIC mine" in configs and not {one for one in configs if one.split()[1].startswith(("a.", "b.", "__"))}


def test_groups_have_configs_of_their_own(tenants: Any) -> None:
    """Config resources of type GROUP are renamed as groups are."""
    for number, tenant in enumerate(tenants):
        tenant.admin(["set_config", "GROUP", "configured", "consumer.session.timeout.ms", str(46_000 + number)])
    for number, tenant in enumerate(tenants):
        value, listed = tenant.admin(
            ["get_config", "GROUP", "configured", "consumer.session.timeout.ms"], ["config_resources"]
        )
        assert value == str(46_000 + number)
        assert [one for one in listed if one.startswith("GROUP ")] == ["GROUP configured"]


def test_acls_are_for_ones_own(cluster: Kafka, tenants: Any, java: JavaProgram) -> None:
    """`*` means all of the tenant's; each sees and revokes its own only, and none may revoke everything."""
    a, b = tenants
    for tenant in tenants:
        user = f"user-{tenant.letter}"
        tenant.admin(
            ["allow_any", "TOPIC", "LITERAL", "*", user],
            ["allow_any", "GROUP", "PREFIXED", "app", user],
            ["allow_any", "TRANSACTIONAL_ID", "LITERAL", "copier", user],
            ["allow", "LITERAL", "mine", user],
        )
    own = ["GROUP PREFIXED app", "TOPIC LITERAL *", "TOPIC LITERAL mine", "TRANSACTIONAL_ID LITERAL copier"]
    upstream = [word for one in "ab" for word in (
        f"GROUP PREFIXED {one}.app", f"TOPIC PREFIXED {one}.", f"TOPIC LITERAL {one}.mine",
        f"TRANSACTIONAL_ID LITERAL {one}.copier")]  # fmt: skip
    direct = {"bootstrap.servers": cluster.bootstrap("DIRECT")}

    assert a.admin(["all_acls"]) == b.admin(["all_acls"]) == [own]
    assert sorted(java("admin", config=direct, steps=[["all_acls"]])[0]) == sorted(upstream)
    assert a.admin(["try", ["revoke_all"]]) == ["InvalidRequestException"]
    assert a.admin(["try", ["revoke", "mine"]]) == ["InvalidRequestException"]  # all that match it: `*` of others, too
    assert a.admin(["all_acls"]) == b.admin(["all_acls"]) == [own]
    literal = {"resource_type_filter": 2, "resource_name_filter": "mine", "pattern_type_filter": 3}
    literal |= {"principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1}
    (deleted,) = one_request.ask(node_of(a), 31, 3, {"filters": [literal]})["filter_results"]
    assert (deleted["error_code"], [one["resource_name"] for one in deleted["matching_acls"]]) == (0, ["mine"])
    assert b.admin(["all_acls"]) == [own]


@pytest.mark.deep
def test_share_groups_are_ones_own(tenants: Any) -> None:
    """The same share group id is two groups, and each takes its tenant's records."""
    for tenant in tenants:
        tenant.admin(
            ["create", "shared", 1, 1], ["set_config", "GROUP", "sharers", "share.auto.offset.reset", "earliest"]
        )
        tenant.produce("shared", 3)
        config = tenant.config | {"group.id": "sharers"}
        rows = tenant.java("share", config=config, topics=["shared"], count=3, seconds=30)
        assert sorted((topic, value.strip()) for topic, _, value in rows) == expected(tenant.letter, "shared", 3)
