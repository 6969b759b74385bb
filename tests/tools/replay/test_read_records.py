"""What consumers were given."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.protocol.records import Record, encode_batch
from kproxy.tools.replay import compare
from kproxy.tools.replay.compare import ReadRecords


def fetched(tools: Any, *records: Record, codec: int = 0) -> Any:
    """An answer with these in one batch of partition 0 of t."""
    data = encode_batch(records, codec=codec)
    part = {"partition_index": 0, "error_code": 0, "high_watermark": 9, "aborted_transactions": None, "records": data}
    return tools.answer(1, 11, responses=[{"topic": "t", "partitions": [part]}])


A, B = Record(0, 1000, b"k", b"a"), Record(1, 2000, b"k", b"b")


def test_how_records_are_cut_into_answers_does_not_matter(tools: Any) -> None:
    """Nor do codecs, timestamps, and how often they are read."""
    found = ReadRecords()
    found.add(0, fetched(tools, A, B), {}.get)
    for record in (A, Record(1, 7777, b"k", b"b"), A):
        found.add(1, fetched(tools, record, codec=1), {}.get)

    assert list(found.differences()) == []
    assert found.totals() == (2, 2)


def test_what_is_missing_and_what_is_new_is_told(tools: Any) -> None:
    """By partition."""
    found = ReadRecords()
    found.add(0, fetched(tools, A, B), {}.get)
    found.add(1, fetched(tools, A, Record(1, 2000, b"k", b"other"), Record(2, 0, None, None)), {}.get)

    assert list(found.differences()) == [(("t", 0), 2, 3, 1, 2)]


@pytest.mark.parametrize(("offsets", "differences"), [(True, 1), (False, 0)])
def test_offsets_may_be_left_out(tools: Any, offsets: bool, differences: int) -> None:
    """Then the same record elsewhere is the same."""
    found = ReadRecords(offsets=offsets)
    found.add(0, fetched(tools, A), {}.get)
    found.add(1, fetched(tools, Record(50, 1000, b"k", b"a")), {}.get)

    assert len(list(found.differences())) == differences


def test_memory_is_bounded(tools: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is beyond is counted."""
    monkeypatch.setattr(compare, "MOST", 1)
    found = ReadRecords()
    found.add(0, fetched(tools, A, B), {}.get)

    assert (found.size, found.beyond) == (1, 1)


def test_headers_and_nulls_count(tools: Any) -> None:
    """An empty value is not null."""
    found = ReadRecords()
    found.add(0, fetched(tools, Record(0, 0, None, b"", (("h", b"1"),))), {}.get)
    for other in (Record(0, 0, None, None, (("h", b"1"),)), Record(0, 0, None, b"", (("h", None),))):
        found.add(1, fetched(tools, other), {}.get)

    assert list(found.differences()) == [(("t", 0), 1, 2, 1, 2)]
