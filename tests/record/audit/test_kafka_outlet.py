"""The outlet to a topic, on librdkafka's mock cluster; tests/kafka/test_audit_topic.py has a real one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from kproxy.record.audit.kafka_outlet import KafkaOutlet, KafkaSettings, MissingExtra, WrongOptions
from kproxy.record.audit.recorder import Recorder
from kproxy.testing.cluster import MockCluster
from tests.record.audit.conftest import Log
from tests.support.wait import until

SOURCE = "host/0badcafe-0000-4000-8000-000000000000/0"
TOPIC = "kproxy-audit"


class Audit:
    """A started recorder that sends to a cluster."""

    def __init__(self, bootstrap: str, on_unblocked: Callable[[], None] = lambda: None, **settings: Any) -> None:
        self.log = Log()
        own = KafkaSettings(bootstrap, TOPIC, SOURCE, **{"retry": 0.1, **settings})
        self.outlet = KafkaOutlet(own, self.log)
        self.counters = self.outlet.counters
        self.recorder = Recorder(SOURCE, [self.outlet], on_unblocked)
        self.number = 0
        self.recorder.start()

    def put(self, count: int = 1, **data: Any) -> None:
        for _ in range(count):
            self.number += 1
            self.recorder.put("kproxy.test.v1", 1_700_000_000.25, {"number": self.number, **data})


@pytest.fixture
def mock() -> Iterator[MockCluster]:
    with MockCluster(1) as cluster:
        cluster.create_topic(TOPIC, 1)
        yield cluster


def topic(bootstrap: str, count: int) -> list[Any]:
    """The first messages of the topic's only partition."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "judge", "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
    found: list[Any] = []
    until(lambda: found.extend(consumer.consume(count - len(found), 0.2)) or len(found) == count)
    assert consumer.consume(1, 0.2) == []
    consumer.close()
    return found


def events(bootstrap: str, count: int) -> list[dict[str, Any]]:
    return [msgspec.json.decode(message.value()) for message in topic(bootstrap, count)]


def test_a_message_is_a_line(mock: MockCluster) -> None:
    """Its key is the connection, or the source; headers say what it is."""
    own = Audit(mock.bootstrap)
    own.put(connection=17)
    own.put()
    assert own.recorder.close(20)
    first, second = topic(mock.bootstrap, 2)

    assert first.value() == (
        b'{"specversion":"1.0","id":"1","source":"' + SOURCE.encode() + b'","type":"kproxy.test.v1",'
        b'"time":"2023-11-14T22:13:20.250000Z","datacontenttype":"application/json",'
        b'"data":{"number":1,"connection":17}}'
    )
    assert (first.key(), second.key()) == (b"17", SOURCE.encode())
    assert first.headers() == [("type", b"kproxy.test.v1"), ("content-type", b"application/cloudevents+json")]
    assert (own.counters.written, own.counters.queued, own.counters.queued_bytes) == (2, 0, 0)
    assert own.counters.bytes == len(first.value()) + len(second.value()) + 2


def test_drop_while_no_broker_is_there(mock: MockCluster) -> None:
    """As many events as the queue holds wait; what was dropped is counted, and told when the cluster is back."""
    own = Audit(mock.bootstrap, queue=10)
    own.put(3)
    until(lambda: own.counters.written == 3)
    mock.set_down(1)
    until(lambda: own.counters.failing)
    own.put(15)
    blocked = own.recorder.blocked
    mock.set_up(1)
    until(lambda: own.counters.written == 14)
    assert own.recorder.close(20)
    *others, told = events(mock.bootstrap, 14)

    assert [event["data"]["number"] for event in others] == list(range(1, 14))
    assert told["data"] == {
        "reason": "dropped", "dropped": 5, "first_id": 14, "last_id": 18, "message": "kafka: unreachable 5",
    }  # fmt: skip
    assert own.counters.dropped == {"unreachable": 5}
    assert own.log.texts("warning") == ["audit: events do not reach the topic, kproxy tries again"]
    assert own.log.texts("info") == ["audit: events are sent to the topic again"]
    assert not blocked


def test_block_while_no_broker_is_there(mock: MockCluster) -> None:
    """Nothing is dropped; who waits is told, also when no event was on its way that could show that it is over."""
    free: list[bool] = []
    own = Audit(mock.bootstrap, queue=10, when_full="block", on_unblocked=lambda: free.append(True))
    own.put(1)
    until(lambda: own.counters.written == 1)
    mock.set_down(1)
    until(lambda: own.recorder.blocked)
    mock.set_up(1)
    until(lambda: free)
    own.put(12)
    until(lambda: len(free) == 2)
    assert own.recorder.close(20)

    assert [event["data"]["number"] for event in events(mock.bootstrap, 13)] == list(range(1, 14))
    assert own.counters.dropped == {}


@pytest.mark.parametrize("when_full", ["drop", "block"])
def test_a_line_that_is_too_large(mock: MockCluster, when_full: Any) -> None:
    """It can never be sent, whatever the policy: dropped and told, and the others go on."""
    own = Audit(mock.bootstrap, when_full=when_full, options={"message.max.bytes": 2000})
    own.put()
    own.put(pad="x" * 3000)
    own.put()
    assert own.recorder.close(20)
    first, second, told = events(mock.bootstrap, 3)

    assert (first["data"]["number"], second["data"]["number"]) == (1, 3)
    assert told["data"]["message"] == "kafka: msg_size_too_large 1"
    assert (told["data"]["first_id"], told["data"]["last_id"]) == (2, 2)


def test_a_producer_that_gave_up_is_replaced(mock: MockCluster) -> None:
    """What it had taken is sent by the next one."""
    own = Audit(mock.bootstrap, options={"linger.ms": 60_000})
    own.put(3)
    until(lambda: len(own.outlet._producer) == 3)
    producer, own.outlet._ended = own.outlet._producer, True
    until(lambda: own.outlet._producer is not producer and len(own.outlet._producer) == 3)
    assert own.recorder.close(20)

    assert [event["data"]["number"] for event in events(mock.bootstrap, 3)] == [1, 2, 3]
    assert own.counters.errors["purge_queue"] == 3


def test_an_end_without_a_cluster(mock: MockCluster) -> None:
    """It ends in time, and what was not delivered is counted."""
    mock.set_down(1)
    own = Audit(mock.bootstrap)
    own.put(3)
    closed = own.recorder.close(0.3)

    assert not closed
    assert own.counters.dropped == {"close_timeout": 3}
    assert own.counters.queued == 0


def test_options_that_librdkafka_refuses() -> None:
    """They are said at the start."""
    with pytest.raises(WrongOptions, match=r"audit.kafka: .*no.such.option"):
        Audit("localhost:1", options={"no.such.option": "1"})


def test_what_is_promised_cannot_be_set(mock: MockCluster) -> None:
    """acks=all and idempotence stay, whatever the options say."""
    own = Audit(mock.bootstrap, options={"acks": "0", "enable.idempotence": False, "message.timeout.ms": 1})
    own.put()
    assert own.recorder.close(20)
    assert len(topic(mock.bootstrap, 1)) == 1


def test_without_confluent_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names what to install."""
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(MissingExtra, match=r"pip install '\.\[kafka\]'"):
        KafkaOutlet(KafkaSettings("localhost:1", TOPIC, SOURCE), Log())
