"""Record conditions with real clients: a producer whose record is rejected, and what is stored."""

from __future__ import annotations

import time
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from kproxy.testing.process import Proxy
from tests.support.topics import create_topics

pytestmark = pytest.mark.process
SECONDS, COUNT, REJECTED = 60, 30, 17
RULE = {
    "name": "no seventeens", "kind": "error", "error": "INVALID_RECORD",
    "match": {"api": "Produce", "topic": "rejected", "records": f"value.number == {REJECTED}"},
}  # fmt: skip


def test_idempotent_producer_goes_on_after_a_rejected_record(clients: Any) -> None:
    """librdkafka sends single records with five requests in flight; only one record is missing, and none is twice."""
    failed: list[int] = []
    with Proxy(clients.upstream, rules=[RULE]) as proxy:
        create_topics(proxy.bootstrap, "rejected")
        producer = Producer({"bootstrap.servers": proxy.bootstrap, "enable.idempotence": True, "batch.num.messages": 1})
        for number in range(COUNT):
            producer.produce("rejected", b'{"number": %d}' % number, on_delivery=lambda error, message, number=number: (
                failed.append(number) if error is not None else None))  # fmt: skip
        assert producer.flush(SECONDS) == 0
    consumer = Consumer({"bootstrap.servers": clients.upstream, "group.id": "g"})
    consumer.assign([TopicPartition("rejected", 0, 0)])
    found: list[bytes] = []
    limit = time.monotonic() + SECONDS
    while len(found) < COUNT - len(failed) and time.monotonic() < limit:
        found += [one.value() for one in consumer.consume(COUNT, 0.5) if one.error() is None]
    consumer.close()

    assert REJECTED in failed
    assert found == [b'{"number": %d}' % number for number in range(COUNT) if number not in failed]
