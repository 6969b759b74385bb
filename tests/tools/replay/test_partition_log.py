"""The partitions of a recording."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.protocol import Message
from kproxy.protocol.records import Control, Producer, Record, decode, encode_batch, encode_control, entries
from kproxy.tools.replay.recorded_responses import PartitionLog


def batch(first: int, count: int, **more: Any) -> bytes:
    return encode_batch([Record(first + n, 0, None, f"v{first + n}".encode()) for n in range(count)], **more)


def fetched(tools: Any, at: float, offset: int, records: bytes | None, **more: Any) -> Any:
    """A Fetch of partition 0 of t from this offset, and its answer."""
    part = {"partition_index": 0, "error_code": 0, "high_watermark": 10, "last_stable_offset": 10,
            "log_start_offset": 0, "aborted_transactions": None, "records": records} | more  # fmt: skip
    asked = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1000}
    return tools.seen(1, 11, {"topics": [{"topic": "t", "partitions": [asked]}]},
                      {"responses": [{"topic": "t", "partitions": [part]}]}, at=at)  # fmt: skip


def read(tools: Any, log: PartitionLog, offset: int, most: int = 1000, partition: int = 0, isolation: int = 0) -> Any:
    """The partition of an answer, and whether there is something in the answer."""
    asked = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": most}
    fields = {"topics": [{"topic": "t", "partitions": [asked]}], "isolation_level": isolation, "session_epoch": 0}
    request: Message = tools.asked(tools.exchange(1, 11, fields, {})).message
    answer, some = log.answer(request)
    assert answer.body["session_id"] == 0
    return answer.body["responses"][0]["partitions"][0], some


def values(part: Any) -> list[bytes | None]:
    return [record.value for entry in entries(part["records"]) for record in decode(entry)]


def test_records_come_from_the_offset_that_is_asked_for(tools: Any) -> None:
    """Whole batches, each once, however they were recorded; the client passes over what is before its offset."""
    one, two, three = batch(0, 3), batch(3, 2), batch(5, 1)
    log = PartitionLog(tools.record([fetched(tools, 0, 0, one + two), fetched(tools, 1, 3, two + three)]))

    assert values(read(tools, log, 0)[0]) == [b"v0", b"v1", b"v2", b"v3", b"v4", b"v5"]
    assert values(read(tools, log, 4)[0]) == [b"v3", b"v4", b"v5"]
    assert values(read(tools, log, 0, most=1)[0]) == [b"v0", b"v1", b"v2"]


def test_nothing_new_is_said_to_be_nothing(tools: Any) -> None:
    """So that the answer waits as long as the client lets it."""
    log = PartitionLog(tools.record([fetched(tools, 0, 0, batch(0, 3))]))
    part, some = read(tools, log, 3)
    other, none = read(tools, log, 0, partition=5)

    assert (bytes(part["records"]), part["high_watermark"], some) == (b"", 10, False)
    assert (other["error_code"], other["high_watermark"], none) == (0, 0, False)


def test_an_error_is_given_once_at_its_offset(tools: Any) -> None:
    """As often as it was recorded."""
    log = PartitionLog(tools.record([fetched(tools, 0, 99, None, error_code=1)]))
    codes = [read(tools, log, 99)[0]["error_code"] for _ in range(2)]

    assert codes == [1, 0]


@pytest.mark.parametrize(("offset", "aborted"), [(0, [(7, 0)]), (3, []), (2, [(7, 0)])])
def test_aborted_transactions_are_told_to_whom_it_concerns(tools: Any, offset: int, aborted: list[Any]) -> None:
    """Readers of committed records, as long as their offset is not behind the end of the transaction."""
    producer = Producer(7, 0, 0, transactional=True)
    marker = encode_control(Control(0, {"version": 0, "coordinator_epoch": 0}), 2, 0)
    end = encode_batch([marker], control=True, producer=Producer(7, 0, -1, transactional=True))
    records = batch(0, 2, producer=producer) + end + batch(3, 1)
    told = [{"producer_id": 7, "first_offset": 0}]
    log = PartitionLog(tools.record([fetched(tools, 0, 0, records, aborted_transactions=told)]))
    part, _ = read(tools, log, offset, isolation=1)
    uncommitted, _ = read(tools, log, offset)

    assert [(one["producer_id"], one["first_offset"]) for one in part["aborted_transactions"]] == aborted
    assert uncommitted["aborted_transactions"] is None
