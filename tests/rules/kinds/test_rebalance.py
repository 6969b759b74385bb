"""rebalance: members that have to join again."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.protocol.table import schema

HEARTBEAT, CONSUMER, SHARE, STREAMS = 12, 68, 76, 88
REBALANCE_IN_PROGRESS, FENCED_MEMBER_EPOCH = 27, 110
NEW = [(key, version) for key in (CONSUMER, SHARE, STREAMS) for version in schema.load(key).versions]


def beat(talk: Any, member: str = "a", generation: int = 1, version: int = 4, group: str = "billing") -> int:
    """The error that the member gets; the broker has none."""
    seen = talk.ask(HEARTBEAT, version, group_id=group, member_id=member, generation_id=generation)
    body = talk.answer(HEARTBEAT, version) if seen is not None else talk.received(HEARTBEAT, version)
    code: int = body["error_code"]
    return code


def new_beat(talk: Any, key: int, version: int, epoch: int) -> int:
    """The same in a newer protocol."""
    seen = talk.ask(key, version, group_id="billing", member_id="a", member_epoch=epoch)
    body = talk.answer(key, version) if seen is not None else talk.received(key, version)
    code: int = body["error_code"]
    return code


@pytest.mark.parametrize("version", schema.load(HEARTBEAT).versions)
def test_each_heartbeat_that_it_fires_for(dialogue: Any, version: int) -> None:
    """The member is told to join again, the broker does not see it; another group is left alone."""
    talk = dialogue("kind: rebalance\nmatch: {group: billing}\nwhen: {nth: 2}")

    assert [beat(talk, version=version) for _ in range(3)] == [0, REBALANCE_IN_PROGRESS, 0]
    assert beat(talk, version=version, group="other") == 0


@pytest.mark.parametrize(("key", "version"), NEW)
def test_newer_protocols(dialogue: Any, key: int, version: int) -> None:
    """Members are fenced; one that joins (0) or leaves (-1) is not."""
    talk = dialogue("kind: rebalance")

    assert [new_beat(talk, key, version, epoch) for epoch in (0, 3, -1)] == [0, FENCED_MEMBER_EPOCH, 0]


def test_every_so_often(dialogue: Any) -> None:
    """Once in each period, not in the first; a group that was silent for long is told once."""
    talk = dialogue("kind: rebalance\nevery: 10s")
    told_at = []
    for second in (0, 3, 6, 9, 12, 15, 18, 21, 55, 58):
        talk.talk.later(second - talk.talk.now)
        if beat(talk):
            told_at.append(second)

    assert told_at == [12, 21, 55]


def test_each_member_once_in_a_period(dialogue: Any) -> None:
    """Both members are told, unless one has joined again meanwhile, as its generation shows."""
    talk = dialogue("kind: rebalance\nevery: 10s")
    assert [beat(talk, "a"), beat(talk, "b"), beat(talk, "c")] == [0, 0, 0]
    talk.talk.later(11)

    assert [beat(talk, "a"), beat(talk, "a"), beat(talk, "b")] == [REBALANCE_IN_PROGRESS, 0, REBALANCE_IN_PROGRESS]
    assert beat(talk, "c", generation=2) == 0
