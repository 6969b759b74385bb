"""Names that no entity stands for: every such field of the protocol's table has a decision."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.protocol import Message
from kproxy.protocol.table import layout, schema
from kproxy.rules.entity import Entity
from kproxy.rules.select.mentions import HARMLESS, MAKES, ROLES, loose, made, mentioned, refused, said

PAIRS = [(key, version) for key in schema.paths() for version in schema.load(key).versions]
REFUSED = {
    "UpdateMetadata": {
        "topic_states[].topic_id", "topic_states[].topic_name", "ungrouped_partition_states[].topic_name",
    },
    "ConsumerGroupHeartbeat": {"subscribed_topic_names[]"},
    "ShareGroupHeartbeat": {"subscribed_topic_names[]"},
    "StreamsGroupHeartbeat": {
        f"topology.subtopologies[].{field}"
        for field in (
            "repartition_sink_topics[]", "repartition_source_topics[].name", "source_topics[]",
            "state_changelog_topics[].name",
        )
    },
    "StreamsGroupTopologyDescriptionUpdate": {
        f"topology_description.{place}.{field}"
        for place in ("global_stores[].processor", "global_stores[].source", "subtopologies[].nodes[]")
        for field in ("sink_topic", "source_topics[]")
    },
}  # fmt: skip
"""Requests that fail if they mention what is forbidden there. A new field is in neither table, and is a question."""
NOT_NAMES = frozenset((
    "error_code", "error_text", "broker_id", "port", "host", "member_id", "principal", "producer_id", "rack",
    "group_instance_id", "cluster_id", "group_protocol", "config_value", "listener_name", "secret", "client_id",
    "client_address", "acl_host", "quota_entity_type", "quota_entity_name", "offset_metadata", "client_instance_id",
    "app_port", "app_host", "sasl_token", "log_dir", "telemetry", "principal_bytes", "timestamp",
))  # fmt: skip
ELSEWHERE = {
    "request_frame": "an Envelope is refused as a whole",
    "response_frame": "an Envelope is refused as a whole",
    "transactional_id_regex": "what it finds is left out of the list",
}


def asked(api: str, version: int, **body: Any) -> Message:
    return Message(schema.load(schema.names()[api]), version, {"request_api_key": 0}, body)


def test_every_mention_in_a_request_has_a_decision() -> None:
    """Refused, or harmless for a reason that is given; neither table has what does not exist."""
    found: dict[str, set[str]] = {}
    harmless = set()
    for key, version in PAIRS:
        name = schema.load(key).name
        for path in loose(key, version, "request"):
            if path in refused(key, version):
                found.setdefault(name, set()).add(path)
            else:
                assert (name, path) in HARMLESS
                harmless.add((name, path))

    assert found == REFUSED
    assert harmless == set(HARMLESS)


def test_every_kind_of_field_is_a_name_or_is_not() -> None:
    """A kind that the table of the protocol has anew is a question."""
    kinds = {
        slot.kind
        for key, version in PAIRS
        for direction in ("request", "response")
        for slot in layout.body(key, version, direction).everywhere()
    }

    assert kinds - {None} <= set(ROLES) | NOT_NAMES | set(ELSEWHERE)


@pytest.mark.parametrize(("key", "version"), PAIRS)
def test_an_answer_mentions_nothing_that_could_not_be_left_out(key: int, version: int) -> None:
    """Each such name stands in an array, may be null, or is bytes of a group."""
    paths = loose(key, version, "response")
    for slot in layout.body(key, version, "response").everywhere():
        if slot.path in paths:
            around = "[]" in slot.path or slot.path.startswith("next_cursor.")
            assert around or slot.nullable or slot.kind == "group_assignment", slot.path


def test_what_a_member_wants_is_mentioned() -> None:
    """By name, with the group; null and empty lists say nothing."""
    wanted = asked("ConsumerGroupHeartbeat", 0, group_id="g", subscribed_topic_names=["a", "b"])

    assert list(said(wanted)) == [Entity(topic="a", group="g"), Entity(topic="b", group="g")]
    assert not list(said(asked("ConsumerGroupHeartbeat", 0, subscribed_topic_names=None)))
    assert not list(said(asked("Fetch", 12, topics=[{"topic": "a"}])))


def test_a_streams_application_says_what_it_makes() -> None:
    """Changelogs and repartition topics; sources have to be there."""
    part = {"source_topics": ["a"], "repartition_sink_topics": ["b"], "state_changelog_topics": [{"name": "c"}]}
    part |= {"repartition_source_topics": [{"name": "d"}]}
    wanted = asked("StreamsGroupHeartbeat", 0, group_id="g", topology={"subtopologies": [part]})

    assert {one.topic for one in said(wanted)} == {"a", "b", "c", "d"}
    assert {one.topic for one in made(wanted)} == {"c", "d"}
    assert not list(made(asked("StreamsGroupHeartbeat", 0, group_id="g", topology=None)))
    assert set(MAKES) == {"StreamsGroupHeartbeat"}


def test_selectors_of_what_is_mentioned() -> None:
    """Topics in the bytes of groups and in transactions; nothing where all names are asked for."""
    assert mentioned(15, 5, "response") == {"topic", "topic_id"}
    assert mentioned(65, 0, "response") == {"topic", "topic_id"}
    assert mentioned(31, 3, "response") == {"topic", "topic_id", "group", "transactional_id"}
    assert mentioned(3, 12, "response") == mentioned(1, 12, "response") == mentioned(0, 9, "response") == frozenset()
