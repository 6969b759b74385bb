"""What operators read of the exchanges that they ask about: each event, literally."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kproxy.sinks.audit.request_event import request_event
from kproxy.watch.seen import Form, Frame, Seen
from kproxy.wire.records import Producer, Record, encode_batch

from .exchanges import FakeWho, seen, wall

HEADER = frozenset(
    (
        "connection", "cluster", "listener", "client_address", "client_port", "node", "broker", "principal",
        "software_name", "software_version", "client_id", "correlation_id", "api", "api_key", "version", "outcome",
        "answered_by", "request_bytes", "response_bytes", "request_in", "request_out", "response_in", "response_out",
        "latency_ms", "broker_ms", "rule_ms", "wait_ms",
    )
)  # fmt: skip
ORDERS = UUID("0a000000-0000-0000-0000-000000000001")
KNOWN = FakeWho(topics={str(ORDERS): "orders"}, renamed={"orders": "prod.orders", "billing": "prod.billing"})
NAMED = {"topic": "orders", "broker_topic": "prod.orders"}


def said(exchange: Seen, most: int = 100) -> dict[str, Any]:
    """The event without what all have."""
    return {name: value for name, value in request_event(exchange, wall, most).items() if name not in HEADER}


def batch(count: int, *, base: int = 0, codec: int = 0, producer: Producer | None = None) -> bytes:
    records = [Record(base + number, 1000, None, b"secret") for number in range(count)]
    return encode_batch(records, codec=codec, base_offset=base, producer=producer or Producer())


def test_produce() -> None:
    """A whole event: who, when, how long, and what was written to which offsets."""
    data = batch(3, codec=1, producer=Producer(77, 2, 5))
    request = {
        "transactional_id": "till", "acks": -1, "timeout_ms": 30000,
        "topic_data": [{"name": "orders", "partition_data": [
            {"index": 0, "records": data}, {"index": 1, "records": batch(2)}, {"index": 2, "records": None}]}],
    }  # fmt: skip
    response = {
        "responses": [{"name": "orders", "partition_responses": [
            {"index": 0, "base_offset": 100, "log_start_offset": 7},
            {"index": 1, "base_offset": -1, "error_code": 6, "error_message": "not here",
             "current_leader": {"leader_id": 3, "leader_epoch": 12}},
            {"index": 2, "base_offset": 9}]}],
        "throttle_time_ms": 20,
    }  # fmt: skip
    exchange = seen("Produce", 10, request, response, who=KNOWN, acks=-1, depth="walk", rules=["slow", "limit"])
    exchange.rule_wait, exchange.other_wait = (0.002, 0.001), (0.0, 0.0005)
    assert exchange.request is not None and exchange.response is not None

    assert request_event(exchange, wall) == {
        "connection": 3, "cluster": "main", "listener": "inside", "client_address": "10.1.2.3", "client_port": 40000,
        "node": 1, "broker": "b1:9092", "principal": "User:alice", "software_name": "librdkafka",
        "software_version": "2.16.0", "client_id": "tester", "correlation_id": 7, "api": "Produce", "api_key": 0,
        "version": 10, "depth": "walk", "outcome": "answered", "answered_by": "broker", "acks": -1,
        "request_bytes": exchange.request.size, "response_bytes": exchange.response.size,
        "request_in": "2026-11-21T10:00:01.000000Z", "request_out": "2026-11-21T10:00:01.003000Z",
        "response_in": "2026-11-21T10:00:01.009500Z", "response_out": "2026-11-21T10:00:01.012500Z",
        "latency_ms": 12.5, "broker_ms": 6.5, "rule_ms": 3.0, "wait_ms": 0.5, "throttle_ms": 20,
        "rules": ["slow", "limit"], "error": "NOT_LEADER_OR_FOLLOWER", "errors": ["NOT_LEADER_OR_FOLLOWER"],
        "error_message": "not here", "transactional_id": "till",
        "topics": [{**NAMED, "partitions": [
            {"partition": 0, "records": 3, "bytes": len(data), "batches": 1, "codec": "gzip", "base_offset": 100,
             "last_offset": 102, "log_start_offset": 7, "producer_id": 77, "producer_epoch": 2, "base_sequence": 5},
            {"partition": 1, "records": 2, "bytes": len(batch(2)), "batches": 1, "codec": "none",
             "error": "NOT_LEADER_OR_FOLLOWER", "leader": 3, "leader_epoch": 12},
            {"partition": 2, "base_offset": 9}]}],
        "total_records": 5, "total_bytes": len(data) + len(batch(2)),
    }  # fmt: skip


def test_produce_without_acknowledgement() -> None:
    """Nothing is said about errors and offsets that nobody was told."""
    partition = {"index": 4, "records": batch(1)}
    request = {"acks": 0, "topic_data": [{"topic_id": ORDERS, "partition_data": [partition]}]}
    exchange = seen("Produce", 13, request, who=KNOWN, outcome="no_answer_due", acks=0)

    event = request_event(exchange, wall)

    assert {"response_in", "response_out", "latency_ms", "broker_ms", "answered_by"}.isdisjoint(event)
    assert (event["outcome"], event["acks"]) == ("no_answer_due", 0)
    row = {"partition": 4, "records": 1, "bytes": len(batch(1)), "batches": 1, "codec": "none"}
    assert event["topics"] == [{**NAMED, "topic_id": str(ORDERS), "partitions": [row]}]


def test_produce_that_failed_as_a_whole() -> None:
    """An offset that the broker did not give is no offset of the producer's own count."""
    request = {"acks": 1, "topic_data": [{"name": "a", "partition_data": [{"index": 0, "records": batch(2)}]}]}
    answer = {"index": 0, "error_code": 29, "base_offset": -1}
    response = {"responses": [{"name": "a", "partition_responses": [answer]}]}

    (topic,) = said(seen("Produce", 9, request, response))["topics"]

    row = {"records": 2, "bytes": len(batch(2)), "batches": 1, "codec": "none"}
    assert topic["partitions"] == [{"partition": 0, **row, "error": "TOPIC_AUTHORIZATION_FAILED"}]


