"""Writes numbered records to each partition, idempotent, and notes each acknowledged one; SIGTERM: flushes and ends."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from confluent_kafka import Message, Producer

from tests.lab.soak.clients.common import Client, value

BATCH = 0.05
"""Seconds between two lots of records."""


def main() -> None:
    client = Client()
    topic, partitions, rate = (client.arguments[name] for name in ("topic", "partitions", "rate"))
    producer = Producer(
        client.settings(**{"enable.idempotence": True, "acks": "all", "message.timeout.ms": 0, "linger.ms": 10})
    )
    acknowledged: list[list[int | None]] = []
    failed: list[str] = []

    def told(partition: int, number: int, error: Any, message: Message) -> None:
        if error is not None:
            failed.append(f"number {number} of partition {partition}: {error}")
        else:
            acknowledged.append([message.partition(), message.offset(), number])

    def note() -> None:
        if acknowledged or failed:
            client.note(acknowledged=acknowledged, failed=failed)
            acknowledged.clear()
            failed.clear()

    number, begun = 0, time.monotonic()
    while not client.ended:
        while not client.ended and number * partitions < (time.monotonic() - begun) * rate and len(producer) < 20_000:
            for partition in range(partitions):
                producer.produce(topic, value(partition, number), partition=partition,
                                 on_delivery=partial(told, partition, number))  # fmt: skip
            number += 1
        producer.poll(BATCH)
        note()
    while producer.flush(1):
        note()
    note()
    client.note(written=number)


if __name__ == "__main__":
    main()
