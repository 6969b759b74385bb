"""set_watermark: where partitions end and begin, as clients are told."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.protocol.table import schema

FETCH, LIST_OFFSETS = 1, 2
LATEST, EARLIEST = -1, -2
OFFSET_OUT_OF_RANGE = 1
BY_NAME = [version for version in schema.load(FETCH).versions if version < 13]


def fetched(talk: Any, high: int, version: int = 12, records: bytes = b"", offset: int = 0) -> dict[str, Any]:
    """The partition that the client is told of."""
    asked = {"partition": 0, "fetch_offset": offset}
    talk.ask(FETCH, version, max_wait_ms=0, topics=[{"topic": "orders", "partitions": [asked]}])
    part = {"partition_index": 0, "high_watermark": high, "records": records}
    part |= {"last_stable_offset": high} if version >= 4 else {}
    part |= {"log_start_offset": 0} if version >= 5 else {}
    body = talk.answer(FETCH, version, responses=[{"topic": "orders", "partitions": [part]}])
    found: dict[str, Any] = body["responses"][0]["partitions"][0]
    return found


def listed(talk: Any, version: int, timestamp: int, offset: int) -> int:
    """The offset that the client is told."""
    asked = {"partition_index": 0, "timestamp": timestamp}
    talk.ask(LIST_OFFSETS, version, topics=[{"name": "orders", "partitions": [asked]}])
    said = {"old_style_offsets": [offset, 0]} if version == 0 else {"offset": offset}
    part = {"partition_index": 0, **said}
    body = talk.answer(LIST_OFFSETS, version, topics=[{"name": "orders", "partitions": [part]}])
    found = body["topics"][0]["partitions"][0]
    return int(found["offset"] if version else found["old_style_offsets"][0])


@pytest.mark.parametrize("version", BY_NAME)
def test_it_moves(carried: Any, version: int) -> None:
    """Back, with what lies beyond withheld; forward, with all that there is; not below 0."""
    batches = carried.batch("a", "b", first=5), carried.batch("c", first=7)
    part = fetched(carried("kind: set_watermark\noffset_by: -1"), 8, version, b"".join(batches))
    assert (part["high_watermark"], part.get("last_stable_offset", 7)) == (7, 7)
    assert carried.read(part["records"]) == [(5, "a"), (6, "b")]

    part = fetched(carried("kind: set_watermark\noffset_by: 100"), 8, version, b"".join(batches))
    assert (part["high_watermark"], part.get("last_stable_offset", 8)) == (108, 8)
    assert bytes(part["records"]) == b"".join(batches)
    assert fetched(carried("kind: set_watermark\noffset_by: -10"), 8, version)["high_watermark"] == 0


@pytest.mark.parametrize("version", schema.load(LIST_OFFSETS).versions)
def test_it_stands_still(carried: Any, version: int) -> None:
    """Where it was first seen, by whichever API; the beginning is the broker's."""
    talk = carried("kind: set_watermark\nmatch: {topic: orders}\nstuck: true")

    assert fetched(talk, 8)["high_watermark"] == 8
    assert [fetched(talk, high)["high_watermark"] for high in (9, 20)] == [8, 8]
    assert listed(talk, version, LATEST, 30) == 8
    assert listed(talk, version, EARLIEST, 3) == 3


@pytest.mark.parametrize("version", BY_NAME)
def test_the_log_begins_later(carried: Any, version: int) -> None:
    """Who reads before that is out of range; who reads behind it is told where the log begins."""
    talk = carried("kind: set_watermark\nlog_start: 6")
    part = fetched(talk, 8, version, carried.batch("a", "b", "c"), offset=5)
    assert (part["error_code"], part["high_watermark"], bytes(part["records"])) == (OFFSET_OUT_OF_RANGE, -1, b"")

    part = fetched(talk, 8, version, carried.batch("a", "b", "c"), offset=6)
    assert (part["error_code"], part["high_watermark"], part.get("log_start_offset", 6)) == (0, 8, 6)
    assert listed(talk, 7, EARLIEST, 0) == 6
    assert listed(talk, 7, EARLIEST, 7) == 7
    assert listed(talk, 7, 1234, 2) == 2


def test_something_has_to_move(mistakes_of: Any) -> None:
    """A rule without any of it is refused."""
    assert "something to set" in mistakes_of("kind: set_watermark")[0]
    assert "something to set" in mistakes_of("kind: set_watermark, stuck: false")[0]


def test_an_answer_of_nothing(carried: Any) -> None:
    """Null where version 0 lists offsets passes as it came."""
    talk = carried("kind: set_watermark\noffset_by: -1")
    talk.ask(LIST_OFFSETS, 0, topics=[{"name": "orders", "partitions": [{"partition_index": 0, "timestamp": LATEST}]}])
    part = {"partition_index": 0, "old_style_offsets": None}
    body = talk.answer(LIST_OFFSETS, 0, topics=[{"name": "orders", "partitions": [part]}])
    assert body["topics"][0]["partitions"][0]["old_style_offsets"] is None
