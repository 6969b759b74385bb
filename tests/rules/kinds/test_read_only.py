"""The kind read_only: what changes something is forbidden, all else passes."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.protocol.table import schema
from kproxy.protocol.table.shapes import shape
from kproxy.rules.exchange import FrameDepth
from kproxy.rules.permissions import permissions
from kproxy.tools.rehearse.dialogue import Dialogue, request, response

TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = 29, 30, 31, 53
TOPICS = 'match: {topic: "prod.*"}'


def key(api: str) -> int:
    return schema.names()[api]


def protecting(line: str) -> Dialogue:
    return Dialogue(f"rules: [{{name: r, kind: read_only, {line}}}]")


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("match: {api: Fetch}", "Fetch changes nothing that this rule protects, to forbid it use kind: deny"),
        ("match: {api: JoinGroup}", "JoinGroup changes nothing that this rule protects, to forbid it use kind: deny"),
        ("match: {api: OffsetCommit}",
         'OffsetCommit changes nothing that this rule protects, except with "offsets: true"'),
        ("match: {error: any}", "this is decided before the broker answers"),
        ("error: 0", "expected an error code, got 0 (NONE)"),
    ],
)  # fmt: skip
def test_what_changes_nothing_cannot_be_protected_from(mistakes_of: Any, text: str, mistake: str) -> None:
    """With the way to say what may be meant."""
    (line,) = mistakes_of(f"kind: read_only, {text}")

    assert line.startswith(mistake), line


@pytest.mark.parametrize("name", schema.names())
def test_every_api_is_let_through_or_not_by_what_it_changes(hand: Any, name: str) -> None:
    """With and without offsets; Metadata and heartbeats of streams groups are looked at, since they may make topics."""
    number = key(name)
    version = schema.load(number).versions[-1]
    changes, makes = permissions()[number].changes, permissions()[number].makes_topics
    looked_at = [
        hand.rule(f"kind: read_only, offsets: {offsets}").depth("request", number, version) == FrameDepth.BODY
        for offsets in ("false", "true")
    ]

    assert looked_at == [changes == "data" or makes, changes in ("data", "offsets") or makes]


@pytest.mark.parametrize(
    ("api", "version", "body", "code"),
    [
        ("Produce", 9, {"acks": 1, "topic_data": [{"name": "prod.a", "partition_data": [{"index": 0}]}]}, TOPIC),
        ("CreateTopics", 7, {"topics": [{"name": "prod.a"}]}, TOPIC),
        ("DeleteTopics", 5, {"topic_names": ["prod.a"]}, TOPIC),
        ("DeleteRecords", 2, {"topics": [{"name": "prod.a", "partitions": [{"partition_index": 0}]}]}, TOPIC),
        ("CreatePartitions", 3, {"topics": [{"name": "prod.a", "count": 3}]}, TOPIC),
        ("AlterConfigs", 2, {"resources": [{"resource_type": 2, "resource_name": "prod.a"}]}, TOPIC),
        ("IncrementalAlterConfigs", 1, {"resources": [{"resource_type": 2, "resource_name": "prod.a"}]}, TOPIC),
        ("CreateAcls", 3, {"creations": [{"resource_type": 2, "resource_name": "prod.a"}]}, CLUSTER),
        ("AddPartitionsToTxn", 3, {"v3_and_below_transactional_id": "x",
                                   "v3_and_below_topics": [{"name": "prod.a", "partitions": [0]}]}, TOPIC),
        ("ElectLeaders", 2, {"topic_partitions": [{"topic": "prod.a", "partitions": [0]}]}, CLUSTER),
        ("ElectLeaders", 2, {"topic_partitions": None}, CLUSTER),
        ("AlterPartitionReassignments", 0, {"topics": [{"name": "prod.a", "partitions": [{}]}]}, CLUSTER),
    ],
)  # fmt: skip
def test_topics_are_protected(api: str, version: int, body: dict[str, Any], code: int) -> None:
    """From everything that would change them."""
    talk = protecting(TOPICS).client(request(key(api), version, 1, **body))
    (answer,) = talk.responses((key(api), version))

    assert talk.to_broker == b""
    assert code in codes_in(answer.body)


def codes_in(value: Any) -> set[int]:
    if isinstance(value, dict):
        own = {code for name, code in value.items() if name.endswith("error_code") and code}
        return own.union(*map(codes_in, value.values()))
    return set().union(*map(codes_in, value)) if isinstance(value, list) else set()


@pytest.mark.parametrize(
    ("api", "version", "body"),
    [
        ("Fetch", 3, {"topics": [{"topic": "prod.a", "partitions": [{"partition": 0}]}]}),
        ("OffsetCommit", 7, {"group_id": "g", "topics": [{"name": "prod.a", "partitions": [{"partition_index": 0}]}]}),
        ("JoinGroup", 5, {"group_id": "g"}),
        ("DescribeConfigs", 4, {"resources": [{"resource_type": 2, "resource_name": "prod.a"}]}),
        ("Produce", 9, {"acks": 1, "topic_data": [{"name": "test.a", "partition_data": [{"index": 0}]}]}),
        ("CreateTopics", 7, {"topics": [{"name": "test.a"}]}),
        ("EndTxn", 3, {"transactional_id": "x"}),
    ],
)
def test_all_else_passes_as_it_came(api: str, version: int, body: dict[str, Any]) -> None:
    """Reading, groups, offsets, other topics."""
    asked = request(key(api), version, 1, **body)

    assert protecting(TOPICS).client(asked).to_broker == asked


def test_offsets_can_be_protected_too() -> None:
    """Commits of a selected topic get the topic's error."""
    topics = [{"name": name, "partitions": [{"partition_index": 0}]} for name in ("prod.a", "b")]
    talk = protecting(f"{TOPICS}, offsets: true").client(request(8, 7, 1, group_id="g", topics=topics))
    said = [{"name": "b", "partitions": [{"partition_index": 0}]}]
    (answer,) = talk.broker(response(8, 7, 1, topics=said)).responses((8, 7))
    found = [(topic["name"], topic["partitions"][0]["error_code"]) for topic in answer.body["topics"]]

    assert found == [("prod.a", TOPIC), ("b", 0)]


