"""kafka-python: what it produces arrives, whatever way it takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic

pytestmark = pytest.mark.usefixtures("kafka_python")
CODECS = [None, "gzip", "lz4"]  # those that need no package of their own besides lz4
SECONDS = 40


@pytest.fixture
def producer(route: Any) -> Iterator[KafkaProducer]:
    with closing(KafkaProducer(bootstrap_servers=route.bootstrap)) as producer:
        yield producer


def consume(route: Any, topic: str, count: int, **settings: Any) -> Counter[tuple[str, str]]:
    """(topic, value) of so many records, by a group that starts at the beginning."""
    config = {"group_id": f"g-{topic}", "auto_offset_reset": "earliest", "consumer_timeout_ms": SECONDS * 1000}
    with closing(KafkaConsumer(bootstrap_servers=route.bootstrap, **config | settings)) as consumer:
        consumer.subscribe([topic])
        found: Counter[tuple[str, str]] = Counter()
        for record in consumer:
            found[record.topic, record.value.decode()] += 1
            if found.total() == count:
                break
        consumer.commit()
    return found


def test_every_codec_and_acks_value_arrives_whole(route: Any) -> None:
    """Records of each codec, with acks 0, 1 and all, idempotent or not, are consumed as many and as they were."""
    topic = route.create("kp-codecs")
    sent: Counter[tuple[str, str]] = Counter()
    for codec in CODECS:
        for acks in (0, 1, "all"):
            settings = {"compression_type": codec, "acks": acks, "enable_idempotence": acks == "all"}
            with closing(KafkaProducer(bootstrap_servers=route.bootstrap, **settings)) as producer:
                answers = [producer.send(topic, f"{codec}-{acks}-{number}".encode()) for number in range(20)]
                producer.flush(SECONDS)
                assert {answer.get(SECONDS).topic for answer in answers} == {topic}
            sent += Counter((topic, f"{codec}-{acks}-{number}") for number in range(20))

    assert consume(route, topic, sent.total()) == sent


def test_a_group_goes_on_where_it_committed(route: Any, producer: KafkaProducer) -> None:
    """A second run of a group receives only what the first did not; its offsets are under the client's name."""
    topic = route.create("kp-group", partitions=1)
    for word in ("early", "late"):
        for number in range(15):
            producer.send(topic, f"{word}-{number}".encode())
        producer.flush(SECONDS)
        assert consume(route, topic, 15) == Counter((topic, f"{word}-{number}") for number in range(15))

    with closing(KafkaAdminClient(bootstrap_servers=route.bootstrap)) as admin:
        (offsets,) = admin.list_group_offsets(f"g-{topic}").values()

    assert {place: committed.offset for place, committed in offsets.items()} == {TopicPartition(topic, 0): 30}


def test_administration_by_client_names(route: Any) -> None:
    """Topics are created, listed, described and deleted by the client's names; the broker has its own."""
    topic = route.topic("kp-admin")
    with closing(KafkaAdminClient(bootstrap_servers=route.bootstrap)) as admin:
        admin.create_topics([NewTopic(topic, 2, 1)])
        route.settled(topic, 2)
        at_broker = route.names_at_broker()
        names = admin.list_topics()
        (described,) = admin.describe_topics([topic])
        admin.delete_topics([topic])
        route.settled(topic, 0)

    assert topic in names
    assert (described["name"], len(described["partitions"])) == (topic, 2)
    assert route.upstream_name(topic) in at_broker
    assert route.upstream_name(topic) == topic or topic not in at_broker
