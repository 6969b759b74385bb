"""Recorded answers, found by what was asked."""

from __future__ import annotations

from typing import Any

from kproxy.protocol.records import Record, encode_batch
from kproxy.tools.replay.recorded_responses import RecordedResponses
from tests.support.frames import produce_body


def produce(tools: Any, at: float, value: bytes, when: int, codec: int = 0) -> Any:
    records = encode_batch([Record(0, when, None, value)], codec=codec)
    return tools.seen(0, 9, produce_body("t", records=records, acks=1), {"throttle_time_ms": int(at)}, at=at)


def asked(tools: Any, seen: Any) -> Any:
    return tools.record([seen]).exchanges[0].request


def test_records_count_by_their_contents(tools: Any) -> None:
    """Not by their time or codec."""
    script = RecordedResponses(tools.record([produce(tools, 1, b"a", 1000), produce(tools, 2, b"b", 1000)]))
    found = script.exact(asked(tools, produce(tools, 9, b"b", 5000, codec=1)))

    assert found is not None and found.body["throttle_time_ms"] == 2
    assert script.exact(asked(tools, produce(tools, 9, b"c", 1000))) is None


def test_members_are_told_apart_as_long_as_they_are_known(tools: Any) -> None:
    """A member of its own answer; a stranger of the group's; a stranger group of the API's."""
    seen = [tools.seen(14, 3, {"group_id": "g", "member_id": member}, {"assignment": member.encode()}, at=at)
            for at, member in enumerate(("a", "b"))]  # fmt: skip
    script = RecordedResponses(tools.record(seen))
    requests = [{"group_id": "g", "member_id": "b"}, {"group_id": "g", "member_id": "z"}, {"group_id": "other"}]
    found = [script.alike(tools.exchange(14, 3, fields, {}).request) for fields in requests]

    assert [one and bytes(one.body["assignment"]) for one in found] == [b"b", b"a", b"a"]
    assert script.alike(tools.exchange(26, 3, {}, {}).request) is None