@pytest.mark.parametrize(("version", "made"), [(3, None), (4, False), (12, False)])
def test_asking_for_metadata_makes_no_topic(version: int, made: bool | None) -> None:
    """From version 4 on the request says so; the topics of others are left to the broker's configuration."""
    talk = protecting(TOPICS)
    talk.client(request(3, version, 1, topics=[{"name": "prod.a"}], **({} if made is None else MAKES)))
    (seen,) = talk.requests()

    assert seen.body.get("allow_auto_topic_creation") is made

    other = request(3, version, 2, topics=[{"name": "test.a"}], **({} if made is None else MAKES))
    assert protecting(TOPICS).client(other).to_broker == other


MAKES = {"allow_auto_topic_creation": True}


@pytest.mark.parametrize(
    ("api", "version", "body", "code"),
    [
        ("InitProducerId", 4, {"transactional_id": "x"}, TRANSACTIONAL_ID),
        ("EndTxn", 3, {"transactional_id": "x"}, TRANSACTIONAL_ID),
        ("DeleteGroups", 2, {"groups_names": ["g"]}, GROUP),
        ("AlterClientQuotas", 1, {"entries": [{"entity": [], "ops": []}]}, CLUSTER),
        ("UpdateFeatures", 2, {"feature_updates": [{"feature": "f"}]}, CLUSTER),
        ("CreateDelegationToken", 3, {}, 65),
    ],
)
def test_a_client_can_be_held_to_reading(api: str, version: int, body: dict[str, Any], code: int) -> None:
    """Whatever it would change."""
    talk = protecting("match: {client_id: tester}").client(request(key(api), version, 1, **body))
    (answer,) = talk.responses((key(api), version))

    assert (talk.to_broker, codes_in(answer.body)) == (b"", {code})


def test_a_write_without_acks_closes_the_connection() -> None:
    """As brokers do, since there is no answer."""
    data = [{"name": "prod.a", "partition_data": [{"index": 0}]}]
    talk = protecting(TOPICS).client(request(0, 9, 1, acks=0, topic_data=data))

    assert talk.to_broker == b""
    assert talk.closed is not None


def test_every_write_of_the_table_can_be_answered() -> None:
    """None of them lacks a place for the error."""
    for number, line in permissions().items():
        if line.changes != "nothing":
            for version in schema.load(number).versions:
                form = shape(number, version)
                assert form.carries or form.code is not None, (form.api, version)
