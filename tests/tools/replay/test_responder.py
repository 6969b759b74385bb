"""A stage: requests in, answers out. No socket, no clock."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kproxy.protocol import Message, decode_response
from kproxy.tools.replay.responder import RecordingResponder
from tests.support.frames import message

HERE = ("stage", 7777)
BROKER = {"node_id": 1, "host": "b1", "port": 9092, "rack": None}


def ask(stage: RecordingResponder, key: int, version: int, /, **fields: Any) -> Message:
    """The answer to this request, as the client reads it."""
    reply = stage.reply(message(key, version, "request", fields, 42), HERE)
    assert reply.frame is not None
    found = decode_response(reply.frame, key, version)
    assert found.header["correlation_id"] == 42
    return found


def test_answers_are_given_in_the_recorded_order(tools: Any) -> None:
    """To the same question, each once; then the last good one again."""
    codes = [0, 27, 0, 27]
    seen = [tools.seen(12, 3, {"group_id": "g"}, {"error_code": code, "throttle_time_ms": at}, at=at)
            for at, code in enumerate(codes)]  # fmt: skip
    stage = RecordingResponder(tools.record(seen))
    given = [ask(stage, 12, 3, group_id="g").body for _ in range(6)]

    assert [(one["error_code"], one["throttle_time_ms"]) for one in given] == [
        (0, 0), (27, 1), (0, 2), (27, 3), (0, 2), (0, 2),
    ]  # fmt: skip
    assert stage.counts()["Heartbeat"] == (6, 6, 0, 0, 0)


def test_every_broker_is_here(tools: Any) -> None:
    """In Metadata and FindCoordinator; an error without an address has none."""
    seen = [
        tools.seen(3, 9, {}, {"brokers": [BROKER, BROKER | {"node_id": 2, "host": "b2"}]}),
        tools.seen(10, 2, {"key": "g"}, {"error_code": 15, "node_id": -1, "host": "", "port": -1}, at=1),
        tools.seen(10, 2, {"key": "g"}, {"node_id": 2, "host": "b2", "port": 9092}, at=2),
    ]
    stage = RecordingResponder(tools.record(seen))
    brokers = ask(stage, 3, 9).body["brokers"]
    failed, found = (ask(stage, 10, 2, key="g").body for _ in range(2))

    assert [(one["node_id"], one["host"], one["port"]) for one in brokers] == [(1, *HERE), (2, *HERE)]
    assert (failed["host"], failed["port"]) == ("", -1)
    assert (found["node_id"], found["host"], found["port"]) == (2, *HERE)


def topic(name: str, *partitions: int) -> dict[str, Any]:
    parts = [{"error_code": 0, "partition_index": one, "leader_id": 1, "replica_nodes": [], "isr_nodes": [],
              "leader_epoch": 0, "offline_replicas": []} for one in partitions]  # fmt: skip
    return {"error_code": 0, "name": name, "is_internal": False, "partitions": parts}


def test_topics_may_be_asked_for_in_other_portions(tools: Any) -> None:
    """An answer is put together from the recorded elements; what was never asked for does not exist."""
    seen = [tools.seen(3, 9, {"topics": [{"name": name}]}, {"brokers": [BROKER], "topics": [topic(name, 0, 1)]}, at=at)
            for at, name in enumerate(("a", "b"))]  # fmt: skip
    stage = RecordingResponder(tools.record(seen))
    body = ask(stage, 3, 9, topics=[{"name": "b"}, {"name": "c"}, {"name": "a"}]).body

    assert [(one["name"], one["error_code"], len(one["partitions"])) for one in body["topics"]] == [
        ("b", 0, 2), ("c", 3, 0), ("a", 0, 2),
    ]  # fmt: skip
    assert body["brokers"][0]["port"] == HERE[1]
    assert stage.unmatched == {"Metadata 9: c": 1}
    assert [one["name"] for one in ask(stage, 3, 9, topics=None).body["topics"]] == ["a", "b"]


def test_another_version_gets_the_same_facts(tools: Any) -> None:
    """With the fields that it has; ids come back for names."""
    seen = [tools.seen(3, 12, {"topics": [{"name": "a", "topic_id": UUID(int=0)}]},
                       {"brokers": [BROKER], "topics": [topic("a", 0) | {"topic_id": UUID(int=7)}]})]  # fmt: skip
    stage = RecordingResponder(tools.record(seen))
    old = ask(stage, 3, 1, topics=[{"name": "a"}]).body["topics"][0]
    new = ask(stage, 3, 12, topics=[{"name": "a", "topic_id": UUID(int=0)}, {"name": "a", "topic_id": UUID(int=0)}])
    by_id = ask(stage, 3, 12, topics=[{"name": None, "topic_id": UUID(int=7)}]).body["topics"][0]

    assert (old["name"], "topic_id" in old) == ("a", False)
    assert new.body["topics"][0]["topic_id"] == UUID(int=7)
    assert by_id["name"] == "a"


def test_a_question_about_the_same_group_is_close_enough(tools: Any) -> None:
    """JoinGroup with other metadata: first the id, then the generation, as recorded."""
    seen = [
        tools.seen(11, 5, {"group_id": "g"}, {"error_code": 79, "member_id": "m"}, at=0),
        tools.seen(11, 5, {"group_id": "g", "member_id": "m"}, {"generation_id": 3, "member_id": "m"}, at=1),
    ]
    stage = RecordingResponder(tools.record(seen))
    protocols = [{"name": "range", "metadata": b"other"}]
    first = ask(stage, 11, 5, group_id="g", protocols=protocols).body
    second = ask(stage, 11, 5, group_id="g", member_id="m", protocols=protocols).body

    assert (first["error_code"], first["member_id"]) == (79, "m")
    assert (second["error_code"], second["generation_id"]) == (0, 3)


def test_heartbeats_and_commits_that_were_not_recorded_are_fine(tools: Any) -> None:
    """How many there are depends on time; APIs that were never asked get an error that is told."""
    stage = RecordingResponder(tools.record([tools.seen(3, 9, {}, {})]))

    assert ask(stage, 12, 3, group_id="g").body["error_code"] == 0
    assert ask(stage, 26, 3, transactional_id="x").body["error_code"] == -1
    assert stage.unmatched == {"EndTxn 3: never asked in the recording": 1}


def test_versions_are_made_from_what_was_used(tools: Any) -> None:
    """When the recording has no ApiVersions; all of ours for what is made here."""
    stage = RecordingResponder(tools.record([tools.seen(12, version, {}, {}, at=version) for version in (1, 3)]))
    body = ask(stage, 18, 3, client_software_name="c", client_software_version="1").body
    found = {one["api_key"]: (one["min_version"], one["max_version"]) for one in body["api_keys"]}

    assert found[12] == (1, 3)
    assert set(found) == {3, 12, 18}


def test_a_version_of_apiversions_from_the_future_gets_error_35(tools: Any) -> None:
    """In version 0 (KIP-511); other requests that nobody knows close the connection."""
    stage = RecordingResponder(tools.record([tools.seen(3, 9, {}, {})]))
    reply = stage.reply(b"\0\x12\0\x63\0\0\0\x2a\xff\xff\0", HERE)
    assert reply.frame is not None
    found = decode_response(reply.frame, 18, 99)

    assert (found.version, found.body["error_code"], found.header["correlation_id"]) == (0, 35, 42)
    assert stage.reply(b"\x7f\0\0\0\0\0\0\x01\xff\xff", HERE).close
    assert stage.unmatched.total() == 2


def test_a_request_whose_records_are_none_closes_its_connection(tools: Any) -> None:
    """And is told; the stage goes on."""
    parts = [{"index": 0, "records": None}]
    asked = {"acks": 1, "topic_data": [{"name": "t", "partition_data": parts}]}
    answer = {"responses": [{"name": "t", "partition_responses": [{"index": 0, "error_code": 0, "base_offset": 0}]}]}
    stage = RecordingResponder(tools.record([tools.seen(0, 9, asked, answer)]))
    bad = [{"index": 0, "records": b"\0" * 16 + b"\x09" + b"\0" * 60}]
    reply = stage.reply(
        message(0, 9, "request", {"acks": 1, "topic_data": [{"name": "t", "partition_data": bad}]}, 42), HERE
    )

    assert (reply.frame, reply.close) == (None, True)
    assert list(stage.unmatched) == ["Produce 9: entry at byte 0: magic 9, expected 0, 1 or 2"]
    assert ask(stage, 12, 3, group_id="g").body["error_code"] == 0


def test_a_produce_without_acks_gets_no_answer(tools: Any) -> None:
    """As ever."""
    stage = RecordingResponder(tools.record([tools.seen(3, 9, {}, {})]))
    reply = stage.reply(message(0, 9, "request", {"acks": 0, "topic_data": []}, 42), HERE)

    assert (reply.frame, reply.close) == (None, False)


@pytest.mark.parametrize("version", [1, 7])
def test_ends_of_partitions_come_from_what_was_fetched(tools: Any, version: int) -> None:
    """Earliest and latest; of anything else the recorded answer."""
    part = {"partition_index": 0, "error_code": 0, "high_watermark": 9, "log_start_offset": 2,
            "aborted_transactions": None, "records": None}  # fmt: skip
    asked = {"partition": 0, "fetch_offset": 2}
    fetched = tools.seen(1, 11, {"topics": [{"topic": "t", "partitions": [asked]}]},
                         {"responses": [{"topic": "t", "partitions": [part]}]})  # fmt: skip
    at = [{"partition_index": 0, "timestamp": 5000}]
    answer = [{"partition_index": 0, "error_code": 0, "timestamp": 5000, "offset": 4, "leader_epoch": -1}]
    if version < 4:
        answer = [{name: value for name, value in answer[0].items() if name != "leader_epoch"}]
    listed = tools.seen(2, version, {"topics": [{"name": "t", "partitions": at}]},
                        {"topics": [{"name": "t", "partitions": answer}]}, at=1)  # fmt: skip
    stage = RecordingResponder(tools.record([fetched, listed]))
    found = [
        ask(stage, 2, version, topics=[{"name": "t", "partitions": [{"partition_index": 0, "timestamp": when}]}])
        for when in (-2, -1, 5000)
    ]

    assert [one.body["topics"][0]["partitions"][0]["offset"] for one in found] == [2, 9, 4]
