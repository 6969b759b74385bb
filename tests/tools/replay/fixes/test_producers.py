"""Producer ids and epochs."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.protocol.records import Batch, Producer, Record, encode_batch, entries
from kproxy.protocol.table.api_keys import INIT_PRODUCER_ID
from kproxy.tools.replay.producer_fix import UNKNOWN, UNKNOWN_TRANSACTION, ProducerFix
from tests.support.frames import produce_body


def produce(tools: Any, *producers: Producer, at: float = 1) -> Any:
    """A Produce with a batch of two records of each of these."""
    records = [Record(0, 0, None, b"a"), Record(1, 0, None, b"b")]
    places = [("orders", n, encode_batch(records, producer=one)) for n, one in enumerate(producers)]
    return tools.exchange(0, 9, produce_body(*places), {}, at=at)


def sent(asked: Any) -> list[tuple[int, int, int]]:
    """Producer, epoch and sequence of the batches that are sent."""
    found = [
        entry
        for topic in asked.message.body["topic_data"]
        for part in topic["partition_data"]
        for entry in entries(part["records"])
    ]
    assert all(isinstance(one, Batch) for one in found)
    return [(one.producer_id, one.producer_epoch, one.base_sequence) for one in found]


@pytest.fixture
def met(tools: Any) -> ProducerFix:
    """Recorded 7, epoch 3, which the target calls 1000, epoch 0."""
    producers = ProducerFix()
    one = tools.exchange(INIT_PRODUCER_ID, 4, {"transactional_id": "tx"}, {"producer_id": 7, "producer_epoch": 3})
    now = tools.answer(INIT_PRODUCER_ID, 4, producer_id=1000, producer_epoch=0)
    producers.answer(tools.asked(one), one.response, now)
    return producers


def test_batches_get_the_producer_that_the_target_gave(tools: Any, met: ProducerFix) -> None:
    """With sequences of their own for each partition."""
    asked = tools.asked(produce(tools, Producer(7, 3, 50), Producer(7, 3, 8)))
    met.request(asked)

    assert sent(asked) == [(1000, 0, 0), (1000, 0, 0)]
    assert asked.notes == []


def test_an_epoch_that_the_client_raised_is_raised(tools: Any, met: ProducerFix) -> None:
    """KIP-360: by as much as in the recording."""
    asked = tools.asked(produce(tools, Producer(7, 5, 0)))
    met.request(asked)

    assert sent(asked) == [(1000, 2, 0)]


def test_batches_of_a_producer_from_before_the_recording_lose_it(tools: Any, met: ProducerFix) -> None:
    """The report says so. A transactional batch cannot, and keeps what it has."""
    asked = tools.asked(produce(tools, Producer(8, 0, 5), Producer(9, 1, 5, transactional=True)))
    met.request(asked)

    assert sent(asked) == [(-1, -1, -1), (9, 1, 5)]
    assert asked.notes == [UNKNOWN, UNKNOWN_TRANSACTION]


@pytest.mark.parametrize(
    ("key", "version", "fields"),
    [
        (24, 3, {"v3_and_below_producer_id": 7, "v3_and_below_producer_epoch": 3}),
        (24, 4, {"transactions": [{"transactional_id": "tx", "producer_id": 7, "producer_epoch": 3,
                                   "verify_only": False, "topics": []}]}),
        (25, 3, {"producer_id": 7, "producer_epoch": 3}),
        (26, 3, {"producer_id": 7, "producer_epoch": 3}),
        (28, 3, {"producer_id": 7, "producer_epoch": 3}),
        (22, 4, {"producer_id": 7, "producer_epoch": 3}),
    ],
)  # fmt: skip
def test_every_request_that_names_a_producer_names_the_new_one(
    tools: Any, met: ProducerFix, key: int, version: int, fields: dict[str, Any]
) -> None:
    """At the top or inside."""
    asked = tools.asked(tools.exchange(key, version, fields, {}, at=1))
    met.request(asked)

    assert key in met.requests
    text = str(asked.message.body)
    assert "producer_id': 1000" in text and "producer_epoch': 0" in text and "producer_id': 7" not in text


def test_the_end_of_a_transaction_may_give_a_new_epoch(tools: Any, met: ProducerFix) -> None:
    """EndTxn 5 (KIP-890)."""
    end = tools.exchange(26, 5, {"producer_id": 7, "producer_epoch": 3}, {"producer_id": 7, "producer_epoch": 4}, at=2)
    met.answer(tools.asked(end), end.response, tools.answer(26, 5, producer_id=1000, producer_epoch=1))
    asked = tools.asked(produce(tools, Producer(7, 4, 0), at=3))
    met.request(asked)

    assert sent(asked) == [(1000, 1, 0)]


def test_nothing_is_learned_from_errors(tools: Any) -> None:
    """Neither from recorded ones nor from new ones."""
    producers = ProducerFix()
    for then, now in (({"error_code": 14}, {"producer_id": 5}), ({"producer_id": 7}, {"error_code": 14})):
        one = tools.exchange(22, 4, {}, then)
        producers.answer(tools.asked(one), one.response, tools.answer(22, 4, **now))

    assert producers.of(7, 0) is None


def test_records_that_cannot_be_read_are_sent_as_they_are(tools: Any, met: ProducerFix) -> None:
    """With a note."""
    parts = [{"index": 0, "records": b"\0" * 16 + b"\x09" + b"\0" * 60}]
    one = tools.exchange(0, 9, {"acks": 1, "topic_data": [{"name": "orders", "partition_data": parts}]}, {}, at=1)
    asked = tools.asked(one)
    met.request(asked)

    assert bytes(asked.message.body["topic_data"][0]["partition_data"][0]["records"]) == parts[0]["records"]
    assert asked.notes[0].startswith("its records are sent as they are: entry at byte 0: magic 9")