def test_fetch_in_a_session() -> None:
    """Partitions that only the response lists are told, and those that it leaves out have no error."""
    request = {
        "session_id": 5, "session_epoch": 3,
        "topics": [{"topic": "orders", "partitions": [
            {"partition": 0, "fetch_offset": 10, "current_leader_epoch": 4},
            {"partition": 1, "fetch_offset": 20, "log_start_offset": -1}]}],
    }  # fmt: skip
    data = batch(3, base=30) + batch(4, base=40)
    response = {
        "session_id": 5,
        "responses": [
            {"topic": "orders", "partitions": [
                {"partition_index": 1, "error_code": 1, "high_watermark": 15, "log_start_offset": 2}]},
            {"topic": "bills", "partitions": [
                {"partition_index": 7, "high_watermark": 44, "last_stable_offset": 44, "records": data}]}],
    }  # fmt: skip

    assert said(seen("Fetch", 12, request, response, who=KNOWN)) == {
        "throttle_ms": 0, "error": "OFFSET_OUT_OF_RANGE", "errors": ["OFFSET_OUT_OF_RANGE"],
        "topics": [
            {**NAMED, "partitions": [
                {"partition": 0, "fetch_offset": 10, "leader_epoch": 4},
                {"partition": 1, "fetch_offset": 20, "high_watermark": 15, "log_start_offset": 2,
                 "error": "OFFSET_OUT_OF_RANGE", "records": 0, "bytes": 0, "batches": 0}]},
            {"topic": "bills", "partitions": [
                {"partition": 7, "high_watermark": 44, "records": 7, "bytes": len(data), "batches": 2, "codec": "none",
                 "base_offset": 30, "last_offset": 43}]}],
        "total_records": 7, "total_bytes": len(data),
    }  # fmt: skip


def test_fetch_without_an_answer() -> None:
    """What was asked for is there; nothing is said about records that nobody saw."""
    partition = {"partition": 0, "fetch_offset": 10}
    request = {"topics": [{"topic": "a", "partitions": [partition]}]}
    assert said(seen("Fetch", 12, request)) == {"topics": [{"topic": "a", "partitions": [partition]}]}


def test_fetch_whose_session_is_not_known() -> None:
    """An error at the top is that of all partitions asked for."""
    partition = {"partition": 0, "fetch_offset": 10}
    request = {"session_epoch": 3, "topics": [{"topic_id": ORDERS, "partitions": [partition]}]}
    event = said(seen("Fetch", 13, request, {"error_code": 70}, who=KNOWN))
    assert event["error"] == "FETCH_SESSION_ID_NOT_FOUND"
    row = {"partition": 0, "fetch_offset": 10, "error": "FETCH_SESSION_ID_NOT_FOUND"}
    assert event["topics"] == [{**NAMED, "topic_id": str(ORDERS), "partitions": [row]}]


