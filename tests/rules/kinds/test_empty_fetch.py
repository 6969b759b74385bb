"""empty_fetch: data that consumers do not get."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kproxy.protocol.table import schema

FETCH, SHARE_FETCH = 1, 78


def later(talk: Any, records: bytes, version: int = 12) -> tuple[bool, dict[str, Any]]:
    """Whether the answer is held back, and the partition once half a second has passed."""
    before = talk.answered
    talk.ask(FETCH, version, max_wait_ms=500, topics=[{"topic": "orders", "partitions": [{"partition": 0}]}])
    part = {"partition_index": 0, "high_watermark": 100, "records": records}
    talk.talk.broker(talk.frame(FETCH, version, responses=[{"topic": "orders", "partitions": [part]}]))
    held = len(talk.talk.to_client) == before
    talk.talk.later(0.51)
    found: dict[str, Any] = talk.received(FETCH, version)["responses"][0]["partitions"][0]
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


def test_a_batch_at_a_time(carried: Any) -> None:
    """`batches`: so many in any case, and those behind them as far as they fit; at once, since there is something."""
    parts = [carried.batch("a"), carried.batch("b" * 500, first=6), carried.batch("c", first=8)]
    whole = b"".join(parts)
    for text, expected in (
        ("batches: 1", parts[:1]),
        ("batches: 2", parts[:2]),
        (f"batches: 1, max_bytes: {len(parts[0]) + 10}", parts[:1]),
        (f"batches: 1, max_bytes: {len(whole) - 1}", parts[:2]),
        ("batches: 2, max_bytes: 10", parts[:2]),
        ("batches: 3", parts),
        ("batches: 9", parts),
    ):
        talk = carried("\n".join(["kind: empty_fetch", *text.split(", ")]))
        held, part = later(talk, whole)
        assert (held, bytes(part["records"])) == (False, b"".join(expected)), text
        assert talk.rule.applied == (expected != parts)


def test_a_batch_at_a_time_and_a_cut_one(carried: Any) -> None:
    """`cut` cuts behind the batches that are kept in any case; what a broker has cut itself stays as it is."""
    first, second = carried.batch("a" * 100), carried.batch("b", first=6)
    held, part = later(carried("kind: empty_fetch\nbatches: 1\ncut: true\nmax_bytes: 20"), first + second)
    assert (held, bytes(part["records"])) == (False, first)
    limit = len(first) + 20
    held, part = later(carried(f"kind: empty_fetch\nbatches: 1\ncut: true\nmax_bytes: {limit}"), first + second)
    assert (held, bytes(part["records"])) == (False, (first + second)[:limit])
    for broken in (first + second[:30], first[:30]):
        held, part = later(carried("kind: empty_fetch\nbatches: 1"), broken)
        assert (held, bytes(part["records"])) == (False, broken)


def test_share_groups_a_batch_at_a_time(carried: Any) -> None:
    """What a member has is what it gets: it would take the rest for records that are gone."""
    talk = carried("kind: empty_fetch\nbatches: 1\nmatch: {topic: orders}")
    topic = UUID(int=7)
    talk.knows("orders", topic)
    talk.ask(SHARE_FETCH, 1, group_id="g", member_id="m", topics=[{"topic_id": topic, "partitions": [{}]}])
    first, second = talk.batch("a", first=5), talk.batch("b", first=6)
    spans = [
        {"first_offset": 4, "last_offset": 4, "delivery_count": 2},
        {"first_offset": 5, "last_offset": 6, "delivery_count": 1},
        {"first_offset": 7, "last_offset": 9, "delivery_count": 1},
    ]
    part = {"records": first + second, "acquired_records": spans}
    body = talk.answer(SHARE_FETCH, 1, responses=[{"topic_id": topic, "partitions": [part]}])
    (part,) = body["responses"][0]["partitions"]

    assert bytes(part["records"]) == first
    assert [(one["first_offset"], one["last_offset"]) for one in part["acquired_records"]] == [(4, 4), (5, 5)]
