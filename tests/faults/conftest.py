"""A real Kafka behind a proxy with faults, and what became of what real clients did there.

Starting a proxy for each fault would take most of the time. So a file's faults are the rules of one proxy, each for the
client that has its name as client id, and all clients work at once.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from kproxy.testing.kafka import Kafka
from kproxy.testing.one_request import ask
from kproxy.testing.process import Proxy
from tests.support.topics import create_topics
from tests.support.wait import until

LIST_OFFSETS = 2
PATIENCE = 30  # seconds after which a client that does not get on is taken for stuck
SLOW = 120  # seconds: a client with this time-out that gets on has been told, or it would be stuck

#: A client that tries again at once. Not idempotent: what is sent twice is stored twice.
HASTY = {
    "enable.idempotence": False,
    "socket.timeout.ms": SLOW * 1000,
    "retry.backoff.ms": 50,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 100,
    "topic.metadata.refresh.fast.interval.ms": 50,
    "linger.ms": 0,
    "log_level": 0,
}

_numbers = itertools.count(1)


@dataclass
class Outcome:
    """What a producer was told of each record (None: it is stored), how long that took, and what the broker has."""

    told: list[str | None] = field(default_factory=list)
    seconds: float = 0.0
    stored: int = 0


class Clients:
    """librdkafka at work on `kafka`, directly or through a proxy. Settings have `_` for `.`."""

    def __init__(self, kafka: Kafka) -> None:
        self.direct, self.upstream = kafka.bootstrap("DIRECT"), kafka.bootstrap("PROXIED")

    def topics(self, count: int) -> list[str]:
        """New topics of one partition."""
        names = [f"fault-{next(_numbers)}" for _ in range(count)]
        create_topics(self.direct, *names)
        for name in names:  # a leader that does not know yet that it is one answers with an error
            until(lambda name=name: self.leads(name))
        return names

    def leads(self, topic: str) -> bool:
        """Whether the broker takes records for partition 0."""
        partition = {"partition_index": 0, "timestamp": -1}
        body = {"replica_id": -1, "topics": [{"name": topic, "partitions": [partition]}]}
        (answer,) = ask(self.direct, LIST_OFFSETS, 1, body)["topics"]
        return bool(answer["partitions"][0]["error_code"] == 0)

    def stored(self, topic: str) -> int:
        """How many records the broker has."""
        consumer = Consumer({"bootstrap.servers": self.direct, "group.id": "count"})
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), PATIENCE)
        consumer.close()
        return int(end)

    def write(self, bootstrap: str, topic: str, count: int = 1, **settings: Any) -> Outcome:
        """Produce so many records and wait for what becomes of each."""
        outcome = Outcome()

        def done(error: KafkaError | None, message: Message) -> None:
            outcome.told.append(None if error is None else error.name())

        producer = Producer({"bootstrap.servers": bootstrap, **HASTY, **dotted(settings)})
        producer.list_topics(topic, PATIENCE)  # so that what is measured is the write alone
        since = time.monotonic()
        for number in range(count):
            producer.produce(topic, f"value-{number}", callback=done)
        assert producer.flush(PATIENCE) == 0
        outcome.seconds = time.monotonic() - since
        outcome.stored = self.stored(topic)
        return outcome

    def read(self, bootstrap: str, topic: str, count: int, **settings: Any) -> tuple[list[str], list[str]]:
        """So many values from the beginning, and the errors on the way."""
        config = {"bootstrap.servers": bootstrap, "group.id": f"g-{topic}", "fetch.error.backoff.ms": 50}
        hasty = {key: value for key, value in HASTY.items() if key not in ("enable.idempotence", "linger.ms")}
        consumer = Consumer(config | hasty | dotted(settings))
        consumer.assign([TopicPartition(topic, 0, 0)])
        values: list[str] = []
        errors: list[str] = []
        limit = time.monotonic() + 2 * PATIENCE  # after a wrong answer it asks again when it likes
        while len(values) < count and time.monotonic() < limit:
            message = consumer.poll(0.1)
            if message is None:
                continue
            error = message.error()
            if error is None:
                values.append((message.value() or b"").decode())
            else:
                errors.append(error.name())
        consumer.close()
        return values, errors


def dotted(settings: Mapping[str, Any]) -> dict[str, Any]:
    """`socket_timeout_ms` as `socket.timeout.ms`."""
    return {key.replace("_", "."): value for key, value in settings.items()}


Rule = Mapping[str, Any]


def rule_for(client_id: str, rule: Rule) -> Rule:
    return {"name": client_id, **rule, "match": {**rule.get("match", {}), "client_id": client_id}}


@pytest.fixture(scope="session")
def clients(kafka: Kafka) -> Clients:
    return Clients(kafka)


@pytest.fixture(scope="module")
def faulty(request: pytest.FixtureRequest, clients: Clients) -> Iterator[Proxy]:
    """A proxy with the module's FAULTS, a mapping of client ids to rules."""
    faults: Mapping[str, Rule] = request.module.FAULTS
    with Proxy(clients.upstream, rules=[rule_for(name, rule) for name, rule in faults.items()]) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def all_at_once(clients: Clients) -> Iterator[Callable[..., dict[str, Future[Any]]]]:
    """Runs `act(topic, name)` for each name in a thread of its own, with a topic each: name → what comes of it."""
    with ThreadPoolExecutor(32) as pool:

        def run(act: Callable[[str, str], Any], names: Any) -> dict[str, Future[Any]]:
            names = list(names)
            return {
                name: pool.submit(act, topic, name)
                for topic, name in zip(clients.topics(len(names)), names, strict=True)
            }

        yield run