def test_offset_commit() -> None:
    """The group, the member and its generation, and the offset of each partition."""
    request = {
        "group_id": "billing", "generation_id_or_member_epoch": 4, "member_id": "m-1", "group_instance_id": "till-1",
        "topics": [{"name": "orders", "partitions": [
            {"partition_index": 0, "committed_offset": 55, "committed_leader_epoch": 2, "committed_metadata": "x"},
            {"partition_index": 1, "committed_offset": 66}]}],
    }  # fmt: skip
    answers = [{"partition_index": 0}, {"partition_index": 1, "error_code": 27}]
    response = {"topics": [{"name": "orders", "partitions": answers}]}

    assert said(seen("OffsetCommit", 8, request, response, who=KNOWN)) == {
        "throttle_ms": 0, "error": "REBALANCE_IN_PROGRESS", "errors": ["REBALANCE_IN_PROGRESS"],
        "group": "billing", "broker_group": "prod.billing", "member": "m-1", "instance": "till-1", "generation": 4,
        "topics": [{**NAMED, "partitions": [
            {"partition": 0, "committed_offset": 55, "leader_epoch": 2},
            {"partition": 1, "committed_offset": 66, "error": "REBALANCE_IN_PROGRESS"}]}],
    }  # fmt: skip


def test_commits_of_nobody() -> None:
    """A consumer that is in no group commits with generation -1: it has none."""
    request = {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": "", "topics": []}
    assert said(seen("OffsetCommit", 8, request, {"topics": []})) == {"throttle_ms": 0, "group": "g"}


def test_offset_fetch_of_several_groups() -> None:
    """The groups are resources with their errors, and topics say to which they belong; -1 is no committed offset."""
    asked = [{"name": "orders", "partition_indexes": [0, 1]}]
    request = {"groups": [{"group_id": "billing", "topics": asked}, {"group_id": "other", "topics": asked}]}
    offsets = [{"partition_index": 0, "committed_offset": 9}, {"partition_index": 1, "committed_offset": -1}]
    response = {
        "groups": [
            {"group_id": "billing", "topics": [{"name": "orders", "partitions": offsets}]},
            {"group_id": "other", "topics": [], "error_code": 30},
        ]
    }

    assert said(seen("OffsetFetch", 8, request, response, who=KNOWN)) == {
        "throttle_ms": 0, "error": "GROUP_AUTHORIZATION_FAILED", "errors": ["GROUP_AUTHORIZATION_FAILED"],
        "group": "billing", "broker_group": "prod.billing",
        "topics": [
            {**NAMED, "group": "billing", "partitions": [{"partition": 0, "committed_offset": 9}, {"partition": 1}]},
            {**NAMED, "group": "other", "partitions": [
                {"partition": 0, "error": "GROUP_AUTHORIZATION_FAILED"},
                {"partition": 1, "error": "GROUP_AUTHORIZATION_FAILED"}]}],
        "resources": [
            {"type": "group", "name": "billing"},
            {"type": "group", "name": "other", "error": "GROUP_AUTHORIZATION_FAILED"}],
    }  # fmt: skip


def test_offset_fetch_of_one_group() -> None:
    """One group has its columns, and is no resource beside."""
    asked = [{"name": "a", "partition_indexes": [3]}]
    request = {"groups": [{"group_id": "g", "member_id": "m", "member_epoch": 6, "topics": asked}]}
    answer = {"partition_index": 3, "committed_offset": 9, "committed_leader_epoch": 1}
    response = {"groups": [{"group_id": "g", "topics": [{"name": "a", "partitions": [answer]}]}]}
    assert said(seen("OffsetFetch", 9, request, response)) == {
        "throttle_ms": 0, "group": "g", "member": "m", "generation": 6,
        "topics": [{"topic": "a", "partitions": [{"partition": 3, "committed_offset": 9, "leader_epoch": 1}]}],
    }  # fmt: skip


def test_join_group() -> None:
    """The member id and the generation are those that the coordinator gave; a leader sees the members."""
    request = {
        "group_id": "billing", "member_id": "", "group_instance_id": "till-1", "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"secret"}],
    }  # fmt: skip
    response = {
        "generation_id": 12, "protocol_name": "range", "leader": "m-1", "member_id": "m-1",
        "members": [{"member_id": "m-1", "metadata": b"secret"}, {"member_id": "m-2", "metadata": b"secret"}],
    }  # fmt: skip
    assert said(seen("JoinGroup", 6, request, response, who=KNOWN)) == {
        "throttle_ms": 0, "group": "billing", "broker_group": "prod.billing", "member": "m-1", "instance": "till-1",
        "generation": 12, "members": 2, "protocol": "range",
    }  # fmt: skip


def test_join_group_that_failed() -> None:
    """Of a failed response only the error counts; the member id that it gives out stands in the next request."""
    request = {"group_id": "g", "member_id": "m-0", "protocol_type": "consumer", "protocols": []}
    response = {"error_code": 79, "generation_id": -1, "member_id": "m-9", "members": []}
    assert said(seen("JoinGroup", 9, request, response)) == {
        "throttle_ms": 0, "error": "MEMBER_ID_REQUIRED", "errors": ["MEMBER_ID_REQUIRED"], "group": "g",
        "member": "m-0",
    }  # fmt: skip


@pytest.mark.parametrize(("api", "version"), [("SyncGroup", 5), ("Heartbeat", 4)])
def test_rounds_of_a_group(api: str, version: int) -> None:
    """Group, member, generation and what the coordinator said; assignments stay out."""
    request: dict[str, Any] = {"group_id": "g", "generation_id": 3, "member_id": "m"}
    protocol: dict[str, Any] = {}
    if api == "SyncGroup":
        protocol = {"protocol": "range"}
        request |= {"protocol_name": "range", "assignments": [{"member_id": "m", "assignment": b"secret"}]}
    assert said(seen(api, version, request, {"error_code": 22})) == {
        "throttle_ms": 0, "error": "ILLEGAL_GENERATION", "errors": ["ILLEGAL_GENERATION"], "group": "g",
        "member": "m", "generation": 3, **protocol,
    }  # fmt: skip


def test_leave_group() -> None:
    """All members that leave are told; the first is the event's."""
    members = [{"member_id": "m-1"}, {"member_id": "", "group_instance_id": "till-2"}]
    answers = [members[0], {**members[1], "error_code": 25}]
    assert said(seen("LeaveGroup", 5, {"group_id": "g", "members": members}, {"members": answers})) == {
        "throttle_ms": 0, "error": "UNKNOWN_MEMBER_ID", "errors": ["UNKNOWN_MEMBER_ID"], "group": "g",
        "member": "m-1",
        "resources": [
            {"type": "member", "name": "m-1"},
            {"type": "member", "error": "UNKNOWN_MEMBER_ID", "detail": "instance till-2"}],
    }  # fmt: skip


def test_consumer_group_heartbeat() -> None:
    """The epoch is the coordinator's, topics are those subscribed to, partitions those assigned."""
    request = {
        "group_id": "billing", "member_id": "m", "member_epoch": 0, "instance_id": "till-1",
        "server_assignor": "uniform", "subscribed_topic_names": ["orders", "bills"],
    }  # fmt: skip
    assignment = {"topic_partitions": [{"topic_id": ORDERS, "partitions": [2, 3]}]}
    response = {"member_id": "m", "member_epoch": 8, "assignment": assignment}
    assert said(seen("ConsumerGroupHeartbeat", 1, request, response, who=KNOWN)) == {
        "throttle_ms": 0, "group": "billing", "broker_group": "prod.billing", "member": "m", "instance": "till-1",
        "generation": 8, "protocol": "uniform",
        "topics": [
            {**NAMED, "topic_id": str(ORDERS), "partitions": [{"partition": 2}, {"partition": 3}]},
            {"topic": "bills"}],
    }  # fmt: skip


def test_leaving_by_heartbeat() -> None:
    """A member leaves with epoch -1, a static one with -2 (KIP-848); the event says so."""
    request = {"group_id": "g", "member_id": "m", "member_epoch": -2}
    event = said(seen("ConsumerGroupHeartbeat", 1, request, {"member_id": "m", "member_epoch": -2}))
    assert event == {"throttle_ms": 0, "group": "g", "member": "m", "generation": -2}


def test_share_group_heartbeat() -> None:
    """As of consumer groups; an error leaves the request's epoch."""
    request = {"group_id": "g", "member_id": "m", "member_epoch": 4, "subscribed_topic_names": ["a"]}
    response = {"error_code": 110, "error_message": "epoch 4, not 5", "member_epoch": 0}
    assert said(seen("ShareGroupHeartbeat", 1, request, response)) == {
        "throttle_ms": 0, "error": "FENCED_MEMBER_EPOCH", "errors": ["FENCED_MEMBER_EPOCH"],
        "error_message": "epoch 4, not 5", "group": "g", "member": "m", "generation": 4, "topics": [{"topic": "a"}],
    }  # fmt: skip


def test_share_fetch() -> None:
    """Records as of Fetch; acknowledgements that failed are errors of their partitions."""
    partitions = [{"partition_index": 0}, {"partition_index": 1}]
    request = {"group_id": "g", "member_id": "m", "topics": [{"topic_id": ORDERS, "partitions": partitions}]}
    answers = [
        {"partition_index": 0, "records": batch(2, base=5), "acquired_records": []},
        {"partition_index": 1, "acknowledge_error_code": 121, "records": None},
    ]
    response = {"responses": [{"topic_id": ORDERS, "partitions": answers}]}
    rows = [
        {"partition": 0, "records": 2, "bytes": len(batch(2)), "batches": 1, "codec": "none", "base_offset": 5,
         "last_offset": 6},
        {"partition": 1, "error": "INVALID_RECORD_STATE"},
    ]  # fmt: skip
    assert said(seen("ShareFetch", 1, request, response, who=KNOWN)) == {
        "throttle_ms": 0, "error": "INVALID_RECORD_STATE", "errors": ["INVALID_RECORD_STATE"], "group": "g",
        "member": "m", "topics": [{**NAMED, "topic_id": str(ORDERS), "partitions": rows}],
        "total_records": 2, "total_bytes": len(batch(2)),
    }  # fmt: skip


def test_create_topics() -> None:
    """What was asked for stands in the resource; values of configs, and words that quote them, do not."""
    request = {
        "topics": [
            {"name": "orders", "num_partitions": -1, "replication_factor": -1,
             "configs": [{"name": "retention.ms", "value": "secret"}]},
            {"name": "bills", "num_partitions": 6, "replication_factor": 3}],
    }  # fmt: skip
    answers = [
        {"name": "orders", "topic_id": ORDERS, "num_partitions": 12, "replication_factor": 3},
        {"name": "bills", "error_code": 36, "error_message": "secret"},
    ]
    assert said(seen("CreateTopics", 7, request, {"topics": answers}, who=KNOWN)) == {
        "throttle_ms": 0, "error": "TOPIC_ALREADY_EXISTS", "errors": ["TOPIC_ALREADY_EXISTS"],
        "topics": [
            {**NAMED, "topic_id": str(ORDERS)}, {"topic": "bills", "error": "TOPIC_ALREADY_EXISTS"}],
        "resources": [
            {"type": "topic", "name": "orders", "detail": "partitions 12, replication factor 3, set retention.ms"},
            {"type": "topic", "name": "bills", "error": "TOPIC_ALREADY_EXISTS",
             "detail": "partitions 6, replication factor 3"}],
    }  # fmt: skip


def test_delete_topics() -> None:
    """By name or by id, each with what became of it."""
    other = UUID(int=9)
    asked = [{"name": "bills"}, {"name": None, "topic_id": ORDERS}, {"name": None, "topic_id": other}]
    answers = [
        {"name": "bills"},
        {"name": "orders", "topic_id": ORDERS, "error_code": 29, "error_message": "no"},
        {"name": None, "topic_id": other, "error_code": 100},
    ]
    assert said(seen("DeleteTopics", 6, {"topics": asked}, {"responses": answers}, who=KNOWN)) == {
        "throttle_ms": 0, "error": "TOPIC_AUTHORIZATION_FAILED",
        "errors": ["TOPIC_AUTHORIZATION_FAILED", "UNKNOWN_TOPIC_ID"], "error_message": "no",
        "topics": [
            {"topic": "bills"}, {**NAMED, "topic_id": str(ORDERS), "error": "TOPIC_AUTHORIZATION_FAILED"},
            {"topic_id": str(other), "error": "UNKNOWN_TOPIC_ID"}],
    }  # fmt: skip


def test_delete_records() -> None:
    """Up to which offset, and where the log begins now."""
    request = {"topics": [{"name": "a", "partitions": [{"partition_index": 0, "offset": 500}]}]}
    response = {"topics": [{"name": "a", "partitions": [{"partition_index": 0, "low_watermark": 500}]}]}
    (topic,) = said(seen("DeleteRecords", 2, request, response))["topics"]
    assert topic["partitions"] == [{"partition": 0, "offset": 500, "log_start_offset": 500}]


def test_incremental_alter_configs() -> None:
    """Which keys of what, and how; never a value, nor the broker's words about one."""
    configs = [
        {"name": "retention.ms", "config_operation": 0, "value": "secret"},
        {"name": "cleanup.policy", "config_operation": 1, "value": None},
    ]
    request = {
        "resources": [
            {"resource_type": 2, "resource_name": "orders", "configs": configs},
            {"resource_type": 4, "resource_name": "", "configs": []},
        ]
    }
    answers = [
        {"resource_type": 4, "resource_name": "", "error_code": 31},
        {"resource_type": 2, "resource_name": "orders", "error_code": 40, "error_message": "secret is no number"},
    ]
    assert said(seen("IncrementalAlterConfigs", 1, request, {"responses": answers})) == {
        "throttle_ms": 0, "error": "CLUSTER_AUTHORIZATION_FAILED",
        "errors": ["CLUSTER_AUTHORIZATION_FAILED", "INVALID_CONFIG"],
        "resources": [
            {"type": "topic", "name": "orders", "error": "INVALID_CONFIG",
             "detail": "set retention.ms, delete cleanup.policy"},
            {"type": "broker", "error": "CLUSTER_AUTHORIZATION_FAILED"}],
    }  # fmt: skip


def test_create_acls() -> None:
    """Answers belong to the entries by their place; who may do what from where is told."""
    entry = {"resource_type": 2, "resource_name": "orders", "resource_pattern_type": 4, "host": "*"}
    request = {
        "creations": [
            {**entry, "principal": "User:bob", "operation": 3, "permission_type": 3},
            {**entry, "principal": "User:eve", "operation": 4, "permission_type": 2},
        ]
    }
    response = {"results": [{"error_code": 0}, {"error_code": 31, "error_message": "not yours"}]}
    assert said(seen("CreateAcls", 3, request, response)) == {
        "throttle_ms": 0, "error": "CLUSTER_AUTHORIZATION_FAILED", "errors": ["CLUSTER_AUTHORIZATION_FAILED"],
        "error_message": "not yours",
        "resources": [
            {"type": "topic", "name": "orders", "detail": "allow read, for User:bob, from *, prefixed"},
            {"type": "topic", "name": "orders", "error": "CLUSTER_AUTHORIZATION_FAILED",
             "detail": "deny write, for User:eve, from *, prefixed"}],
    }  # fmt: skip


def test_txn_offset_commit() -> None:
    """The transaction, its producer, the group and the offsets."""
    request = {
        "transactional_id": "till", "group_id": "g", "producer_id": 7, "producer_epoch": 1, "generation_id": 3,
        "member_id": "m",
        "topics": [{"name": "a", "partitions": [{"partition_index": 0, "committed_offset": 9}]}],
    }  # fmt: skip
    response = {"topics": [{"name": "a", "partitions": [{"partition_index": 0}]}]}
    assert said(seen("TxnOffsetCommit", 3, request, response)) == {
        "throttle_ms": 0, "group": "g", "member": "m", "generation": 3, "transactional_id": "till", "producer_id": 7,
        "producer_epoch": 1, "topics": [{"topic": "a", "partitions": [{"partition": 0, "committed_offset": 9}]}],
    }  # fmt: skip


def test_init_producer_id() -> None:
    """The id and epoch that the coordinator gave; -1, that of one without, is none."""
    request = {"transactional_id": "till", "transaction_timeout_ms": 1000, "producer_id": -1, "producer_epoch": -1}
    expected = {"throttle_ms": 0, "transactional_id": "till", "producer_id": 7, "producer_epoch": 1}
    assert said(seen("InitProducerId", 4, request, {"producer_id": 7, "producer_epoch": 1})) == expected
    failed = said(seen("InitProducerId", 4, request, {"error_code": 53, "producer_id": -1, "producer_epoch": -1}))
    assert failed == {
        "throttle_ms": 0, "error": "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        "errors": ["TRANSACTIONAL_ID_AUTHORIZATION_FAILED"], "transactional_id": "till",
    }  # fmt: skip


def test_add_partitions_to_txn() -> None:
    """Of clients' versions, and of the one that brokers use among themselves, which may be about several."""
    expected = {
        "throttle_ms": 0, "error": "UNKNOWN_TOPIC_OR_PARTITION", "errors": ["UNKNOWN_TOPIC_OR_PARTITION"],
        "transactional_id": "till", "producer_id": 7, "producer_epoch": 1,
        "topics": [{"topic": "a", "partitions": [
            {"partition": 0}, {"partition": 9, "error": "UNKNOWN_TOPIC_OR_PARTITION"}]}],
    }  # fmt: skip
    parts = [
        {"partition_index": 0, "partition_error_code": 0},
        {"partition_index": 9, "partition_error_code": 3},
    ]
    topics = [{"name": "a", "partitions": [0, 9]}]
    old = {
        "v3_and_below_transactional_id": "till", "v3_and_below_producer_id": 7, "v3_and_below_producer_epoch": 1,
        "v3_and_below_topics": topics,
    }  # fmt: skip
    results = [{"name": "a", "results_by_partition": parts}]
    assert said(seen("AddPartitionsToTxn", 3, old, {"results_by_topic_v3_and_below": results})) == expected
    new = {"transactional_id": "till", "producer_id": 7, "producer_epoch": 1, "topics": topics}
    answer = {"transactional_id": "till", "topic_results": results}
    response = {"results_by_transaction": [answer]}
    assert said(seen("AddPartitionsToTxn", 5, {"transactions": [new]}, response)) == expected


@pytest.mark.parametrize(("committed", "word"), [(True, "commit"), (False, "abort")])
def test_end_txn(committed: bool, word: str) -> None:
    """Whether it was to be committed; the epoch is the next one, where the broker raises it (KIP-890)."""
    request = {"transactional_id": "till", "producer_id": 7, "producer_epoch": 1, "committed": committed}
    assert said(seen("EndTxn", 5, request, {"producer_id": 7, "producer_epoch": 2})) == {
        "throttle_ms": 0, "transactional_id": "till", "producer_id": 7, "producer_epoch": 2,
        "resources": [{"type": "transactional_id", "name": "till", "detail": word}],
    }  # fmt: skip


def test_find_coordinator() -> None:
    """One key or several, with the node of each."""
    expected = {
        "throttle_ms": 0, "group": "billing", "broker_group": "prod.billing",
        "resources": [{"type": "group", "name": "billing", "detail": "node 2"}],
    }  # fmt: skip
    one = seen("FindCoordinator", 3, {"key": "billing", "key_type": 0}, {"node_id": 2}, who=KNOWN)
    assert said(one) == expected
    request = {"key_type": 0, "coordinator_keys": ["billing"]}
    answer = {"key": "billing", "node_id": 2}
    assert said(seen("FindCoordinator", 4, request, {"coordinators": [answer]}, who=KNOWN)) == expected
    request = {"key_type": 1, "coordinator_keys": ["x", "y"]}
    answers = [{"key": "y", "node_id": 3}, {"key": "x", "node_id": -1, "error_code": 15}]
    event = said(seen("FindCoordinator", 6, request, {"coordinators": answers}))
    assert event["transactional_id"] == "x"
    assert event["resources"] == [
        {"type": "transactional_id", "name": "x", "error": "COORDINATOR_NOT_AVAILABLE"},
        {"type": "transactional_id", "name": "y", "detail": "node 3"},
    ]


def test_metadata_of_all_topics() -> None:
    """The request names none; the response's are listed up to the limit, and the rest is counted."""
    partitions = [{"partition_index": number, "leader_id": 4, "leader_epoch": 5} for number in range(4)]
    topics = [{"name": f"t{number}", "partitions": partitions} for number in range(5)]
    event = said(seen("Metadata", 9, {"topics": None}, {"topics": topics}), most=3)
    row = {"leader": 4, "leader_epoch": 5}
    assert event == {
        "throttle_ms": 0,
        "topics": [
            {"topic": "t0", "partitions": [{"partition": number, **row} for number in range(3)]},
            {"topic": "t1"}, {"topic": "t2"}],
        "omitted_topics": 2, "omitted_partitions": 17,
    }  # fmt: skip


def test_metadata_of_some_topics() -> None:
    """A partition without a leader has an error of its own, which is not its topic's."""
    answers = [
        {"name": "a", "partitions": [{"partition_index": 0, "leader_id": -1, "error_code": 5}]},
        {"name": "b", "error_code": 3, "partitions": []},
    ]
    event = said(seen("Metadata", 9, {"topics": [{"name": "b"}, {"name": "a"}]}, {"topics": answers}))
    assert event["errors"] == ["LEADER_NOT_AVAILABLE", "UNKNOWN_TOPIC_OR_PARTITION"]
    assert event["topics"] == [
        {"topic": "b", "error": "UNKNOWN_TOPIC_OR_PARTITION"},
        {"topic": "a", "partitions": [{"partition": 0, "error": "LEADER_NOT_AVAILABLE"}]},
    ]


def test_api_versions() -> None:
    """The error of a version that the broker lacks; the library's name is in the connection's columns."""
    request = {"client_software_name": "x", "client_software_version": "1"}
    assert said(seen("ApiVersions", 3, request, {"api_keys": []})) == {"throttle_ms": 0}
    exchange = seen("ApiVersions", 3, request)
    answer = bytes(4) + b"\x00\x23" + b"\x00\x00\x00\x01" + b"\x00\x12\x00\x00\x00\x04"
    exchange.response = Frame(len(answer) + 4, 1.011, 1.0125, answer, Form.WHOLE)
    assert said(exchange) == {"error": "UNSUPPORTED_VERSION", "errors": ["UNSUPPORTED_VERSION"]}


def test_api_versions_of_the_future() -> None:
    """What the broker answers to a version that nobody here knows is read as version 0."""
    answer = bytes(4) + b"\x00\x23" + b"\x00\x00\x00\x01" + b"\x00\x12\x00\x00\x00\x04"
    exchange = seen("ApiVersions", 0, None)
    exchange.version, exchange.response = 99, Frame(len(answer) + 4, 1.011, 1.0125, answer, Form.WHOLE)
    assert said(exchange)["error"] == "UNSUPPORTED_VERSION"


def test_sasl() -> None:
    """The mechanism is told; of the tokens nothing is there, and the event says why."""
    handshake = said(seen("SaslHandshake", 1, {"mechanism": "PLAIN"}, {"error_code": 33, "mechanisms": ["X"]}))
    assert handshake == {
        "error": "UNSUPPORTED_SASL_MECHANISM", "errors": ["UNSUPPORTED_SASL_MECHANISM"],
        "resources": [{"type": "mechanism", "name": "PLAIN"}],
    }  # fmt: skip
    exchange = seen("SaslAuthenticate", 2, None, None)
    exchange.request = Frame(90, 1.0, 1.001, bytes(20), Form.HEAD, "SASL token")
    exchange.response = Frame(30, 1.011, 1.012, bytes(5), Form.HEAD, "SASL token")
    assert said(exchange) == {"unread": "request: SASL token"}
    whole = seen("SaslAuthenticate", 2, {"auth_bytes": b"secret"}, {"auth_bytes": b"secret", "error_code": 58})
    assert said(whole) == {"error": "SASL_AUTHENTICATION_FAILED", "errors": ["SASL_AUTHENTICATION_FAILED"]}


def test_frames_that_cannot_be_read() -> None:
    """The header's columns are there, and the reason why there is nothing else."""
    exchange = seen("OffsetCommit", 8, {"group_id": "g", "topics": []}, {"topics": []})
    assert exchange.request is not None and exchange.response is not None
    exchange.response.data = exchange.response.data[:-2]
    event = said(exchange)
    assert event["unread"].startswith("OffsetCommit response v8")
    assert event["group"] == "g"
    exchange = seen("OffsetCommit", 8, None)
    exchange.version, exchange.request = 99, Frame(40, 1.0, 1.1, bytes(36), Form.WHOLE)
    assert "99" in said(exchange)["unread"]
    exchange = seen("OffsetCommit", 8, None)
    exchange.request = Frame(5_000_000, 1.0, 1.1, bytes(1000), Form.HEAD)
    assert said(exchange) == {"unread": "request: only 1000 of 5000000 bytes were kept"}


def test_ten_thousand_partitions() -> None:
    """The event tells a hundred of them, counts the others, and its totals are those of all."""
    data = batch(1)
    topics = [
        {"name": f"t{number}", "partition_data": [{"index": part, "records": data} for part in range(100)]}
        for number in range(100)
    ]
    event = said(seen("Produce", 9, {"acks": 1, "topic_data": topics}, acks=1))
    assert [len(topic.get("partitions", ())) for topic in event["topics"]] == [100] + [0] * 99
    assert event["omitted_partitions"] == 9900
    assert (event["total_records"], event["total_bytes"]) == (10_000, 10_000 * len(data))


def test_answers_of_kproxy() -> None:
    """What a rule answered never went to a broker: no time there."""
    exchange = seen("Heartbeat", 4, {"group_id": "g", "member_id": "m"}, {"error_code": 16}, answered_by_rule=True)
    event = request_event(exchange, wall)
    assert event["answered_by"] == "kproxy"
    assert {"request_out", "response_in", "broker_ms"}.isdisjoint(event)
    assert event["latency_ms"] == 12.5


def test_texts_are_bounded_and_can_be_written() -> None:
    """Bytes that are not UTF-8 are question marks; what is longer than any good name is cut."""
    request = {"group_id": "\udcffg", "member_id": "m" * 30_000}
    event = said(seen("Heartbeat", 4, request, {}))
    assert event["group"] == "?g"
    assert event["member"] == "m" * 499 + "…"
