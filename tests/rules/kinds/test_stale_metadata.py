"""stale_metadata: answers from before."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.protocol.table import schema
from kproxy.rules.kinds.stale_metadata import MOST_KEPT, MOST_SHAPES

METADATA = 3


def asked(talk: Any, leader: int, version: int = 9, topics: Any = None, client: str = "tester") -> int:
    """The leader that the client is told when the broker says `leader`."""
    parts = [{"partition_index": 0, "leader_id": leader}]
    throttle = {"throttle_time_ms": leader} if version >= 3 else {}
    talk.ask(METADATA, version, client, topics=topics)
    body = talk.answer(METADATA, version, topics=[{"name": "orders", "partitions": parts}], **throttle)
    assert body.get("throttle_time_ms", leader) == leader
    found: int = body["topics"][0]["partitions"][0]["leader_id"]
    return found


@pytest.mark.parametrize("version", schema.load(METADATA).versions)
def test_so_many_answers_back(dialogue: Any, version: int) -> None:
    """`count: 2`: the answer before the last; as long as there is none so old, the oldest."""
    talk = dialogue("kind: stale_metadata\ncount: 2")
    topics = [{"name": "orders"}]

    assert [asked(talk, leader, version, topics) for leader in (1, 2, 3, 4, 5)] == [1, 1, 1, 2, 3]


def test_so_old(dialogue: Any) -> None:
    """`age: 30s`: the newest answer that is half a minute old, else the oldest."""
    talk = dialogue("kind: stale_metadata\nage: 30s")
    seen = []
    for leader in range(1, 8):
        seen.append(asked(talk, leader))
        talk.talk.later(10)

    assert seen == [1, 1, 1, 1, 2, 3, 4]


def test_other_requests_have_answers_of_their_own(dialogue: Any) -> None:
    """What was said of other topics, or in another version, is not mixed in; the order of topics does not matter."""
    talk = dialogue("kind: stale_metadata\ncount: 1")
    both = [{"name": "orders"}, {"name": "clicks"}]

    assert asked(talk, 1) == 1
    assert asked(talk, 2, topics=both) == 2
    assert asked(talk, 3, version=8) == 3
    assert asked(talk, 4, topics=both[::-1]) == 2
    assert asked(talk, 5) == 1


def test_memory_is_bounded(dialogue: Any) -> None:
    """Different requests, and answers by age, are kept up to a limit."""
    talk = dialogue("kind: stale_metadata\nage: 1h")
    for number in range(MOST_SHAPES + 10):
        asked(talk, 1, topics=[{"name": f"t{number}"}])
    kept = talk.talk.rules.live[0].effect.kept
    assert len(kept) == MOST_SHAPES

    for _ in range(1000):
        asked(talk, 1)
        talk.talk.later(7)
    assert max(map(len, kept.values())) <= MOST_KEPT + 2


def test_one_of_the_two_is_wanted(mistakes_of: Any) -> None:
    """`age` and `count` together, or none of them, are refused."""
    assert 'either "age" or "count"' in mistakes_of("kind: stale_metadata")[0]
    assert 'either "age" or "count"' in mistakes_of("kind: stale_metadata, age: 1s, count: 1")[0]
