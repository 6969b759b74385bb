"""Place of one recorded workload: a topic of a real Kafka behind kproxy, and clients of its name.

Configs are set past kproxy, as an operator does. Captures of kproxy have them at their beginning and their end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from time import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from kproxy.protocol.table import api_keys
from kproxy.testing.kafka import Kafka
from kproxy.testing.one_request import ask
from tests.support.topics import create_topics
from tests.support.wait import until

PATIENCE = 60
RECORDS = 10
"""Records of each batch."""
HOUR = 3_600_000
TOPIC_RESOURCE, GROUP_RESOURCE = 2, 32


@dataclass
class Site:
    """Place of one workload: a topic `name` of the cluster behind kproxy, and clients of that name."""

    name: str
    kafka: Kafka
    bootstrap: str

    @property
    def address(self) -> dict[str, Any]:
        """Return what every client is given."""
        return {"bootstrap.servers": self.bootstrap, "client.id": self.name, "log_level": 0}

    @property
    def place(self) -> TopicPartition:
        """Return the only partition of the topic."""
        return TopicPartition(self.name, 0)

    def create(self, **configs: str) -> None:
        """Make the topic with these configs, with _ for each dot of their names, known to all brokers."""
        named = {name.replace("_", "."): value for name, value in configs.items()}
        create_topics(self.kafka.bootstrap(), self.name, config=named)

    def producer(self, **configs: Any) -> Producer:
        """Return a producer, idempotent and with acks all unless these configs say otherwise."""
        chosen = {"enable.idempotence": True, "linger.ms": 20, "retry.backoff.ms": 50, "message.timeout.ms": 60_000}
        return Producer(self.address | chosen | {name.replace("_", "."): value for name, value in configs.items()})

    def write(self, producer: Producer, *batches: int, at: int | None = None) -> None:
        """Write batches of these numbers, each acknowledged before the next. `at`: milliseconds of the first one's
        time, and an hour more for each that follows."""
        for place, batch in enumerate(batches):
            for number in range(RECORDS):
                more = {} if at is None else {"timestamp": at + place * HOUR}
                value = None if batch % 5 == 4 and number == 0 else f"{batch}-{number}"
                producer.produce(self.name, value, key=f"key-{number % 4}", partition=0, **more)
            assert producer.flush(PATIENCE) == 0, f"{self.name}: not written"

    def end(self) -> int:
        """Return where the log ends, by the brokers themselves."""
        return self.bounds()[1]

    def bounds(self) -> tuple[int, int]:
        """Return where the log begins and ends, by the brokers themselves."""
        with client(Consumer({"bootstrap.servers": self.kafka.bootstrap(), "group.id": "bounds"})) as consumer:
            low, high = consumer.get_watermark_offsets(self.place, PATIENCE)
            return low, high

    def count(self) -> int:
        """Return how many records there are, by a consumer of no group and past kproxy."""
        found: list[int] = []
        direct = {"bootstrap.servers": self.kafka.bootstrap(), "group.id": "count", "enable.auto.commit": False}
        with client(Consumer(direct)) as consumer:
            consumer.assign([TopicPartition(self.name, 0, 0)])
            self.read_on(consumer, self.end(), found)
        return len(found)

    def read(self, group: str, *, committed: bool = True, **configs: Any) -> list[int]:
        """Read all that is there, from the beginning or where the group is; commit it. Return the offsets."""
        given = {name.replace("_", "."): value for name, value in configs.items()}
        chosen = {"group.id": f"{self.name}-{group}", "auto.offset.reset": "earliest", "enable.auto.commit": False,
                  "fetch.wait.max.ms": 100, "check.crcs": True,
                  "isolation.level": "read_committed" if committed else "read_uncommitted"}  # fmt: skip
        found: list[int] = []
        with client(Consumer(self.address | chosen | given)) as consumer:
            consumer.subscribe([self.name])
            self.read_on(consumer, self.end(), found)
            try:
                consumer.commit(asynchronous=False)
            except KafkaException as error:
                if error.args[0].code() != KafkaError._NO_OFFSET:
                    raise
        return found

    def read_on(self, consumer: Consumer, end: int, found: list[int]) -> None:
        """Read by this consumer up to an offset; the offsets of what it brings are added to `found`."""

        def there() -> bool:
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                found.append(message.offset() or 0)
            return bool(consumer.position([self.place])[0].offset >= end)

        until(there, PATIENCE)

    def ask(self, key: int, version: int, body: Mapping[str, Any]) -> dict[str, Any]:
        """Ask this of a broker through kproxy, as an administrator's client would."""
        return ask(self.bootstrap, key, version, dict(body), timeout=PATIENCE)


def now() -> int:
    """Return the time in milliseconds since 1970, as records have it."""
    return int(time() * 1000)


@contextmanager
def client(opened: Consumer) -> Iterator[Consumer]:
    """Give a consumer and close it."""
    try:
        yield opened
    finally:
        opened.close()


def configure(site: Site, resource: int, name: str, value: str) -> None:
    """Set a config of the topic or group that has the workload's name."""
    configs = [{"name": name, "config_operation": 0, "value": value}]
    resources = [{"resource_type": resource, "resource_name": site.name, "configs": configs}]
    address = site.kafka.bootstrap().partition(",")[0]
    body = {"resources": resources, "validate_only": False}
    told = ask(address, api_keys.INCREMENTAL_ALTER_CONFIGS, 1, body, timeout=PATIENCE)
    assert not told["responses"][0]["error_code"], told
