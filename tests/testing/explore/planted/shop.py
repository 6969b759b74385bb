"""What the planted programs share: records that are there before, and what has come of them, both past all faults."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

INPUTS = [b"one", b"two", b"three", b"four"]
QUICK = {"retry.backoff.ms": 20, "retry.backoff.max.ms": 100, "reconnect.backoff.ms": 20, "linger.ms": 0,
         "reconnect.backoff.max.ms": 200, "log_level": 0, "topic.metadata.refresh.interval.ms": -1}  # fmt: skip
PATIENCE = 30.0
TRIES = 5


class NotDeliveredError(Exception):
    """A record that the program could not write, which it says."""


def settings(bootstrap: str, client: str, **more: Any) -> dict[str, Any]:
    """Settings of a client, with short pauses between its tries."""
    others = {name.replace("_", "."): value for name, value in more.items()}
    return {"bootstrap.servers": bootstrap, "client.id": client, **QUICK, **others}


def seed(kproxy: Any, topic: str = "in", partition: int = 0) -> None:
    """Write the inputs, each as a batch of its own."""
    producer = Producer(settings(kproxy.own_bootstrap_servers, "seed"))
    for value in INPUTS:
        producer.produce(topic, value, partition=partition)
        assert producer.flush(PATIENCE) == 0


def stored(kproxy: Any, topic: str = "out", isolation: str = "read_committed") -> list[bytes]:
    """All records of a topic's first partition, as the brokers have them."""
    own = settings(kproxy.own_bootstrap_servers, "judge", group_id="judge", isolation_level=isolation,
                   enable_partition_eof=True, auto_offset_reset="earliest")  # fmt: skip
    consumer = Consumer(own)
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[bytes] = []
    while True:
        message = consumer.poll(PATIENCE)
        assert message is not None, "the judge gets no answer"
        error = message.error()
        if error is None:
            found.append(message.value())
        elif error.code() in (KafkaError._PARTITION_EOF, KafkaError.UNKNOWN_TOPIC_OR_PART):
            break
    consumer.close()
    return found


def write(producer: Producer, value: bytes, topic: str = "out") -> None:
    """Write one record, and return when it is stored. Raises NotDeliveredError."""
    told: list[KafkaError | None] = []
    producer.produce(topic, value, partition=0, on_delivery=lambda error, message: told.append(error))
    producer.flush(PATIENCE)
    errors = [error for error in told if error is not None]  # not `told != [None]`: a KafkaError does not like None
    if errors or not told:
        raise NotDeliveredError(errors[0].name() if errors else "nothing was told")


def reader(kproxy: Any, *, joins: bool = False, **more: Any) -> Consumer:
    """A consumer of the inputs that begins where its group has committed. `joins`: it is a member of the group."""
    own = {"group_id": "app", "enable_auto_commit": False, "auto_offset_reset": "earliest",
           "session_timeout_ms": 6000, **more}  # fmt: skip
    consumer = Consumer(settings(kproxy.bootstrap_servers, "app-c", **own))
    if joins:
        consumer.subscribe(["in"])
    else:
        consumer.assign([TopicPartition("in", 0)])
    return consumer


def is_done(consumer: Consumer) -> bool:
    """Whether its group has committed all of the inputs. Raises KafkaException after some tries."""
    for number in range(TRIES):
        try:
            (committed,) = consumer.committed([TopicPartition("in", 0)], PATIENCE)
            return bool(committed.offset >= len(INPUTS))
        except KafkaException:
            if number == TRIES - 1:
                raise
    raise AssertionError


def next_of(consumer: Consumer) -> Message:
    """Return the next record, without a time limit. Raises KafkaException."""
    while True:
        message = consumer.poll(1.0)
        if message is not None and is_record(message):
            return message


def is_record(message: Message) -> bool:
    """Return True for a record, False for a passing error. Raises KafkaException."""
    error = message.error()
    if error is not None and error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
        raise KafkaException(error)  # librdkafka reports it once, and reads no more from the partition
    return error is None
