"""The kind set: fields of messages get other values."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.rules.exchange import FrameDepth
from kproxy.tools.rehearse.dialogue import Dialogue, request, response

METADATA, PRODUCE, OFFSET_FETCH, CREATE_ACLS = 3, 0, 9, 30


def setting(line: str) -> Dialogue:
    return Dialogue(f"rules: [{{name: r, kind: set, {line}}}]")


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("fields: {throttle_time_ms: 1}", "which API is meant? fields have other paths in each, write match"),
        ("match: {api: Metadata}, fields: {}", "expected at least 1 entry, got 0"),
        ("match: {api: Metadata}", '"fields" is missing'),
        ('match: {api: Metadata}, fields: {"topics[].partitions[].leader_epoh": 1}',
         'a Metadata response has no field "topics[].partitions[].leader_epoh", did you mean "topics[].partitions['),
        ('match: {api: Metadata}, fields: {"topics.name": a}', 'a Metadata response has no field "topics.name", did'),
        ('match: {api: Metadata}, fields: {"topics[x]": 1}', 'expected a path such as'),
        ("match: {api: Metadata}, fields: {allow_auto_topic_creation: false}",
         '"allow_auto_topic_creation" is a field of the request, write at: request'),
        ('match: {api: Metadata, version: 0-6}, fields: {"topics[].partitions[].leader_epoch": 1}',
         '"topics[].partitions[].leader_epoch" is in versions 7-13 of the response, selected are 0-6'),
        ("match: {api: Metadata}, fields: {throttle_time_ms: 3000000000}",
         "expected int32 from -2147483648 to 2147483647 for throttle_time_ms, got 3000000000"),
        ('match: {api: Metadata, version: 0-11}, fields: {"topics[].name": null}', "null is not legal for this field"),
        ("match: {api: Produce}, fields: {acks: 0}, at: request",
         "acks 0 would leave the client waiting for a response that never comes"),
        ('match: {api: [Metadata, Heartbeat]}, fields: {"topics[].error_code": 3}',
         'a Heartbeat response has no field "topics[].error_code"'),
    ],
)  # fmt: skip
def test_paths_and_values_are_checked(mistakes_of: Any, text: str, mistake: str) -> None:
    """Against the table, in every version that is selected, with the nearest path."""
    (line,) = mistakes_of(f"kind: set, {text}")

    assert line.startswith(mistake), line


def test_versions_without_the_field_are_named(hand: Any) -> None:
    """They pass, and the rule warns of it."""
    rule = hand.rule('kind: set, match: {api: Metadata}, fields: {"topics[].partitions[].leader_epoch": -1}')

    assert list(rule.warnings()) == ["Metadata 0-6 has no topics[].partitions[].leader_epoch"]
    assert [rule.depth("response", METADATA, version) for version in (6, 7)] == [FrameDepth.NOTHING, FrameDepth.BODY]
    assert rule.depth("request", METADATA, 9) == FrameDepth.NOTHING


def topics(*names: str) -> list[dict[str, Any]]:
    return [
        {"name": name, "is_internal": False, "partitions": [{"partition_index": index, "leader_epoch": 7}
                                                            for index in (0, 1)]}
        for name in names
    ]  # fmt: skip


def epochs(talk: Dialogue) -> list[list[int]]:
    (answer,) = talk.responses((METADATA, 9))
    return [[part["leader_epoch"] for part in topic["partitions"]] for topic in answer.body["topics"]]


@pytest.mark.parametrize(
    ("match", "path", "expected"),
    [
        ("api: Metadata", "topics[].partitions[].leader_epoch", [[-1, -1], [-1, -1]]),
        ("api: Metadata, topic: a", "topics[].partitions[].leader_epoch", [[-1, -1], [7, 7]]),
        ("api: Metadata}, not: {topic: a", "topics[].partitions[].leader_epoch", [[7, 7], [-1, -1]]),
        ("api: Metadata", "topics[1].partitions[0].leader_epoch", [[7, 7], [-1, 7]]),
        ("api: Metadata, topic: b", "topics[0].partitions[0].leader_epoch", [[7, 7], [7, 7]]),
    ],
)
def test_fields_are_set_where_they_are_meant(match: str, path: str, expected: list[list[int]]) -> None:
    """All elements, one of them, or those of what matches."""
    talk = setting(f'match: {{{match}}}, fields: {{"{path}": -1}}')
    asked = request(METADATA, 9, 1, topics=[{"name": "a"}, {"name": "b"}])
    said = response(METADATA, 9, 1, topics=topics("a", "b"))
    talk.client(asked).broker(said)

    assert talk.to_broker == asked
    assert epochs(talk) == expected
    assert talk.rules.live[0].applied == (expected != [[7, 7], [7, 7]])
    assert (talk.to_client == said) == (expected == [[7, 7], [7, 7]])


def test_requests_can_be_changed_by_what_they_are_about() -> None:
    """One partition of one topic; the rest stays as it was."""
    talk = setting('match: {api: ListOffsets, topic: a, partition: 1}, at: request, '
                   'fields: {"topics[].partitions[].timestamp": -2}')  # fmt: skip
    parts = [{"partition_index": index, "timestamp": -1} for index in (0, 1)]
    talk.client(request(2, 5, 1, replica_id=-1, topics=[{"name": name, "partitions": parts} for name in ("a", "b")]))
    (seen,) = talk.requests()

    assert [[one["timestamp"] for one in topic["partitions"]] for topic in seen.body["topics"]] == [[-1, -2], [-1, -1]]


def test_elements_without_names_are_told_apart_by_their_place() -> None:
    """The second ACL is the one about the topic that is selected."""
    talk = setting('match: {api: CreateAcls, topic: b}, fields: {"results[].error_message": told}')
    acls = [{"resource_type": 2, "resource_name": name} for name in ("a", "b", "c")]
    talk.client(request(CREATE_ACLS, 3, 1, creations=acls))
    (answer,) = talk.broker(response(CREATE_ACLS, 3, 1, results=[{}, {}, {}])).responses((CREATE_ACLS, 3))

    assert [one["error_message"] for one in answer.body["results"]] == ["", "told", ""]


def test_one_group_of_several() -> None:
    """With what is in it, and of that the topic that matches."""
    talk = setting('match: {api: OffsetFetch, group: h, topic: t}, '
                   'fields: {"groups[].topics[].partitions[].committed_offset": 3}')  # fmt: skip
    asked = [{"group_id": group, "topics": [{"name": name, "partition_indexes": [0]} for name in ("t", "u")]}
             for group in ("g", "h")]  # fmt: skip
    part = {"partition_index": 0, "committed_offset": 9, "metadata": ""}
    said = [{"group_id": group, "topics": [{"name": name, "partitions": [dict(part)]} for name in ("t", "u")]}
            for group in ("g", "h")]  # fmt: skip
    talk.client(request(OFFSET_FETCH, 8, 1, groups=asked)).broker(response(OFFSET_FETCH, 8, 1, groups=said))
    (answer,) = talk.responses((OFFSET_FETCH, 8))

    assert [
        topic["partitions"][0]["committed_offset"] for group in answer.body["groups"] for topic in group["topics"]
    ] == [9, 9, 3, 9]


def test_lists_and_missing_structs_can_be_set() -> None:
    """As a whole, with the defaults of what is left out."""
    talk = setting('match: {api: Metadata}, fields: {brokers: [{node_id: 5, host: h, port: 1}], "topics": []}')
    talk.client(request(METADATA, 9, 1)).broker(response(METADATA, 9, 1, topics=topics("a")))
    (answer,) = talk.responses((METADATA, 9))

    assert answer.body["brokers"] == [{"node_id": 5, "host": "h", "port": 1, "rack": None}]
    assert answer.body["topics"] == []

    talk = setting('match: {api: Produce}, fields: {"responses[].partition_responses[].current_leader.leader_id": 2}')
    said = [{"name": "t", "partition_responses": [{"index": 0}]}]
    talk.client(request(PRODUCE, 10, 1, acks=1)).broker(response(PRODUCE, 10, 1, responses=said))
    (answer,) = talk.responses((PRODUCE, 10))

    assert answer.body["responses"][0]["partition_responses"][0]["current_leader"]["leader_id"] == 2
