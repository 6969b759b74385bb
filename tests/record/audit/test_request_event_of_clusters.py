"""What operators read of topics, configs, ACLs, metadata and authentication: each event, literally."""

from __future__ import annotations

from uuid import UUID

from kproxy.record.exchange import Errors, Form, Frame
from tests.record.audit.exchanges import KNOWN, NAMED, ORDERS, said, seen


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
        "throttle_ms": 0, "error": "TOPIC_ALREADY_EXISTS", "errors": ["TOPIC_ALREADY_EXISTS"], "error_level": "part",
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
        "errors": ["TOPIC_AUTHORIZATION_FAILED", "UNKNOWN_TOPIC_ID"], "error_level": "part", "error_message": "no",
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
        "errors": ["CLUSTER_AUTHORIZATION_FAILED", "INVALID_CONFIG"], "error_level": "part",
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
        "error_level": "part",
        "error_message": "not yours",
        "resources": [
            {"type": "topic", "name": "orders", "detail": "allow read, for User:bob, from *, prefixed"},
            {"type": "topic", "name": "orders", "error": "CLUSTER_AUTHORIZATION_FAILED",
             "detail": "deny write, for User:eve, from *, prefixed"}],
    }  # fmt: skip


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
    exchange.response, exchange.outcome = Frame(len(answer) + 4, 1.011, 1.0125, answer, Form.WHOLE), "answered"
    assert said(exchange) == {
        "error": "UNSUPPORTED_VERSION",
        "errors": ["UNSUPPORTED_VERSION"],
        "error_level": "request",
    }


def test_api_versions_of_the_future() -> None:
    """What the broker answers to a version that nobody here knows is read as version 0."""
    answer = bytes(4) + b"\x00\x23" + b"\x00\x00\x00\x01" + b"\x00\x12\x00\x00\x00\x04"
    exchange = seen("ApiVersions", 0, None)
    exchange.response = Frame(len(answer) + 4, 1.011, 1.0125, answer, Form.WHOLE)
    exchange.version, exchange.outcome = 99, "answered"
    assert said(exchange)["error"] == "UNSUPPORTED_VERSION"


def test_sasl() -> None:
    """The mechanism is told; of the tokens nothing is there, and the event says why."""
    handshake = said(seen("SaslHandshake", 1, {"mechanism": "PLAIN"}, {"error_code": 33, "mechanisms": ["X"]}))
    assert handshake == {
        "error": "UNSUPPORTED_SASL_MECHANISM", "errors": ["UNSUPPORTED_SASL_MECHANISM"], "error_level": "request",
        "resources": [{"type": "mechanism", "name": "PLAIN"}],
    }  # fmt: skip
    exchange = seen("SaslAuthenticate", 2, None, None)
    exchange.request = Frame(90, 1.0, 1.001, bytes(20), Form.HEAD, "SASL token")
    exchange.response, exchange.outcome = Frame(30, 1.011, 1.012, bytes(5), Form.HEAD, "SASL token"), "answered"
    assert said(exchange) == {"decode_error": "request: SASL token"}
    exchange.known_errors = Errors((58,), top=True)
    assert said(exchange)["errors"] == ["SASL_AUTHENTICATION_FAILED"]
    whole = seen("SaslAuthenticate", 2, {"auth_bytes": b"secret"}, {"auth_bytes": b"secret", "error_code": 58})
    assert said(whole) == {
        "error": "SASL_AUTHENTICATION_FAILED",
        "errors": ["SASL_AUTHENTICATION_FAILED"],
        "error_level": "request",
    }
