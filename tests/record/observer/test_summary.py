"""What a connection did, minute by minute."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from kproxy.protocol.records import Producer, Record, encode_batch
from kproxy.record.exchange import Depth
from kproxy.record.observer.summary import Summary
from kproxy.record.observer.summary_rows import SummaryRow
from kproxy.tools.rehearse.dialogue import request, response
from tests.record.observer.watching import Watching, whole_summary

HEARTBEAT, PRODUCE, FETCH, METADATA = 12, 0, 1, 3
BATCH = encode_batch([Record(at, 0, b"k", b"v" * 10) for at in range(40, 44)])


def lines(watching: Watching) -> list[SummaryRow]:
    assert watching.observer.summary is not None
    return watching.observer.summary.drain(watching.now, everything=True)


def beat(watching: Watching, number: int, error: int = 0) -> None:
    watching.client(request(HEARTBEAT, 4, number, "app")).broker(response(HEARTBEAT, 4, number, error_code=error))


def test_an_api_line() -> None:
    """Counts, bytes and times of the requests of an API; one line for each error."""
    watching = Watching(Depth.ROWS, summary=whole_summary())
    for number, error in enumerate((0, 0, 27, 0, 999)):
        beat(watching, number, error)
    found = {line.error: line for line in lines(watching)}
    good = found[None]

    assert {None: 3, "REBALANCE_IN_PROGRESS": 1, "999": 1} == {error: one.count for error, one in found.items()}
    assert ("Heartbeat", 4, "app", 60.0, 100.0, 100.0) == (
        good.api, good.version, good.client_id, good.minute, good.first, good.last)  # fmt: skip
    assert (3 * len(request(HEARTBEAT, 4, 1, "app")), 3 * len(response(HEARTBEAT, 4, 1))) == (
        good.request_bytes, good.response_bytes)  # fmt: skip
    assert (None, None, None, None) == (good.topic, good.records, good.acks, good.empty)


def test_minutes() -> None:
    """An exchange belongs to the minute in which it was over; drained are minutes that are over, each once."""
    summary = Summary(lambda key, version: True, lambda now: now + 1_000_000.0)
    watching = Watching(Depth.ROWS, summary=summary)
    watching.now = 19.0  # 1_000_019: the last second of its minute
    beat(watching, 1)
    watching.client(request(HEARTBEAT, 4, 2, "app"))
    assert [] == summary.drain(19.5)
    watching.now = 21.0
    watching.broker(response(HEARTBEAT, 4, 2))
    (first,) = summary.drain(21.0)

    assert (999_960.0, 1, 1_000_019.0) == (first.minute, first.count, first.first)
    assert [] == summary.drain(79.0)
    (second,) = summary.drain(80.5)
    assert (1_000_020.0, 1, 1_000_019.0) == (second.minute, second.count, second.first)
    assert [] == summary.drain(900.0, everything=True)


def test_what_is_wanted() -> None:
    """APIs that the summary does not want are not in it; at COUNT depth there are no partitions."""
    summary = Summary(lambda key, version: key != HEARTBEAT)
    watching = Watching(Depth.COUNT, summary=summary)
    beat(watching, 1)
    produce(watching, 2, "t", {0: BATCH})

    assert [("Produce", None, -1)] == [(line.api, line.topic, line.acks) for line in lines(watching)]


def produce(
    watching: Watching, number: int, topic: str, parts: dict[int, bytes], errors: dict[int, int] | None = None
) -> None:
    data = [{"index": index, "records": records} for index, records in parts.items()]
    watching.client(request(PRODUCE, 9, number, acks=-1, topic_data=[{"name": topic, "partition_data": data}]))
    done = [
        {
            "index": index,
            "error_code": (errors or {}).get(index, 0),
            "base_offset": -1 if (errors or {}).get(index) else 70,
        }
        for index in parts
    ]
    watching.broker(response(PRODUCE, 9, number, responses=[{"name": topic, "partition_responses": done}]))


def test_partitions_written() -> None:
    """Records, bytes and batches come from the request, errors and offsets from the response."""
    watching = Watching(Depth.ROWS, summary=whole_summary())
    idempotent = encode_batch([Record(0, 0, None, b"x" * 100)], codec=1, producer=Producer(5, 0, 0))
    produce(watching, 1, "t", {0: BATCH + BATCH, 1: idempotent, 2: BATCH}, {2: 6})
    found = {line.partition: line for line in lines(watching)}

    def values(line: SummaryRow) -> tuple[Any, ...]:
        return (line.topic, line.records, line.bytes, line.batches, line.last_offset, line.codec, line.idempotent,
                line.error, line.count, line.high_watermark, line.empty, line.latency_ms)  # fmt: skip

    assert ("t", 8, 2 * len(BATCH), 2, 77, "none", False, None, 1, None, None, None) == values(found[0])
    assert ("t", 1, len(idempotent), 1, 70, "gzip", True, None, 1, None, None, None) == values(found[1])
    assert ("t", 4, len(BATCH), 1, None, "none", False, "NOT_LEADER_OR_FOLLOWER", 1, None, None, None) == values(
        found[2]
    )
    assert 1 == found[None].count


def test_a_write_that_was_not_answered() -> None:
    """Nobody knows whether its records were written: it counts as a request, not as records."""
    watching = Watching(Depth.ROWS, summary=whole_summary())
    for number in (1, 2):
        watching.client(request(PRODUCE, 9, number, acks=1, topic_data=[
            {"name": "t", "partition_data": [{"index": 0, "records": BATCH}]}]))  # fmt: skip
    (line,) = lines(watching.end())

    assert (2, 0, 2 * [0]) == (line.count, line.response_bytes, (line.latency_buckets or [])[:2])


def test_a_write_without_acks() -> None:
    """Its records count when the request is whole; it has no latency."""
    watching = Watching(Depth.ROWS, summary=whole_summary())
    for number in range(4):
        watching.client(request(PRODUCE, 9, number, acks=0, topic_data=[
            {"name": "t", "partition_data": [{"index": 0, "records": BATCH}]}]))  # fmt: skip
    api, part = lines(watching)

    assert (4, 0, 0.0, 0) == (api.count, api.response_bytes, api.latency_ms, api.acks)
    assert (4, 16, None, 0) == (part.count, part.records, part.last_offset, part.acks)


def test_partitions_read() -> None:
    """Records, bytes and offsets of what was read; requests that brought nothing are counted apart."""
    watching = Watching(Depth.ROWS, summary=whole_summary())
    topics = [{"topic_id": UUID(int=7), "partitions": [
        {"partition_index": 0, "high_watermark": 44, "records": BATCH},
        {"partition_index": 1, "high_watermark": 9, "records": None}]}]  # fmt: skip
    for number, found in enumerate((topics, [], [])):
        watching.client(request(FETCH, 13, number)).broker(response(FETCH, 13, number, responses=found))
    api, first, second = sorted(lines(watching), key=lambda line: -1 if line.partition is None else line.partition)

    assert (3, 2, None) == (api.count, api.empty, api.topic)
    assert ("found", str(UUID(int=7)), 4, len(BATCH), 1, 43, 44, 0, "none") == (
        first.topic, first.topic_id, first.records, first.bytes, first.batches, first.last_offset,
        first.high_watermark, first.empty, first.codec)  # fmt: skip
    assert (0, 0, 0, None, 9, 1, None) == (
        second.records, second.bytes, second.batches, second.last_offset, second.high_watermark, second.empty,
        second.codec)  # fmt: skip


def test_too_many_partitions() -> None:
    """Partitions beyond the limit fold into one line of their topic, those of further topics into the API's line."""
    watching = Watching(Depth.ROWS, summary=whole_summary(most=3))
    produce(watching, 1, "t", dict.fromkeys(range(10), BATCH))
    for number in range(600):
        produce(watching, 2 + number, f"topic-{number}", {0: BATCH})
    found = lines(watching)
    rest = [line for line in found if line.topic == "t" and line.partition is None]
    (api,) = [line for line in found if line.topic is None]

    assert [(7, 28, None)] == [(line.count, line.records, line.last_offset) for line in rest]
    assert 4 * 610 == sum(line.records or 0 for line in found)
    assert (601, 4 * (600 - 499)) == (api.count, api.records)
    assert len(found) == 3 + 500 + 1


def test_lines_that_nobody_drains() -> None:
    """When nobody drains, a minute goes on as long as there are too many lines; no count is lost."""
    watching = Watching(Depth.ROWS, summary=whole_summary())
    for number in range(12_000):
        watching.now = 100.0 + 60 * number
        beat(watching, number)
    found = lines(watching)

    assert len(found) <= 10_001
    assert 12_000 == sum(line.count for line in found)


def test_late_begin() -> None:
    """A response whose request was not seen is counted, without a latency."""
    watching = Watching(Depth.ROWS, summary=whole_summary())
    watching.observer.awaiting([(1, HEARTBEAT, 4)])
    watching.broker(response(HEARTBEAT, 4, 1))
    (line,) = lines(watching)

    assert (1, 0, 0.0, len(response(HEARTBEAT, 4, 1))) == (
        line.count, line.request_bytes, line.latency_ms, line.response_bytes)  # fmt: skip
