"""What events say of record batches and transactions, for whoever compares what was written with what was read."""

from __future__ import annotations

from typing import Any

from kproxy.protocol.records import Producer, encode_batch, encode_control
from kproxy.protocol.records.record import Control
from kproxy.record.audit.topic_columns import MOST_DETAILED
from kproxy.record.events.schema import MOST_BATCHES
from tests.record.audit.exchanges import batch, headed, said, seen

PRODUCER = Producer(7, 1, 40, transactional=True)


def fetched(*parts: dict[str, Any], isolation: int = 1) -> list[dict[str, Any]]:
    """The partitions of the event of a Fetch with this answer."""
    numbered = [{"partition_index": number, **part} for number, part in enumerate(parts)]
    request = {"isolation_level": isolation, "topics": []}
    event = said(seen("Fetch", 11, request, {"responses": [{"topic": "orders", "partitions": numbered}]}))
    assert event["isolation"] == isolation
    told: list[dict[str, Any]] = event["topics"][0]["partitions"]
    return told


def marker(kind: int, offset: int) -> bytes:
    control = encode_control(Control(kind, {"version": 0, "coordinator_epoch": 0}), offset=offset, timestamp=5)
    return bytes(encode_batch([control], base_offset=offset, producer=PRODUCER, control=True))


def test_a_transaction_that_was_read() -> None:
    """Its batches with their producer and sequence, its marker with what it says, and which others were aborted."""
    data = batch(2, base=10, producer=PRODUCER) + marker(1, 12) + marker(0, 13)
    (part,) = fetched(
        {
            "high_watermark": 20, "last_stable_offset": 14, "records": data,
            "aborted_transactions": [{"producer_id": 9, "first_offset": 3}],
        }
    )  # fmt: skip
    producer = {"producer_id": 7, "producer_epoch": 1}

    assert (20, 14) == (part["high_watermark"], part["last_stable_offset"])
    assert part["aborted"] == [{"producer_id": 9, "first_offset": 3}]
    assert part["batches_detail"] == [
        {"base_offset": 10, "last_delta": 1, "count": 2, **headed(data), **producer, "sequence": 40},
        {"base_offset": 12, "last_delta": 0, "count": 1, **headed(marker(1, 12)), **producer, "sequence": 40,
         "marker": "commit"},
        {"base_offset": 13, "last_delta": 0, "count": 1, **headed(marker(0, 13)), **producer, "sequence": 40,
         "marker": "abort"},
    ]  # fmt: skip


def test_one_batch_is_told_by_the_columns_beside_it() -> None:
    """A marker that comes alone is told, since it is no batch of users' records."""
    alone, ended = fetched({"records": batch(2, base=10)}, {"records": marker(0, 5)}, isolation=0)

    assert "batches_detail" not in alone
    assert headed(batch(2, base=10)).items() <= alone.items()
    assert ["abort"] == [one["marker"] for one in ended["batches_detail"]]


def test_what_is_told_is_bounded() -> None:
    """So many batches and aborted transactions of a partition, so many batches of all; all are counted."""
    many = b"".join(batch(1, base=number) for number in range(MOST_BATCHES + 5))
    aborted = [{"producer_id": number, "first_offset": 3} for number in range(MOST_BATCHES + 5)]
    parts = fetched(*[{"records": many, "aborted_transactions": aborted}] * (MOST_DETAILED // MOST_BATCHES + 2))
    told = [len(part.get("batches_detail", ())) for part in parts]

    assert told == [MOST_BATCHES] * (MOST_DETAILED // MOST_BATCHES) + [0, 0]
    assert {(MOST_BATCHES + 5, MOST_BATCHES)} == {(part["batches"], len(part["aborted"])) for part in parts}
