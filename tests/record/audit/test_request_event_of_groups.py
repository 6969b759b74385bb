"""What operators read of groups, offsets and transactions: each event, literally."""

from __future__ import annotations

from typing import Any

import pytest

from tests.record.audit.exchanges import KNOWN, NAMED, ORDERS, said, seen


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
        "throttle_ms": 0, "error": "REBALANCE_IN_PROGRESS", "errors": ["REBALANCE_IN_PROGRESS"], "error_level": "part",
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
        "error_level": "part",
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
        "throttle_ms": 0, "error": "MEMBER_ID_REQUIRED",
        "errors": ["MEMBER_ID_REQUIRED"], "error_level": "request", "group": "g",
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
        "throttle_ms": 0, "error": "ILLEGAL_GENERATION",
        "errors": ["ILLEGAL_GENERATION"], "error_level": "request", "group": "g",
        "member": "m", "generation": 3, **protocol,
    }  # fmt: skip


def test_leave_group() -> None:
    """All members that leave are told; the first is the event's."""
    members = [{"member_id": "m-1"}, {"member_id": "", "group_instance_id": "till-2"}]
    answers = [members[0], {**members[1], "error_code": 25}]
    assert said(seen("LeaveGroup", 5, {"group_id": "g", "members": members}, {"members": answers})) == {
        "throttle_ms": 0, "error": "UNKNOWN_MEMBER_ID",
        "errors": ["UNKNOWN_MEMBER_ID"], "error_level": "part", "group": "g",
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
        "throttle_ms": 0, "error": "FENCED_MEMBER_EPOCH", "errors": ["FENCED_MEMBER_EPOCH"], "error_level": "request",
        "error_message": "epoch 4, not 5", "group": "g", "member": "m", "generation": 4, "topics": [{"topic": "a"}],
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
        "errors": ["TRANSACTIONAL_ID_AUTHORIZATION_FAILED"], "error_level": "request", "transactional_id": "till",
    }  # fmt: skip


def test_add_partitions_to_txn() -> None:
    """Of clients' versions, and of the one that brokers use among themselves, which may be about several."""
    expected = {
        "throttle_ms": 0, "error": "UNKNOWN_TOPIC_OR_PARTITION",
        "errors": ["UNKNOWN_TOPIC_OR_PARTITION"], "error_level": "part",
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
