"""What operators read of Produce and Fetch, and what holds for all events: each event, literally."""

from __future__ import annotations

from kproxy.protocol.records import Producer
from kproxy.record.audit.request_event import request_event
from kproxy.record.exchange import Form, Frame
from tests.record.audit.exchanges import KNOWN, NAMED, ORDERS, batch, headed, said, seen, wall


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
            {"index": 2, "base_offset": 9, "error_code": 6}]}],
        "throttle_time_ms": 20,
    }  # fmt: skip
    exchange = seen("Produce", 10, request, response, who=KNOWN, acks=-1, depth="fields", rules=["slow", "limit"])
    exchange.rule_wait, exchange.other_wait = (0.002, 0.001), (0.0, 0.0005)
    assert exchange.request is not None and exchange.response is not None

    assert request_event(exchange, wall) == {
        "connection": 3, "cluster": "main", "listener": "inside", "client_address": "10.1.2.3", "client_port": 40000,
        "node": 1, "broker": "b1:9092", "principal": "User:alice", "software_name": "librdkafka",
        "software_version": "2.16.0", "client_id": "tester", "correlation_id": 7, "api": "Produce", "api_key": 0,
        "version": 10, "depth": "fields", "outcome": "answered", "responder": "broker", "acks": -1,
        "request_bytes": exchange.request.size, "response_bytes": exchange.response.size,
        "request_in": "2026-11-21T10:00:01.000000Z", "request_out": "2026-11-21T10:00:01.002000Z",
        "response_in": "2026-11-21T10:00:01.011000Z", "response_out": "2026-11-21T10:00:01.012500Z",
        "latency_ms": 12.5, "broker_ms": 9.0, "rule_ms": 3.0, "wait_ms": 0.5, "throttle_ms": 20,
        "rules": ["slow", "limit"], "error": "NOT_LEADER_OR_FOLLOWER", "errors": ["NOT_LEADER_OR_FOLLOWER"],
        "error_level": "part",
        "error_message": "not here", "transactional_id": "till",
        "topics": [{**NAMED, "partitions": [
            {"partition": 0, "records": 3, "bytes": len(data), "batches": 1, "codec": "gzip", "base_offset": 100,
             "last_offset": 102, "log_start_offset": 7, "producer_id": 77, "producer_epoch": 2, "base_sequence": 5,
             **headed(data)},
            {"partition": 1, "records": 2, "bytes": len(batch(2)), "batches": 1, "codec": "none", **headed(batch(2)),
             "error": "NOT_LEADER_OR_FOLLOWER", "leader": 3, "leader_epoch": 12},
            {"partition": 2, "base_offset": 9, "error": "NOT_LEADER_OR_FOLLOWER"}]}],
        "total_records": 5, "total_bytes": len(data) + len(batch(2)),
    }  # fmt: skip


def test_produce_without_acknowledgement() -> None:
    """Nothing is said about errors and offsets that nobody was told."""
    partition = {"index": 4, "records": batch(1)}
    request = {"acks": 0, "topic_data": [{"topic_id": ORDERS, "partition_data": [partition]}]}
    exchange = seen("Produce", 13, request, who=KNOWN, outcome="no_answer_due", acks=0)

    event = request_event(exchange, wall)

    assert {"response_in", "response_out", "latency_ms", "broker_ms", "responder"}.isdisjoint(event)
    assert (event["outcome"], event["acks"]) == ("no_answer_due", 0)
    row = {"partition": 4, "records": 1, "bytes": len(batch(1)), "batches": 1, "codec": "none", **headed(batch(1))}
    assert event["topics"] == [{**NAMED, "topic_id": str(ORDERS), "partitions": [row]}]


def test_produce_that_failed_as_a_whole() -> None:
    """An offset that the broker did not give is no offset of the producer's own count."""
    request = {"acks": 1, "topic_data": [{"name": "a", "partition_data": [{"index": 0, "records": batch(2)}]}]}
    answer = {"index": 0, "error_code": 29, "base_offset": -1}
    response = {"responses": [{"name": "a", "partition_responses": [answer]}]}

    (topic,) = said(seen("Produce", 9, request, response))["topics"]

    row = {"records": 2, "bytes": len(batch(2)), "batches": 1, "codec": "none", **headed(batch(2))}
    assert topic["partitions"] == [{"partition": 0, **row, "error": "TOPIC_AUTHORIZATION_FAILED"}]


