"""Traffic of `kproxy demo --keep`: a shop that goes on, so that the live view has something to show.

A producer writes orders and a group reads them, each in a thread of its own, through kproxy. Two rules act on some of
what passes, and a client that asks for an API's versions now and then opens and closes connections.
"""

from __future__ import annotations

import json
import threading
from itertools import count
from types import TracebackType
from typing import Any, Self

FAULTS = (
    {
        "name": "every tenth write fails",
        "kind": "error",
        "match": {"api": "Produce", "topic": "orders"},
        "when": {"every": 10},
        "error": "NOT_LEADER_OR_FOLLOWER",
    },
    {
        "name": "slow sometimes",
        "kind": "delay",
        "match": {"api": "Produce"},
        "when": {"probability": 0.2, "seed": 7},
        "delay": "250ms",
    },
)
"""Rules that the demo adds for as long as it stays up."""
_BETWEEN = 0.4  # seconds from one order to the next
_END = 10.0  # seconds until threads that do not end are left to the end of the process


class ShopTraffic:
    """Producer and consumer in threads, between entering and leaving.

    `settings` are those of each client, `topic` what they call it.
    """

    def __init__(self, settings: dict[str, Any], topic: str) -> None:
        self.settings, self.topic = settings, topic
        self._over = threading.Event()
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._produce, self._consume)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(_END)

    def _produce(self) -> None:
        from confluent_kafka import Producer

        producer = Producer(self.settings | {"client.id": "shop", "retry.backoff.ms": 50})
        for number in count(1):
            if self._over.wait(_BETWEEN):
                return
            order = {"order": number, "item": "tea", "price": 3 + number % 5}
            producer.produce(self.topic, json.dumps(order).encode(), key=f"customer {number % 7}".encode())
            producer.poll(0)

    def _consume(self) -> None:
        from confluent_kafka import Consumer

        consumer = Consumer(
            self.settings | {"client.id": "billing", "group.id": "billing", "auto.offset.reset": "latest"}
        )
        consumer.subscribe([self.topic])
        try:
            while not self._over.is_set():
                consumer.poll(0.2)
        finally:
            consumer.close()
