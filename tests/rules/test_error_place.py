"""Where in a response an error can stand."""

from __future__ import annotations

import pytest

from kproxy.protocol.table import schema
from kproxy.protocol.table.shapes import shape
from kproxy.rules.kinds.base.access import can_say, fail_outermost, has_text


@pytest.mark.parametrize(
    ("api", "version", "anywhere", "top", "entity"),
    [
        ("Produce", 9, True, False, True),
        ("Fetch", 6, True, False, True),
        ("Fetch", 7, True, True, True),
        ("OffsetFetch", 1, True, False, True),
        ("OffsetFetch", 7, True, True, True),
        ("OffsetFetch", 8, True, True, True),
        ("Heartbeat", 3, True, True, True),
        ("ListGroups", 0, True, True, True),
        ("LeaveGroup", 4, True, True, True),
        ("Metadata", 12, True, False, True),
        ("Metadata", 13, True, True, True),
        ("UpdateFeatures", 2, True, True, False),
        ("DescribeLogDirs", 0, False, False, False),
        ("DescribeLogDirs", 3, True, True, False),
    ],
)
def test_a_place_is_there_or_not(api: str, version: int, anywhere: bool, top: bool, entity: bool) -> None:
    """At the top, at each entity; what asks about one thing has it at the top for both."""
    key = schema.names()[api]

    assert (can_say(key, version, None), can_say(key, version, "top"), can_say(key, version, "entity")) == (
        anywhere, top, entity,
    )  # fmt: skip


@pytest.mark.parametrize("key", schema.paths())
def test_nearly_everything_has_a_place(key: int) -> None:
    """Only DescribeLogDirs before version 3 can say no error."""
    api = schema.load(key)
    lacking = [version for version in api.versions if not can_say(key, version, None)]

    assert lacking == ([0, 1, 2] if api.name == "DescribeLogDirs" else [])


def test_texts_stand_beside_codes() -> None:
    """Where the version has a field for one."""
    assert [has_text(0, version) for version in (7, 8)] == [False, True]
    assert has_text(19, 5)
    assert not has_text(12, 4)
    assert has_text(68, 0)


def test_each_group_has_a_top_of_its_own() -> None:
    """In OffsetFetch 8 and DescribeShareGroupOffsets; what the group had in it goes."""
    groups = [{"group_id": name, "error_code": 0, "topics": [{"name": "t"}]} for name in ("g", "h")]

    assert fail_outermost(shape(9, 8), {"groups": groups}, {"h"}, 16)
    assert [(group["error_code"], len(group["topics"])) for group in groups] == [(0, 1), (16, 0)]
    assert not fail_outermost(shape(9, 8), {"groups": groups}, {"other"}, 16)
    assert fail_outermost(shape(9, 8), {"groups": groups}, (), 14)
    assert [group["error_code"] for group in groups] == [14, 14]
