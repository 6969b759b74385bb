"""Events to a topic of a real Kafka, whose only broker is killed in the middle."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
import structlog
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from kproxy.record.audit.kafka_outlet import KafkaOutlet, KafkaSettings
from kproxy.record.audit.recorder import Recorder
from kproxy.testing.kafka import Kafka
from tests.support.topics import create_topics
from tests.support.wait import until

TOPIC, PARTITIONS, COUNT = "audit-of-kproxy", 3, 6000
SOURCE = "host/0badcafe-0000-4000-8000-000000000000/0"


def read(bootstrap: str, count: int) -> list[Any]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "judge", "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, number, OFFSET_BEGINNING) for number in range(PARTITIONS)])
    found: list[Any] = []
    until(lambda: found.extend(consumer.consume(1000, 0.5)) or len(found) >= count, 60)
    found += consumer.consume(1000, 1.0)
    consumer.close()
    return found


@pytest.mark.deep
def test_a_broker_that_is_killed_loses_no_event(tmp_path: Path) -> None:
    """Each event is there once, those of one connection in order, with the key and headers that they should have."""
    with Kafka(1, properties={"log.dirs": str(tmp_path / "log")}) as kafka:
        create_topics(kafka.bootstrap(), TOPIC, partitions=PARTITIONS)
        settings = KafkaSettings(kafka.bootstrap(), TOPIC, SOURCE, when_full="block", retry=0.2)
        outlet = KafkaOutlet(settings, structlog.get_logger())
        recorder = Recorder(SOURCE, [outlet])
        recorder.start()
        for number in range(COUNT):
            if number == COUNT // 3:
                until(lambda: outlet.counters.written > 0)
                kafka.stop_broker(1, kill=True)
            if number == 2 * COUNT // 3:
                until(lambda: recorder.blocked)  # nobody is there
                kafka.start_broker(1)
            recorder.put("kproxy.test.v1", time.time(), {"number": number, "connection": number % 7})
        until(lambda: not recorder.blocked and outlet.counters.queued == 0, 60)
        closed = recorder.close(30)
        messages = read(kafka.bootstrap(), COUNT)
        assert (tmp_path / "log" / "broker-1" / "data" / f"{TOPIC}-0").is_dir()

    events = [msgspec.json.decode(message.value()) for message in messages]
    assert closed
    assert sorted(int(event["id"]) for event in events) == list(range(1, COUNT + 1))
    for connection in range(7):
        own = [event["data"]["number"] for event in events if event["data"]["connection"] == connection]
        assert own == list(range(connection, COUNT, 7))
    assert {message.key() for message in messages} == {str(number).encode() for number in range(7)}
    assert {tuple(message.headers()) for message in messages} == {
        (("type", b"kproxy.test.v1"), ("content-type", b"application/cloudevents+json"))
    }
    assert outlet.counters.dropped == {}
    assert outlet.counters.written == COUNT
