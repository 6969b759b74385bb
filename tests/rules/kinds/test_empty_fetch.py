"""empty_fetch: data that consumers do not get."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kproxy.wire.table import schema

FETCH, SHARE_FETCH = 1, 78


def later(talk: Any, records: bytes, version: int = 12) -> tuple[bool, dict[str, Any]]:
    """Whether the answer is held back, and the partition once half a second has passed."""
    before = talk.answered
    talk.ask(FETCH, version, max_wait_ms=500, topics=[{"topic": "orders", "partitions": [{"partition": 0}]}])
    part = {"partition_index": 0, "high_watermark": 100, "records": records}
    talk.talk.broker(talk.frame(FETCH, version, responses=[{"topic": "orders", "partitions": [part]}]))
    held = len(talk.talk.to_client) == before
    talk.talk.later(0.51)
    found: dict[str, Any] = talk.told(FETCH, version)["responses"][0]["partitions"][0]
    return held, found


@pytest.mark.parametrize("version", [version for version in schema.load(FETCH).versions if version < 13])
def test_nothing_comes_after_the_time_that_a_broker_waits(carried: Any, version: int) -> None:
    """The watermark shows that there is data; the client is not made to ask again and again."""
    held, part = later(carried("kind: empty_fetch"), carried.batch("a"), version)

    assert held
    assert (part["error_code"], part["high_watermark"], bytes(part["records"])) == (0, 100, b"")


def test_whole_batches_that_fit(carried: Any) -> None:
    """The batch that goes beyond the limit is left out, or cut; what fits comes at once."""
    first, second = carried.batch("a"), carried.batch("b", first=6)
    limit = len(first) + 20
    held, part = later(carried(f"kind: empty_fetch\nmax_bytes: {limit}"), first + second)
    assert (held, bytes(part["records"])) == (False, first)

    held, part = later(carried(f"kind: empty_fetch\nmax_bytes: {limit}\ncut: true"), first + second)
    assert (held, bytes(part["records"])) == (False, (first + second)[:limit])


def test_what_fits_passes_as_it_came(carried: Any) -> None:
    """An answer within the limit is the broker's."""
    talk = carried("kind: empty_fetch\nmax_bytes: 10kB")
    held, _ = later(talk, talk.batch("a"))

    assert (held, talk.rule.applied) == (False, 0)


def test_share_groups(carried: Any) -> None:
    """Records that the client does not get are not acquired by it either."""
    talk = carried("kind: empty_fetch\nmatch: {topic: orders}")
    topic = UUID(int=7)
    talk.knows("orders", topic)
    talk.ask(SHARE_FETCH, 1, group_id="g", member_id="m", topics=[{"topic_id": topic, "partitions": [{}]}])
    part = {"records": talk.batch("a"), "acquired_records": [{"first_offset": 5, "last_offset": 5}]}
    body = talk.answer(SHARE_FETCH, 1, responses=[{"topic_id": topic, "partitions": [part]}])
    (part,) = body["responses"][0]["partitions"]

    assert (bytes(part["records"]), part["acquired_records"]) == (b"", [])
