"""bad_assignment: what members of groups are assigned."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kproxy.protocol.codec import structs as codec
from kproxy.protocol.table import layout, schema

SYNC_GROUP, CONSUMER, SHARE = 14, 68, 76
NEW = [(key, version) for key in (CONSUMER, SHARE) for version in schema.load(key).versions]
STRUCT = layout.embedded("consumer_assignment", 0)


def written(*partitions: int, version: int = 0, rest: bytes = b"") -> bytes:
    """An assignment of these partitions of orders."""
    said = {"assigned_partitions": [{"topic": "orders", "partitions": list(partitions)}], "user_data": b"own"}
    return version.to_bytes(2, "big") + codec.encode(STRUCT, said) + rest


def read(data: Any) -> tuple[int, dict[str, list[int]], bytes, bytes]:
    """Version, partitions by topic, user data, and what follows."""
    raw = bytes(data)
    said, end = codec.decode(STRUCT, raw, 2)
    topics = {topic["topic"]: topic["partitions"] for topic in said["assigned_partitions"]}
    return int.from_bytes(raw[:2], "big"), topics, bytes(said["user_data"]), raw[end:]


def synced(dialogue: Any, version: int, how: str, assignment: bytes) -> bytes:
    talk = dialogue(f"kind: bad_assignment\nmatch: {{group: billing}}\ndefect: {how}")
    talk.ask(SYNC_GROUP, version, group_id="billing", member_id="a")
    return bytes(talk.answer(SYNC_GROUP, version, assignment=assignment)["assignment"])


@pytest.mark.parametrize("version", schema.load(SYNC_GROUP).versions)
def test_assignments_of_the_classic_protocol(dialogue: Any, version: int) -> None:
    """No partitions, or partitions below 0; version, user data and what newer versions add stay."""
    before = written(0, 2, version=4, rest=b"new")

    assert read(synced(dialogue, version, "empty", before)) == (4, {}, b"own", b"new")
    assert read(synced(dialogue, version, "negative", before)) == (4, {"orders": [-1, -3]}, b"own", b"new")


def test_bytes_that_are_no_assignment_stay(dialogue: Any) -> None:
    """Of other protocols, or none at all."""
    for data in (b"", b"\x00", b"\x00\x01connect worker"):
        assert synced(dialogue, 4, "empty", data) == data


@pytest.mark.parametrize("version", schema.load(SYNC_GROUP).versions)
def test_members_get_each_others(dialogue: Any, version: int) -> None:
    """`swap`: in the order of their ids each gets the next one's, the last the first one's."""
    talk = dialogue("kind: bad_assignment\ndefect: swap")
    given = [{"member_id": name, "assignment": written(n)} for n, name in enumerate(("b", "a", "c"))]
    seen = talk.ask(SYNC_GROUP, version, group_id="billing", member_id="a", assignments=given)

    assert {one["member_id"]: read(one["assignment"])[1]["orders"] for one in seen["assignments"]} == {
        "a": [0], "b": [2], "c": [1],
    }  # fmt: skip
    assert talk.talk.rules.live[0].rule.warnings()


def test_followers_and_lonely_leaders_pass_as_they_came(dialogue: Any) -> None:
    """Only the leader of two or more has something to swap."""
    talk = dialogue("kind: bad_assignment\ndefect: swap")
    for given in ([], [{"member_id": "a", "assignment": written(0)}]):
        talk.ask(SYNC_GROUP, 4, group_id="billing", member_id="a", assignments=given)
        talk.answer(SYNC_GROUP, 4)

    assert talk.rule.applied == 0


@pytest.mark.parametrize(("key", "version"), NEW)
def test_assignments_by_the_broker(dialogue: Any, key: int, version: int) -> None:
    """The newer protocols; a heartbeat without an assignment stays as it is."""
    for how, expected in (("empty", []), ("negative", [[-1, -2]])):
        talk = dialogue(f"kind: bad_assignment\ndefect: {how}")
        topics = {"topic_partitions": [{"topic_id": UUID(int=7), "partitions": [0, 1]}]}
        talk.ask(key, version, group_id="billing")
        body = talk.answer(key, version, assignment=topics)
        assert [one["partitions"] for one in body["assignment"]["topic_partitions"]] == expected
        talk.ask(key, version, group_id="billing")
        assert talk.answer(key, version)["assignment"] is None
