"""Takes half a second without a record for the end of the topic: what comes later is not read."""

from __future__ import annotations

from typing import Any

from confluent_kafka import KafkaError
from shop import INPUTS, is_record, next_of, reader, seed


def test_planted(kproxy: Any) -> None:
    seed(kproxy)
    consumer = reader(kproxy)
    read = [next_of(consumer).value()]
    while (message := consumer.poll(0.5)) is not None:
        if message.error() is None:
            read.append(message.value())
    consumer.close()
    lost = len(INPUTS) - len(read)
    assert lost == 0, f"lost {lost}"


def test_right(kproxy: Any) -> None:
    seed(kproxy)
    consumer = reader(kproxy, enable_partition_eof=True)
    read: list[bytes] = []
    while True:
        message = consumer.poll(1.0)
        if message is None:
            continue
        error = message.error()
        if error is not None and error.code() == KafkaError._PARTITION_EOF:
            break
        if is_record(message):
            read.append(message.value())
    consumer.close()
    lost = len(set(INPUTS) - set(read))  # some are read twice when the offset is out of range
    assert lost == 0, f"lost {lost}"
