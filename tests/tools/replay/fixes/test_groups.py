"""Members and generations."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.tools.replay.request_fixes import GroupFix


@pytest.fixture
def joined(tools: Any) -> GroupFix:
    """Recorded member a-1 in generation 4, which the target calls a-9 in generation 1."""
    groups = GroupFix()
    answered = {"generation_id": 4, "member_id": "a-1", "leader": "a-1"}
    one = tools.exchange(11, 5, {"group_id": "g"}, answered)
    groups.answer(tools.asked(one), one.response, tools.answer(11, 5, generation_id=1, member_id="a-9", leader="a-9"))
    return groups


@pytest.mark.parametrize(
    ("key", "version", "epoch"),
    [(12, 3, "generation_id"), (14, 3, "generation_id"), (8, 7, "generation_id_or_member_epoch"),
     (28, 3, "generation_id")],
)  # fmt: skip
def test_requests_name_the_target_s_member_and_generation(
    tools: Any, joined: GroupFix, key: int, version: int, epoch: str
) -> None:
    """Heartbeats, assignments, commits."""
    asked = tools.asked(tools.exchange(key, version, {"group_id": "g", "member_id": "a-1", epoch: 4}, {}, at=1))
    joined.request(asked)

    assert key in joined.requests
    assert (asked.message.body["member_id"], asked.message.body[epoch]) == ("a-9", 1)


def test_members_inside_are_named_too(tools: Any, joined: GroupFix) -> None:
    """Assignments of the leader, members that leave; strangers stay."""
    assignments = [{"member_id": name, "assignment": b"x"} for name in ("a-1", "b-1")]
    sync = tools.asked(tools.exchange(14, 3, {"member_id": "a-1", "assignments": assignments}, {}, at=1))
    leave = tools.asked(tools.exchange(13, 4, {"members": [{"member_id": "a-1", "group_instance_id": None}]}, {}, at=2))
    joined.request(sync)
    joined.request(leave)

    assert [one["member_id"] for one in sync.message.body["assignments"]] == ["a-9", "b-1"]
    assert leave.message.body["members"][0]["member_id"] == "a-9"


def test_an_id_is_learned_from_the_error_that_gives_it(tools: Any) -> None:
    """MEMBER_ID_REQUIRED (KIP-394)."""
    groups = GroupFix()
    one = tools.exchange(11, 5, {"group_id": "g"}, {"error_code": 79, "member_id": "a-1"})
    groups.answer(tools.asked(one), one.response, tools.answer(11, 5, error_code=79, member_id="a-9"))

    assert groups.members == {"a-1": "a-9"}
    assert groups.epochs == {}


def test_an_error_without_a_member_changes_nothing(tools: Any, joined: GroupFix) -> None:
    """The member keeps its new id, and its generation."""
    one = tools.exchange(11, 5, {"group_id": "g", "member_id": "a-1"}, {"generation_id": 5, "member_id": "a-1"}, at=1)
    joined.answer(tools.asked(one), one.response, tools.answer(11, 5, error_code=27))

    assert joined.members == {"a-1": "a-9"}
    assert joined.latest == {"a-1": 1}


def test_an_unknown_generation_becomes_the_latest(tools: Any, joined: GroupFix) -> None:
    """Of this member; those of simple consumers, and of members that nobody knows, stay."""
    fields = [("a-1", 9), ("", -1), ("z", 3)]
    asked = [tools.asked(tools.exchange(12, 3, {"member_id": m, "generation_id": g}, {})) for m, g in fields]
    for one in asked:
        joined.request(one)

    assert [one.message.body["generation_id"] for one in asked] == [1, -1, 3]


def test_epochs_of_new_groups_come_from_heartbeats(tools: Any) -> None:
    """KIP-848: the member chose its id itself; 0 joins and -1 leaves, and stay."""
    groups = GroupFix()
    join = tools.exchange(68, 1, {"group_id": "g", "member_id": "m", "member_epoch": 0},
                          {"member_id": "m", "member_epoch": 12})  # fmt: skip
    asked = tools.asked(join)
    groups.request(asked)
    groups.answer(asked, join.response, tools.answer(68, 1, member_id="m", member_epoch=2))
    beats = [tools.asked(tools.exchange(68, 1, {"member_id": "m", "member_epoch": one}, {})) for one in (12, -1, 0)]
    fetch = tools.asked(tools.exchange(9, 9, {"groups": [
        {"group_id": "g", "member_id": "m", "member_epoch": 12, "topics": None}]}, {}))  # fmt: skip
    for one in (*beats, fetch):
        groups.request(one)

    assert asked.message.body["member_epoch"] == 0
    assert [one.message.body["member_epoch"] for one in beats] == [2, -1, 0]
    assert fetch.message.body["groups"][0]["member_epoch"] == 2
