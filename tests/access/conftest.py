"""One proxy in front of the real Kafka, with a rule for each client that has its name as client id."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from kproxy.testing.kafka import Kafka
from kproxy.testing.process import Proxy
from tests.support.topics import create_topics

PATIENCE = 30
_numbers = itertools.count(1)


class Guarded:
    """A cluster behind a proxy with rules: `bootstrap` is the proxy's, `direct` the broker's own."""

    def __init__(self, kafka: Kafka, proxy: Proxy) -> None:
        self.kafka, self.proxy = kafka, proxy
        self.bootstrap, self.direct = proxy.bootstrap, kafka.bootstrap("DIRECT")

    def config(self, client: str, **settings: Any) -> dict[str, Any]:
        """Of a librdkafka client; settings have `_` for `.`."""
        quiet = {"bootstrap.servers": self.bootstrap, "client.id": client, "log_level": 0, "retry.backoff.ms": 50}
        return quiet | {key.replace("_", "."): value for key, value in settings.items()}

    def admin(self, client: str) -> AdminClient:
        """Through the proxy."""
        return AdminClient(self.config(client))

    def create(self, *words: str, partitions: int = 1) -> list[str]:
        """Topics that begin with these words, made past the proxy."""
        names = [f"{word}-{next(_numbers)}" for word in words]
        create_topics(self.direct, *names, partitions=partitions)
        return names

    def write(self, client: str, *where: str, bootstrap: str = "", **settings: Any) -> dict[str, str | None]:
        """One record for each of these topics: topic → what the producer was told (None: it is stored)."""
        told: dict[str, str | None] = {}

        def done(error: KafkaError | None, message: Message) -> None:
            told[str(message.topic())] = None if error is None else error.name()

        config = self.config(client, linger_ms=200, **settings)
        producer = Producer(config | ({"bootstrap.servers": bootstrap} if bootstrap else {}))
        for topic in where:
            producer.produce(topic, b"value" * 100, partition=0, callback=done)
        assert producer.flush(PATIENCE) == 0
        return told

    def stored(self, topic: str) -> int:
        """How many records the broker has in partition 0."""
        consumer = Consumer({"bootstrap.servers": self.direct, "group.id": "count"})
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), PATIENCE)
        consumer.close()
        return int(end)

    def counts(self, name: str) -> tuple[int, int, int]:
        """matched, fired and applied of a rule."""
        shown = json.loads(self.proxy.get(f"/api/rules/{name}")[1])
        return shown["matched"], shown["fired"], shown["applied"]

    def logs(self) -> str:
        """What the proxy wrote."""
        return self.proxy.logs()


@pytest.fixture(scope="module")
def guarded(request: pytest.FixtureRequest, kafka: Kafka) -> Iterator[Guarded]:
    """With the module's RULES, a mapping of client ids to rules."""
    rules = [
        {"name": name, **rule, "match": {**rule.get("match", {}), "client_id": name}}
        for name, rule in request.module.RULES.items()
    ]
    with Proxy(kafka.bootstrap("PROXIED"), rules=rules) as proxy:
        yield Guarded(kafka, proxy)
