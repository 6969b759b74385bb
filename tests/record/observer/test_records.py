"""The records inside of exchanges that were kept whole."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kproxy.protocol.records import Record, encode_batch
from kproxy.protocol.records.spans import EntrySpans
from kproxy.record.exchange import Form, ObservedExchange
from kproxy.record.observer import records as watched
from kproxy.record.observer.records import LIVE, NotKept, RecordLimits, records_of
from tests.support.exchange_factory import Somebody, exchange, record_of
from tests.support.frames import produce_body


def produced(*records: Record, form: Form = Form.WHOLE) -> ObservedExchange:
    return exchange("Produce", 9, produce_body("orders", records=encode_batch(records), acks=1), {}, form=form)


def test_records_of_a_compressed_fetch() -> None:
    """Fetch answers have them too; control records are no records of users."""
    written = [Record(5, 0, b"k5", b"v5"), Record(6, 0, b"k6", b"v6")]
    control = encode_batch([Record(7, 0, b"\0\0\0\1", b"\0\0\0\0\0\0")], control=True)
    field = encode_batch(written, codec=4) + control
    partition = {"partition_index": 2, "records": field}
    answer = {"responses": [{"topic": "orders", "partitions": [partition]}]}

    found = list(records_of(exchange("Fetch", 12, {}, answer)))

    assert {(one.topic, one.partition) for one in found} == {("orders", 2)}
    assert [record_of(one) for one in found] == written


def test_topics_by_id_have_their_names() -> None:
    """Where the connection knows them; else the id stands for it."""
    topic_id = "00000000-0000-4000-8000-000000000001"
    partition = {"index": 0, "records": encode_batch([Record(0, 0, None, b"v")])}
    request = {"topic_data": [{"topic_id": UUID(topic_id), "partition_data": [partition]}]}

    known = exchange("Produce", 13, request, {}, who=Somebody(topics={topic_id: "orders"}))
    assert [one.topic for one in records_of(known)] == ["orders"]
    assert [one.topic for one in records_of(exchange("Produce", 13, request, {}))] == [topic_id]


def test_more_records_than_are_looked_at() -> None:
    """A match among the first ones is one; that there is none, cannot be told."""
    seen = produced(*(Record(number, 0, b"k%d" % number, b"v") for number in range(4)))

    assert [one.spans.key(one.span) for one in records_of(seen, RecordLimits(4, 100))] == [b"k0", b"k1", b"k2", b"k3"]
    with pytest.raises(NotKept, match="more than 3 records"):
        list(records_of(seen, RecordLimits(3, 100)))


def test_a_batch_that_cannot_be_read_is_passed_over() -> None:
    """The others are looked at."""
    good = encode_batch([Record(0, 0, b"k", b"v")])
    bad = encode_batch([Record(1, 0, b"x", b"v" * 50)], codec=1)
    broken = bad[:70] + b"\xff" * (len(bad) - 70)
    topic = {"name": "orders", "partition_data": [{"index": 0, "records": broken + good + b"\0" * 3}]}

    found = list(records_of(exchange("Produce", 9, {"topic_data": [topic]}, {})))

    assert [one.spans.key(one.span) for one in found] == [b"k"]


@pytest.mark.parametrize("codec", [1, 2, 3, 4], ids=["gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("readable", [True, False])
def test_batches_of_much_nothing_are_unpacked_up_to_a_limit(
    codec: int, readable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bombs by the hundred in one frame: a few are unpacked, then it is said that it cannot be judged."""
    monkeypatch.setattr(watched, "MOST_BYTES", 1 << 16)
    bomb = bytearray(encode_batch([Record(0, 0, b"k", bytes((1 << 16) - 100))], codec=codec))
    if not readable:
        bomb[57:61] = (2).to_bytes(4, "big")  # of two records, where there is one
    topic = {"name": "orders", "partition_data": [{"index": 0, "records": bytes(bomb) * 100}] * 3}
    seen, unpacked = exchange("Produce", 9, {"topic_data": [topic]}, {}), []

    def spans(entry: Any, limit: int, *more: Any) -> Any:
        unpacked.append(limit)
        return EntrySpans(entry, limit, *more)

    monkeypatch.setattr(watched, "EntrySpans", spans)
    with pytest.raises(NotKept, match="more than 262144 bytes come out of its batches"):
        list(records_of(seen, RecordLimits(1000, 1 << 18)))

    assert len(unpacked) == 5
    assert set(unpacked) == {1 << 16}


def test_headers_are_looked_at_up_to_a_limit() -> None:
    """A hundred bytes of zstd are a hundred thousand of them, which take a tenth of a second while others wait: that
    cannot be judged. Usual ones are."""
    many = exchange("Produce", 9, topics(encode_batch([Record(0, 0, b"k", None, (("", None),) * 99_999)], codec=4)), {})
    spread = [Record(number, 0, b"k", None, (("h", b""),) * 50) for number in range(201)]
    for seen in (many, exchange("Produce", 9, topics(encode_batch(spread, codec=4)), {})):
        with pytest.raises(NotKept, match=r"no more headers are looked at: .* headers, and no more than"):
            list(records_of(seen, LIVE))
    usual = exchange("Produce", 9, topics(encode_batch(spread[:200], codec=4)), {})

    assert len(list(records_of(usual, LIVE))) == 200


def topics(data: bytes) -> dict[str, Any]:
    return {"topic_data": [{"name": "orders", "partition_data": [{"index": 0, "records": data}]}]}


def test_a_frame_that_cannot_be_read() -> None:
    """Its records cannot be told."""
    seen = produced(Record(0, 0, b"k", b"v"))
    assert seen.request is not None
    seen.request.data = seen.request.data[:20]

    with pytest.raises(NotKept, match="the request cannot be read"):
        list(records_of(seen))


@pytest.mark.parametrize(("form", "kept"), [(Form.HEAD, "the beginning"), (Form.NONE, "nothing")])
def test_what_was_not_kept(form: Form, kept: str) -> None:
    """It is said, with the reason if there is one."""
    seen = produced(Record(0, 0, b"k", b"v"), form=form)
    with pytest.raises(NotKept, match=f"of the request {kept} was kept$"):
        list(records_of(seen))
    assert seen.request is not None
    seen.request.withheld = "a secret"
    with pytest.raises(NotKept, match=r"was kept \(a secret\)"):
        list(records_of(seen))
