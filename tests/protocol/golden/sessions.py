"""What each client does while record.py listens: as many kinds of request as it knows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import kafka
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewTopic as AioNewTopic
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic, ResourceType

from kproxy.testing.kafka import kafka_libs
from tests.support.java_program import JavaProgram

JAVA_SOURCES = Path(__file__).parents[2] / "clients" / "java"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
RDKAFKA_LOGIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "alice",
    "sasl.password": "wonderland",
}
JAVA_LOGIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="alice" password="wonderland";',
}


def attempt(name: str, do: Callable[[], Any]) -> None:
    """What a release or a tool lacks is told, and the recording goes on."""
    try:
        do()
    except Exception as problem:  # noqa: BLE001 - clients have many errors, and the recording goes on
        print(f"{name}: {str(problem).splitlines()[0]}")


def librdkafka(address: str, login: str) -> None:
    base = {"bootstrap.servers": address}
    AdminClient({"bootstrap.servers": login, **RDKAFKA_LOGIN}).list_topics(timeout=60)
    admin = AdminClient(base)
    for made in admin.create_topics([NewTopic("orders", 2, 1), NewTopic("clicks", 1, 1)]).values():
        made.result(20)
    for codec in CODECS:
        for acks in ("0", "1", "all"):
            producer = confluent_kafka.Producer({**base, "compression.type": codec, "acks": acks})
            for i in range(12):
                producer.produce(
                    "orders", b"value %d " % i * 5, b"key" if i % 2 else None, 0, headers=[("n", b"1"), ("z", None)]
                )
            producer.flush(20)
    producer = confluent_kafka.Producer({**base, "transactional.id": "t1"})
    producer.init_transactions(20)
    for finish in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        producer.produce("orders", b"in a transaction", partition=1)
        finish(20)
    for protocol in ("classic", "consumer"):
        group = {**base, "group.id": f"rd-{protocol}", "group.protocol": protocol, "auto.offset.reset": "earliest"}
        consumer = confluent_kafka.Consumer(group)
        consumer.subscribe(["orders"])
        for _ in range(20):
            consumer.consume(50, 0.3)
        for position in consumer.position(consumer.assignment()):
            attempt("commit", partial(consumer.commit, offsets=[position], asynchronous=False))
        for asked in (admin.list_consumer_groups(), *admin.describe_consumer_groups([group["group.id"]]).values()):
            asked.result(20)
        consumer.close()
    topic = ConfigResource(ResourceType.TOPIC, "orders")
    for futures in (
        admin.create_partitions([NewPartitions("clicks", 2)]),
        admin.describe_configs([topic]),
        admin.delete_consumer_groups(["rd-classic"]),
        admin.list_consumer_group_offsets([confluent_kafka.ConsumerGroupTopicPartitions("rd-consumer")]),
        admin.delete_records([confluent_kafka.TopicPartition("orders", 0, 5)]),
        admin.delete_topics(["clicks"]),
    ):
        for future in futures.values():
            future.result(20)
    admin.describe_cluster().result(20)


def kafka_python(
    address: str, login: str, versions: tuple[tuple[int, ...] | None, ...] = (None, (2, 0), (1, 0), (0, 11))
) -> None:
    for version in versions:
        attempt(f"kafka-python {version}", lambda version=version: kafka_python_session(address, version))


def kafka_python_session(address: str, version: tuple[int, ...] | None) -> None:
    base: dict[str, Any] = {"bootstrap_servers": address, "api_version": version}
    has_lz4 = version is None or version >= (0, 10)  # before, it needs a further package
    topic = "kp" if has_lz4 else "kp-old"
    for codec in (None, "gzip", "lz4")[: 3 if has_lz4 else 2]:
        producer = kafka.KafkaProducer(**base, compression_type=codec, enable_idempotence=False)
        for i in range(8):
            producer.send(topic, b"value %d " % i * 5, b"key" if i % 2 else None).get(20)
        producer.close()
    consumer = kafka.KafkaConsumer(
        topic, **base, group_id=f"kp-{version}", auto_offset_reset="earliest", consumer_timeout_ms=4000
    )
    for number, _ in enumerate(consumer):
        if number > 100:
            break
    consumer.commit()
    consumer.close()
    if version is None:
        admin = kafka.KafkaAdminClient(**base)
        admin.list_topics()
        admin.describe_cluster()
        admin.close()


def kafka_python_old(address: str, login: str) -> None:
    kafka_python(address, login, ((0, 10, 2), (0, 10, 0), (0, 9), (0, 8, 2)))


def aiokafka_client(address: str, login: str) -> None:
    asyncio.run(aiokafka_session(address))


async def aiokafka_session(address: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=address)
    await admin.start()
    await admin.create_topics([AioNewTopic("aio", 1, 1)])
    await admin.describe_topics(["aio"])
    await admin.describe_cluster()
    for codec in (None, "gzip", "snappy", "lz4", "zstd"):
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=address, compression_type=codec, enable_idempotence=True)
        await producer.start()
        for i in range(8):
            await producer.send("aio", b"value %d " % i * 5, headers=[("n", b"1")])
        await producer.stop()
    producer = aiokafka.AIOKafkaProducer(bootstrap_servers=address, transactional_id="t2")
    await producer.start()
    async with producer.transaction():
        await producer.send_and_wait("aio", b"in a transaction")
    await producer.stop()
    consumer = aiokafka.AIOKafkaConsumer("aio", bootstrap_servers=address, group_id="aio", auto_offset_reset="earliest")
    await consumer.start()
    for _ in range(41):
        await asyncio.wait_for(consumer.getone(), 20)
    await consumer.commit()
    await admin.list_consumer_groups()
    await admin.describe_consumer_groups(["aio"])
    await consumer.stop()
    await admin.delete_topics(["aio"])
    await admin.close()


ADMIN_STEPS = [
    ["nodes"], ["list"], ["create", "java", 2, 1], ["describe", "java"], ["add_partitions", "java", 3],
    ["set_config", "TOPIC", "java", "retention.ms", "100000"], ["get_config", "TOPIC", "java", "retention.ms"],
]  # fmt: skip
LATER_STEPS = [
    ["groups"], ["members", "g-consumer"], ["group_offsets", "g-classic"],
    ["set_group_offset", "g-classic", "java", 0, 1], ["forget_group_offset", "g-classic", "java", 0],
    ["delete_group", ["g-classic"]], ["offsets", "java", 0],
    ["delete_records", "java", 0, 1], ["move", "java", 0, [1]], ["elect", "java", 0], ["delete", ["java"]],
]  # fmt: skip
TOOLS = [
    ("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", "--list"),
    ("org.apache.kafka.tools.ClientMetricsCommand", "--list"),
    ("org.apache.kafka.tools.TransactionsCommand", "list"),
    ("org.apache.kafka.tools.TransactionsCommand", "describe --transactional-id t1"),
    ("org.apache.kafka.tools.TransactionsCommand", "describe-producers --topic orders --partition 1"),
    ("org.apache.kafka.tools.FeatureCommand", "describe"),
    ("org.apache.kafka.tools.MetadataQuorumCommand", "describe --status"),
    ("org.apache.kafka.tools.BrokerApiVersionsCommand", ""),
    ("org.apache.kafka.tools.GroupsCommand", "--list"),
    (
        "kafka.admin.ConfigCommand",
        "--alter --add-config consumer_byte_rate=1000 --entity-type users --entity-name alice",
    ),
    ("kafka.admin.ConfigCommand", "--describe --entity-type users"),
    (
        "kafka.admin.ConfigCommand",
        "--alter --add-config SCRAM-SHA-256=[password=secret] --entity-type users --entity-name bob",
    ),
    ("org.apache.kafka.tools.AclCommand", "--list"),
]


def java(address: str, login: str, version: str) -> None:
    config = {"bootstrap.servers": address}
    with JavaProgram(JAVA_SOURCES, "Clients", kafka_libs(version)) as ask:
        ask("admin", config={"bootstrap.servers": login, **JAVA_LOGIN}, steps=[["nodes"]])
        ask("admin", config=config, steps=ADMIN_STEPS)
        for codec in CODECS:
            ask("produce", config={**config, "compression.type": codec}, topic="java", tag=codec, count=20, padding=50)
        for protocol in ("classic", "consumer"):
            settings = {
                **config,
                "group.id": f"g-{protocol}",
                "group.protocol": protocol,
                "auto.offset.reset": "earliest",
            }
            ask("consume", config=settings, topics=["java"], count=100, seconds=20)
            transactional = {**config, "transactional.id": f"copy-{protocol}"}
            reader = {**settings, "group.id": f"c-{protocol}", "enable.auto.commit": False}
            ask("copy", consumer=reader, producer=transactional, **{"from": "java"}, to="orders", count=100)
        ask(
            "admin",
            config={**config, "group.share": "x"},
            steps=[["set_config", "GROUP", "s", "share.auto.offset.reset", "earliest"]],
        )
        attempt(
            "share", lambda: ask("share", config={**config, "group.id": "s"}, topics=["java"], count=50, seconds=20)
        )
        for step in LATER_STEPS:
            attempt(str(step), lambda step=step: ask("admin", config=config, steps=[step]))
        for name, options in TOOLS:
            arguments = ["--bootstrap-server", address, *options.split()]
            attempt(
                name + options,
                lambda name=name, arguments=arguments: ask("tool", **{"class": name}, arguments=arguments),
            )
