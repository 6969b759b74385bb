"""Rules about what answers list do not match, and do not count, requests that ask for nothing: a Java client asks for
the brokers alone before it asks for topics, and `first: 2` means two answers that have something to change."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.protocol.table import schema
from kproxy.rules.kinds import KINDS
from kproxy.rules.kinds.base.rule import LiveRule
from kproxy.tools.rehearse.dialogue import Dialogue, request

METADATA, OFFSET_FETCH, DESCRIBE = 3, 9, 75
NAMED = [{"name": "orders", "partition_indexes": [0]}]
"""Topic as OffsetFetch lists it until version 10, which has ids."""
OFFSETS = {"omit_offset": "", "rewind_offset": ", offset_by: -100"}
TOPICS = {
    "change_partitions": ", offset_by: 3", "hide_topic": "", "move_leader": ", node: 3", "no_leader": "",
    "recreate_topic": "", "shift_epoch": ", offset_by: -1",
}  # fmt: skip
WHERE = ("", ", match: {topic: orders}", ", when: {first: 2}", ", match: {topic: orders}, when: {first: 2}")


def fired(kind: str, more: str, key: int, version: int, *bodies: dict[str, Any]) -> list[int]:
    """How often the rule has fired after each of these requests."""
    talk = Dialogue(f"rules: [{{name: r, kind: {kind}{more}}}]")
    found = []
    for at, body in enumerate(bodies):
        asked = request(key, version, at, **body)
        talk.session.from_client(bytearray(asked).ljust(1 << 12, b"\0"), len(asked), 1.0)
        talk.session.commands.clear()
        found.append(talk.rules.live[0].fired)
    return found


def test_each_kind_about_answers_is_here() -> None:
    about = {kind for kind, model in KINDS.items() if issubclass(model, LiveRule) and model.of_answers}

    assert about == {*OFFSETS, *TOPICS}


@pytest.mark.parametrize("version", schema.load(METADATA).versions)
@pytest.mark.parametrize("kind", TOPICS)
def test_metadata(kind: str, version: int) -> None:
    """From version 1 on an empty list asks for the brokers alone; in version 0 it asks for all topics. Null does so in
    each version: one that does not have it is refused by Apache Kafka, and by others it is not."""
    everything = {"topics": None}
    named, brokers = {"topics": [{"name": "orders"}]}, {"topics": []}
    for where in WHERE:
        more = TOPICS[kind] + where
        assert fired(kind, more, METADATA, version, everything, named) == [1, 2], where
        if version == 0:
            assert fired(kind, more, METADATA, version, brokers, named) == [1, 2], where
        else:
            assert fired(kind, more, METADATA, version, brokers, named, brokers, everything) == [0, 1, 1, 2], where


@pytest.mark.parametrize("kind", TOPICS)
def test_described_partitions(kind: str) -> None:
    """An empty list asks for all topics in each version, and so does null, which no version has."""
    asked = {"topics": []}, {"topics": [{"name": "orders"}]}, {"topics": None}
    for where in WHERE:
        found = fired(kind, TOPICS[kind] + where, DESCRIBE, 0, *asked)
        assert found == ([1, 2, 2] if "first" in where else [1, 2, 3]), where


@pytest.mark.parametrize("version", schema.load(OFFSET_FETCH).versions)
@pytest.mark.parametrize("kind", OFFSETS)
def test_committed_offsets(kind: str, version: int) -> None:
    """Null asks for all topics of the group, in each version; an empty list for none."""
    asked = [[], None, *([] if version >= 10 else [NAMED])]
    bodies = [{"group_id": "g", "topics": topics} for topics in asked]
    if version >= 8:
        bodies = [{"groups": [body]} for body in bodies]
    for where in WHERE:
        found = fired(kind, OFFSETS[kind] + where, OFFSET_FETCH, version, *bodies)
        assert found == [0, 1, 2][: len(asked)], where