def test_offsets_beyond_the_last_one_are_left_out() -> None:
    """A batch may say that it begins there; a long could not hold where it ends."""
    last = (1 << 63) - 1
    request = {"acks": 1, "topic_data": [{"name": "orders", "partition_data": [{"index": 0, "records": batch(3)}]}]}
    answer = {"responses": [{"name": "orders", "partition_responses": [{"index": 0, "base_offset": last - 1}]}]}
    (topic,) = request_event(seen("Produce", 8, request, answer, acks=1), wall)["topics"]
    assert topic["partitions"][0]["base_offset"] == last - 1
    assert "last_offset" not in topic["partitions"][0]

    read = {"partition_index": 0, "records": last.to_bytes(8, "big") + batch(3)[8:]}
    answer = {"responses": [{"topic": "orders", "partitions": [read]}]}
    (topic,) = request_event(seen("Fetch", 11, {"topics": []}, answer), wall)["topics"]
    assert topic["partitions"][0]["base_offset"] == last
    assert "last_offset" not in topic["partitions"][0]


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
        "isolation": 0,
        "throttle_ms": 0, "error": "OFFSET_OUT_OF_RANGE", "errors": ["OFFSET_OUT_OF_RANGE"], "error_level": "part",
        "topics": [
            {**NAMED, "partitions": [
                {"partition": 0, "fetch_offset": 10, "leader_epoch": 4},
                {"partition": 1, "fetch_offset": 20, "high_watermark": 15, "log_start_offset": 2,
                 "error": "OFFSET_OUT_OF_RANGE", "records": 0, "bytes": 0, "batches": 0}]},
            {"topic": "bills", "partitions": [
                {"partition": 7, "high_watermark": 44, "last_stable_offset": 44, "records": 7, "bytes": len(data),
                 "batches": 2, "codec": "none", "base_offset": 30, "last_offset": 43, **headed(data),
                 "batches_detail": [
                     {"base_offset": 30, "last_delta": 2, "count": 3, **headed(data)},
                     {"base_offset": 40, "last_delta": 3, "count": 4, **headed(batch(4, base=40))}]}]}],
        "total_records": 7, "total_bytes": len(data),
    }  # fmt: skip


def test_fetch_without_an_answer() -> None:
    """What was asked for is there; nothing is said about records that nobody saw."""
    partition = {"partition": 0, "fetch_offset": 10}
    request = {"topics": [{"topic": "a", "partitions": [partition]}]}
    assert said(seen("Fetch", 12, request)) == {"isolation": 0, "topics": [{"topic": "a", "partitions": [partition]}]}


def test_fetch_whose_session_is_not_known() -> None:
    """An error at the top is that of all partitions asked for."""
    partition = {"partition": 0, "fetch_offset": 10}
    request = {"session_epoch": 3, "topics": [{"topic_id": ORDERS, "partitions": [partition]}]}
    event = said(seen("Fetch", 13, request, {"error_code": 70}, who=KNOWN))
    assert event["error"] == "FETCH_SESSION_ID_NOT_FOUND"
    row = {"partition": 0, "fetch_offset": 10, "error": "FETCH_SESSION_ID_NOT_FOUND"}
    assert event["topics"] == [{**NAMED, "topic_id": str(ORDERS), "partitions": [row]}]


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
         "last_offset": 6, **headed(batch(2, base=5))},
        {"partition": 1, "error": "INVALID_RECORD_STATE"},
    ]  # fmt: skip
    assert said(seen("ShareFetch", 1, request, response, who=KNOWN)) == {
        "throttle_ms": 0, "error": "INVALID_RECORD_STATE",
        "errors": ["INVALID_RECORD_STATE"], "error_level": "part", "group": "g",
        "member": "m", "topics": [{**NAMED, "topic_id": str(ORDERS), "partitions": rows}],
        "total_records": 2, "total_bytes": len(batch(2)),
    }  # fmt: skip


def test_frames_that_cannot_be_read() -> None:
    """The header's columns are there, and the reason why there is nothing else."""
    exchange = seen("OffsetCommit", 8, {"group_id": "g", "topics": []}, {"topics": []})
    assert exchange.request is not None and exchange.response is not None
    exchange.response.data = exchange.response.data[:-2]
    event = said(exchange)
    assert event["decode_error"].startswith("OffsetCommit response v8")
    assert event["group"] == "g"
    exchange = seen("OffsetCommit", 8, None)
    exchange.version, exchange.request = 99, Frame(40, 1.0, 1.1, bytes(36), Form.WHOLE)
    assert "99" in said(exchange)["decode_error"]
    exchange = seen("OffsetCommit", 8, None)
    exchange.request = Frame(5_000_000, 1.0, 1.1, bytes(1000), Form.HEAD)
    assert said(exchange) == {"decode_error": "request: only 1000 of 5000000 bytes were kept"}


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
    assert event["responder"] == "kproxy"
    assert {"request_out", "response_in", "broker_ms"}.isdisjoint(event)
    assert event["latency_ms"] == 12.5


def test_texts_are_bounded_and_can_be_written() -> None:
    """Bytes that are not UTF-8 are question marks; what is longer than any good name is cut."""
    request = {"group_id": "\udcffg", "member_id": "m" * 30_000}
    event = said(seen("Heartbeat", 4, request, {}))
    assert event["group"] == "?g"
    assert event["member"] == "m" * 499 + "…"


def test_long_lists_are_not_read() -> None:
    """Of a long answer that only shows something the request is told, and why there is no more."""
    topics = [{"name": "x" * 200, "partitions": []} for _ in range(2000)]
    exchange = seen("Metadata", 9, {"topics": [{"name": "a"}]}, {"topics": topics})
    assert exchange.response is not None
    assert said(exchange) == {
        "topics": [{"topic": "a"}],
        "decode_error": f"response: {exchange.response.size} bytes, more than the 262144 that are read of lists",
    }


def test_long_answers_to_changes_are_read() -> None:
    """Who leads a group of thousands gets a long answer; its generation is told."""
    members = [{"member_id": f"m-{number}", "metadata": bytes(200)} for number in range(2000)]
    request = {"group_id": "g", "member_id": "m-0", "protocol_type": "consumer", "protocols": []}
    event = said(seen("JoinGroup", 9, request, {"generation_id": 4, "members": members}))
    assert (event["generation"], event["members"]) == (4, 2000)
