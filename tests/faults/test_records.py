"""What real consumers and producers make of records that were changed, doubled, lost or broken on their way."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from kproxy.testing.process import Proxy

PATIENCE = 30
ALL = ["value-0", "value-1", "value-2"]
FIRST = {"match": {"api": "Fetch"}, "when": {"first": 1}}
READ: dict[str, tuple[dict[str, Any], list[str], set[str]]] = {
    "emptied": ({"kind": "empty_fetch", **FIRST}, ALL, set()),
    "cut": ({"kind": "empty_fetch", "max_bytes": 100, "cut": True, **FIRST}, ALL, set()),
    "doubled": ({"kind": "duplicate_records", "offsets": 1}, ["value-0", "value-1", "value-1"], set()),
    "thinned": ({"kind": "drop_records", "offsets": 1}, ["value-0", "value-2"], set()),
    "corrupted": ({"kind": "corrupt_records", **FIRST}, ALL, {"_BAD_MSG"}),
    "wrong-crc": ({"kind": "corrupt_records", "where": "crc", **FIRST}, ALL, {"_BAD_MSG"}),
    "set": ({"kind": "set_record", "offsets": 1, "value": "other"}, ["value-0", "other", "value-2"], set()),
    "nulled": ({"kind": "set_record", "offsets": 1, "value": None}, ["value-0", "", "value-2"], set()),
    "negative-count": ({"kind": "malformed_batch", "defect": "negative_count", **FIRST}, ALL, set()),
    "unknown-codec": ({"kind": "malformed_batch", "defect": "unknown_codec", **FIRST}, ALL, {"_NOT_IMPLEMENTED"}),
    "later": ({"kind": "set_watermark", "log_start": 2}, ["value-2"], set()),
}
"""Rule, what is read of three records that lie in one batch each, and the errors on the way."""
WRITTEN: dict[str, dict[str, Any]] = {
    "stored-twice": {"kind": "duplicate_records", "at": "produce"},
    "stored-never": {"kind": "drop_records", "at": "produce"},
    "resent": {"kind": "corrupt_records", "at": "produce", "match": {"api": "Produce"}, "when": {"first": 1}},
    "counted": {"kind": "duplicate_records", "at": "produce"},
}
FAULTS: dict[str, dict[str, Any]] = (
    {name: rule for name, (rule, _, _) in READ.items()}
    | WRITTEN
    | {
        "poisoned": {"kind": "poison_records", "offsets": 1, "bytes": 3},
        "stuck": {"kind": "set_watermark", "stuck": True},
        "java-doubled": {"kind": "duplicate_records"},
        "java-poisoned": {"kind": "poison_records", "offsets": 1},
        "java-corrupted": {"kind": "corrupt_records"},
    }
)


@pytest.fixture(scope="module")
def outcomes(faulty: Proxy, clients: Any, all_at_once: Any) -> dict[str, Future[Any]]:
    """What became of one record of each client."""

    def act(topic: str, name: str) -> Any:
        return clients.write(faulty.bootstrap, topic, client_id=name, enable_idempotence=name == "counted")

    found: dict[str, Future[Any]] = all_at_once(act, WRITTEN)
    return found


@pytest.fixture(scope="module")
def reads(faulty: Proxy, clients: Any, all_at_once: Any) -> dict[str, Future[Any]]:
    """What each client has read of three records."""

    def read(topic: str, name: str) -> Any:
        batches(clients, topic)
        settings = {"client_id": name, "check_crcs": True, "auto_offset_reset": "earliest"}
        return clients.read(faulty.bootstrap, topic, len(READ[name][1]), **settings)

    found: dict[str, Future[Any]] = all_at_once(read, READ)
    return found


def batches(clients: Any, topic: str) -> None:
    """Three records in a batch each."""
    producer = Producer({"bootstrap.servers": clients.direct, "linger.ms": 0, "batch.num.messages": 1})
    for value in ALL:
        producer.produce(topic, value)
    assert producer.flush(PATIENCE) == 0


@pytest.mark.parametrize("name", READ)
def test_what_librdkafka_reads(name: str, reads: Any, faulty: Proxy) -> None:
    """The values that are there in the end, in order, and the errors that the application gets before."""
    values, errors = reads[name].result()

    assert (values, set(errors)) == (READ[name][1], READ[name][2])
    assert faulty.metric("kproxy_rule_applied_total", rule=name) >= 1


def test_a_poisoned_record_comes_without_an_error(faulty: Proxy, clients: Any) -> None:
    """Three bytes of it are others, and the checksum is right, though the client looks at it."""
    (topic,) = clients.topics(1)
    batches(clients, topic)
    consumer = Consumer({
        "bootstrap.servers": faulty.bootstrap, "group.id": "g", "client.id": "poisoned", "check.crcs": True,
    })  # fmt: skip
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = consumer.consume(3, PATIENCE)
    consumer.close()

    assert [message.error() for message in found] == [None] * 3
    first, second, third = (message.value() or b"" for message in found)
    assert (first.decode(), third.decode()) == (ALL[0], ALL[2])
    assert sum(one != other for one, other in zip(second, ALL[1].encode(), strict=True)) == 3


@pytest.mark.parametrize(("name", "stored"), [("stored-twice", 2), ("stored-never", 0), ("resent", 1), ("counted", 1)])
def test_what_is_stored_of_one_record(name: str, stored: int, outcomes: Any) -> None:
    """The producer is told that all is well: twice, lost, sent again after CORRUPT_MESSAGE; an idempotent one once."""
    outcome = outcomes[name].result()

    assert outcome.told == [None]
    assert outcome.stored == stored


def test_a_watermark_that_stands_still(faulty: Proxy, clients: Any) -> None:
    """The consumer does not see what is written after it was first seen."""
    (topic,) = clients.topics(1)
    clients.write(clients.direct, topic)
    consumer = Consumer({"bootstrap.servers": faulty.bootstrap, "group.id": "g", "client.id": "stuck"})

    def ends() -> Any:
        return consumer.get_watermark_offsets(TopicPartition(topic, 0), PATIENCE)

    assert ends() == (0, 1)
    clients.write(clients.direct, topic)
    consumer.assign([TopicPartition(topic, 0, 0)])
    assert [message.value() for message in consumer.consume(2, 1.0)] == [b"value-0"]
    assert ends() == (0, 1)
    consumer.close()
    assert clients.stored(topic) == 2


def test_what_java_reads(faulty: Proxy, clients: Any, java: Any) -> None:
    """It passes over copies, is poisoned without an error, and raises on a wrong checksum."""
    topics = clients.topics(3)
    found = {}
    for name, topic in zip(("java-doubled", "java-poisoned", "java-corrupted"), topics, strict=True):
        batches(clients, topic)
        config = {"bootstrap.servers": faulty.bootstrap, "client.id": name, "group.id": f"g-{topic}"}
        config |= {"auto.offset.reset": "earliest"}
        found[name] = java.start("consume", config=config, topics=[topic], count=3, seconds=20)
    values = [[row[2] for row in found[name].result(60)] for name in ("java-doubled", "java-poisoned")]
    trouble = found["java-corrupted"].exception(60)

    assert values[0] == ALL
    assert (values[1][0], values[1][2]) == (ALL[0], ALL[2])
    assert values[1][1] != ALL[1]
    assert "CorruptRecordException" in str(trouble) or "corrupt" in str(trouble).lower()
