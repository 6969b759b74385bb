"""Offsets of what is written to a stage."""

from __future__ import annotations

from typing import Any

from kproxy.protocol.records import Record, encode_batch
from kproxy.tools.replay.responder import WrittenOffsets


def write(tools: Any, written: WrittenOffsets, count: int, recorded: int, code: int = 0) -> int:
    """The base offset that so many records get, where the recording has this one."""
    data = encode_batch([Record(number, 0, None, b"v") for number in range(count)])
    topics = [{"name": "t", "partition_data": [{"index": 0, "records": data}]}]
    request = tools.asked(tools.exchange(0, 9, {"acks": 1, "topic_data": topics}, {})).message
    part = {"index": 0, "error_code": code, "base_offset": recorded}
    response = tools.answer(0, 9, responses=[{"name": "t", "partition_responses": [part]}])
    written.number(request, response)
    found: int = response.body["responses"][0]["partition_responses"][0]["base_offset"]
    return found


def test_offsets_go_on_where_the_last_write_ended(tools: Any) -> None:
    """And never stand before the recorded ones: between them may be markers of transactions."""
    written = WrittenOffsets()

    assert [write(tools, written, *one) for one in ((3, 0), (2, 0), (1, 4), (1, 100), (1, 4))] == [0, 3, 5, 100, 101]


def test_a_write_that_failed_takes_no_place(tools: Any) -> None:
    """Its answer stays as it is."""
    written = WrittenOffsets()

    assert [write(tools, written, 3, -1, 6), write(tools, written, 3, 0)] == [-1, 0]
