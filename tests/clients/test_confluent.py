"""confluent-kafka, which is librdkafka: what it produces arrives, whatever way it takes."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
SECONDS = 40  # after which a consumer gives up


def produce(route: Any, topic: str, tag: str, count: int, **settings: Any) -> None:
    """Produce `count` records and see each of them confirmed under the client's topic name."""
    confirmed: list[str | None] = []

    def done(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        confirmed.append(message.topic())

    config = {"bootstrap.servers": route.bootstrap} | {key.replace("_", "."): value for key, value in settings.items()}
    producer = Producer(config)
    for number in range(count):
        producer.produce(topic, f"{tag}-{number}", key=f"key-{number}", headers={"n": str(number)}, callback=done)
    assert producer.flush(SECONDS) == 0
    assert confirmed == [topic] * count


def consume(consumer: Consumer, count: int) -> Counter[tuple[str, str]]:
    """(topic, value) of so many records; the consumer is closed, its offsets committed."""
    found: Counter[tuple[str, str]] = Counter()
    limit = time.monotonic() + SECONDS
    while found.total() < count and time.monotonic() < limit:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            found[str(message.topic()), (message.value() or b"").decode()] += 1
    consumer.close()
    return found


def consumer(route: Any, group: str, **settings: Any) -> Consumer:
    """A consumer that starts at the beginning."""
    config = {"bootstrap.servers": route.bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    config |= {"topic.metadata.refresh.interval.ms": 500}
    return Consumer(config | {key.replace("_", "."): value for key, value in settings.items()})


def expected(topic: str, tag: str, count: int) -> Counter[tuple[str, str]]:
    """What produce() wrote."""
    return Counter((topic, f"{tag}-{number}") for number in range(count))


def test_every_codec_and_acks_value_arrives_whole(route: Any) -> None:
    """Records of every codec, with acks 0, 1 and all, idempotent or not, are consumed as many and as they were."""
    topic = route.create("rd-codecs")
    sent: Counter[tuple[str, str]] = Counter()
    for codec in CODECS:
        for acks in ("0", "1", "all"):
            tag = f"{codec}-{acks}"
            produce(route, topic, tag, 30, compression_type=codec, acks=acks, enable_idempotence=acks == "all")
            sent += expected(topic, tag, 30)
    reader = consumer(route, f"g-{topic}")
    reader.subscribe([topic])

    assert consume(reader, sent.total()) == sent


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_groups_and_patterns_of_both_protocols(route: Any, protocol: str) -> None:
    """A pattern finds the topics it means by the client's names; what was committed is where the group goes on."""
    topics = [route.create("rd-pattern"), route.create("rd-pattern")]
    for topic in topics:
        produce(route, topic, "v", 40)
    group = f"g-{topics[0]}-{protocol}"
    pattern = f"^{topics[0].rsplit('-', 1)[0]}-({'|'.join(topic.rsplit('-', 1)[1] for topic in topics)})$"

    first = consumer(route, group, group_protocol=protocol)
    first.subscribe([pattern])
    assert consume(first, 80) == expected(topics[0], "v", 40) + expected(topics[1], "v", 40)

    produce(route, topics[1], "later", 10)
    second = consumer(route, group, group_protocol=protocol)
    second.subscribe([pattern])
    assert consume(second, 10) == expected(topics[1], "later", 10)


def test_transactions_copy_exactly_once(route: Any) -> None:
    """An aborted transaction is not read, a committed one is, and the offsets are part of it."""
    source, target = route.create("rd-source", partitions=1), route.create("rd-target")
    produce(route, source, "v", 50)
    reader = consumer(route, f"copy-{source}", enable_auto_commit=False, isolation_level="read_committed")
    reader.subscribe([source])
    producer = Producer({"bootstrap.servers": route.bootstrap, "transactional.id": f"copy-{source}"})
    producer.init_transactions(SECONDS)
    read = [message for message in reader.consume(50, SECONDS) if message.error() is None]
    assert len(read) == 50

    for finish in (producer.abort_transaction, producer.commit_transaction):
        producer.begin_transaction()
        for message in read:
            producer.produce(target, message.value(), key=message.key())
        end = [TopicPartition(source, 0, 50)]
        producer.send_offsets_to_transaction(end, reader.consumer_group_metadata(), SECONDS)
        finish(SECONDS)
    reader.close()

    check = consumer(route, f"g-{target}", isolation_level="read_committed")
    check.subscribe([target])
    assert consume(check, 50) == expected(target, "v", 50)
    committed = consumer(route, f"copy-{source}").committed([TopicPartition(source, 0)], SECONDS)
    assert [(place.topic, place.offset) for place in committed] == [(source, 50)]


def test_administration_by_client_names(route: Any) -> None:
    """Topics are created, listed, configured and deleted by the client's names; the broker has its own."""
    topic = route.topic("rd-admin")
    admin = AdminClient({"bootstrap.servers": route.bootstrap})
    admin.create_topics([NewTopic(topic, num_partitions=2, replication_factor=1)])[topic].result(SECONDS)
    route.settled(topic, 2)
    resource = ConfigResource(ResourceType.TOPIC, topic)
    resource.add_incremental_config(ConfigEntry("retention.ms", "7200000", incremental_operation=AlterConfigOpType.SET))
    admin.incremental_alter_configs([resource])[resource].result(SECONDS)
    produce(route, topic, "v", 10)

    assert topic in admin.list_topics(timeout=SECONDS).topics
    assert route.upstream_name(topic) in route.names_at_broker()
    assert route.upstream_name(topic) == topic or topic not in route.names_at_broker()
    (config,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
    assert config.result(SECONDS)["retention.ms"].value == "7200000"

    admin.delete_topics([topic])[topic].result(SECONDS)
    route.settled(topic, 0)
