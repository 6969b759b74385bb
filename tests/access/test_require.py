"""Producers that do not keep to the house rules, with a real broker."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import NewTopic

from tests.support.java_program import JavaError, JavaProgram
from tests.support.raw_client import RawClient
from tests.support.wrong_batches import wrong_checksum

PATIENCE = 30
INVALID_RECORD = 87
RULES: dict[str, dict[str, Any]] = {
    "zstd": {"kind": "require", "compression": ["zstd", "lz4"]},
    "acks": {"kind": "require", "acks": "all"},
    "acks-0": {"kind": "require", "acks": ["all", 1]},
    "small": {"kind": "require", "max_record": "1kB"},
    "idempotent": {"kind": "require", "idempotence": True},
    "java-zstd": {"kind": "require", "compression": "zstd"},
    "java-small": {"kind": "require", "max_record": "1kB"},
    "nameless": {"kind": "require", "client_id": "team-*"},
}
SLOPPY = {"enable_idempotence": False}


@pytest.mark.parametrize(
    ("client", "settings", "told"),
    [
        ("zstd", {"compression_type": "gzip"}, "UNSUPPORTED_COMPRESSION_TYPE"),
        ("zstd", {"compression_type": "none"}, "UNSUPPORTED_COMPRESSION_TYPE"),
        ("zstd", {"compression_type": "zstd"}, None),
        ("zstd", {"compression_type": "lz4"}, None),
        ("acks", {"acks": 1, **SLOPPY}, "INVALID_REQUIRED_ACKS"),
        ("acks", {"acks": "all"}, None),
        ("idempotent", SLOPPY, "POLICY_VIOLATION"),
        ("idempotent", {"enable_idempotence": True}, None),
        ("nameless", SLOPPY, "POLICY_VIOLATION"),
    ],
)
def test_a_producer_is_told_what_is_wrong(guarded: Any, client: str, settings: dict[str, Any], told: Any) -> None:
    """With the code that fits; what is right is stored."""
    (topic,) = guarded.create("house")

    assert guarded.write(client, topic, **settings) == {topic: told}
    assert guarded.stored(topic) == (1 if told is None else 0)


def test_without_acks_it_is_dropped_and_the_connection_closed(guarded: Any) -> None:
    """The producer is not told, as it asked; the rule counts it."""
    (topic,) = guarded.create("house")

    assert guarded.write("acks-0", topic, acks=0, **SLOPPY) == {topic: None}
    assert guarded.stored(topic) == 0
    assert guarded.counts("acks-0")[2] >= 1


def test_a_record_that_is_too_large_is_refused(guarded: Any) -> None:
    """However small it is compressed."""
    (topic,) = guarded.create("house")
    told: list[Any] = []
    producer = Producer(guarded.config("small", compression_type="zstd", linger_ms=0))
    for size in (100, 5000, 1000):
        producer.produce(topic, b"a" * size, callback=lambda error, _: told.append(error and error.name()))
        assert producer.flush(PATIENCE) == 0

    assert told == [None, "MSG_SIZE_TOO_LARGE", None]
    assert guarded.stored(topic) == 2


@pytest.mark.parametrize(("client", "code"), [("somebody", 0), ("small", INVALID_RECORD)])
def test_what_only_the_broker_can_read_does_not_pass(guarded: Any, client: str, code: int) -> None:
    """A record of 5 kB in a frame that kproxy's codec refuses and Kafka's does not."""
    (topic,) = guarded.create("house")
    part = [{"index": 0, "records": wrong_checksum(b"a" * 5000)}]
    with RawClient(guarded.bootstrap, client_id=client) as raw:
        body = {"transactional_id": None, "acks": -1, "timeout_ms": 9000}
        answer = raw.call(0, 9, body | {"topic_data": [{"name": topic, "partition_data": part}]})

    assert [one["error_code"] for one in answer["responses"][0]["partition_responses"]] == [code]
    assert guarded.stored(topic) == (0 if code else 1)


def test_javas_producer_is_told_in_words(guarded: Any, java: JavaProgram) -> None:
    """The text of the rule, in the exception that a broker's error makes."""
    (topic,) = guarded.create("house")
    settings = {"bootstrap.servers": guarded.bootstrap, "client.id": "java-zstd", "compression.type": "gzip"}
    with pytest.raises(JavaError, match=r"UnsupportedCompressionTypeException.*zstd"):
        java("produce", config=settings, topic=topic, tag="v", count=1)

    java("produce", config=settings | {"compression.type": "zstd"}, topic=topic, tag="v", count=1)
    assert guarded.stored(topic) == 1


def test_other_clients_and_other_requests_are_not_looked_at(guarded: Any) -> None:
    """A topic may be made by whoever may not write to it."""
    admin = guarded.admin("zstd")
    (made,) = admin.create_topics([NewTopic("house-new", 1, 1)]).values()
    try:
        made.result(PATIENCE)
    except KafkaException as error:
        pytest.fail(str(error))
    (topic,) = guarded.create("house")

    assert guarded.write("somebody", topic, compression_type="gzip") == {topic: None}
