"""deploy/profiles before a real broker: clients work, and what the services reject is rejected."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
)

from kproxy.testing import one_request
from kproxy.testing.kafka import Kafka
from kproxy.testing.plugin import Proxies
from tests.support import service_profiles
from tests.support.java_program import JavaError, JavaProgram
from tests.support.raw_client import RawClient

PRODUCE, API_VERSIONS, COUNT, SECONDS = 0, 18, 10, 60
LONGEST = 1_046_528  # bytes of a request that Event Hubs accepts


def alter_topic(admin: AdminClient, topic: str) -> Any:
    entry = ConfigEntry("retention.ms", "1000", incremental_operation=AlterConfigOpType.SET)
    (future,) = admin.incremental_alter_configs(
        [ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])]
    ).values()
    return future.result(SECONDS)


def delete_records(admin: AdminClient, topic: str) -> Any:
    (future,) = admin.delete_records([TopicPartition(topic, 0, 1)]).values()
    return future.result(SECONDS)


def create_acl(admin: AdminClient, topic: str) -> Any:
    about = (ResourceType.TOPIC, topic, ResourcePatternType.LITERAL)
    binding = AclBinding(*about, "User:a", "*", AclOperation.READ, AclPermissionType.ALLOW)
    (future,) = admin.create_acls([binding]).values()
    return future.result(SECONDS)


def scram_users(admin: AdminClient, topic: str) -> Any:
    return admin.describe_user_scram_credentials().result(SECONDS)


@dataclass
class Expected:
    """Versions of some APIs, missing APIs, and the error of rejected operations: of Java by step, and of librdkafka."""

    versions: dict[int, tuple[int, int]]
    missing: set[int]
    java: dict[str, str]
    librdkafka: dict[Callable[[AdminClient, str], Any], str]


UNSUPPORTED, DENIED = "UnsupportedVersionException", "ClusterAuthorizationException"
EXPECTED = {
    "azure-event-hubs": Expected(
        {0: (0, 7), 1: (4, 6), 3: (0, 5), 11: (0, 9), 32: (1, 2)},
        {21, 24, 25, 26, 28, 29, 30, 31, 33, 34, 35, 43, 44, 68, 78},
        {"set_config": UNSUPPORTED, "log_dirs": UNSUPPORTED, "allow": UNSUPPORTED, "delete_records": UNSUPPORTED},
        {alter_topic: "_UNSUPPORTED_FEATURE", create_acl: "_UNSUPPORTED_FEATURE"},
    ),
    "confluent-cloud": Expected(
        {1: (4, 18), 35: (1, 5)},
        set(),
        {"log_dirs": DENIED, "elect": DENIED, "describe": "TopicAuthorizationException"},
        {},
    ),
    "msk-serverless": Expected(
        {0: (7, 9), 1: (10, 12), 3: (6, 11), 11: (4, 7), 46: (0, 0)},
        {21, 27, 34, 35, 45, 68, 78},
        {"log_dirs": UNSUPPORTED, "move": UNSUPPORTED, "allow": DENIED, "delete_records": UNSUPPORTED},
        {delete_records: "_UNSUPPORTED_FEATURE", create_acl: "CLUSTER_AUTHORIZATION_FAILED"},
    ),
    "redpanda": Expected(
        {0: (0, 7), 1: (4, 11), 3: (0, 8), 11: (0, 6), 45: (0, 0)},
        {27, 34, 38, 43, 50, 51, 60, 68, 69, 75, 78},
        {"elect": UNSUPPORTED},
        {scram_users: "_UNSUPPORTED_FEATURE"},
    ),
}


def rejections(topic: str) -> dict[str, list[Any]]:
    """Return the steps of an administrator by their names."""
    return {
        "set_config": ["set_config", "TOPIC", topic, "retention.ms", "1000"],
        "log_dirs": ["log_dirs"],
        "allow": ["allow", "LITERAL", topic, "a"],
        "delete_records": ["delete_records", topic, 0, 1],
        "move": ["move", topic, 0, [1]],
        "elect": ["elect", topic, 0],
        "describe": ["describe", "__consumer_offsets"],
    }


def test_profiles_before_kafka_reject_as_the_services(kafka: Kafka, kproxy_process: Proxies, java: JavaProgram) -> None:
    """Java and librdkafka write and read through each profile, and receive its errors."""
    options = service_profiles.options(kafka.bootstrap("PROXIED"))
    proxy = kproxy_process(**options)
    with ThreadPoolExecutor(len(EXPECTED)) as pool:
        addresses = service_profiles.addresses(options)
        checks = {name: pool.submit(check, name, address, java) for name, address in addresses.items()}
    assert {name: one.exception() for name, one in checks.items() if one.exception()} == {}
    assert proxy.samples("kproxy_requests_blocked_total") == []


def check(name: str, address: str, java: JavaProgram) -> None:
    """Check one profile at its listener."""
    expected, topic, config = EXPECTED[name], f"profile-{name}", {"bootstrap.servers": address}
    listed = one_request.ask(address, API_VERSIONS, 0, {}, timeout=SECONDS)["api_keys"]
    found = {entry["api_key"]: (entry["min_version"], entry["max_version"]) for entry in listed}
    assert {key: found.get(key) for key in expected.versions} == expected.versions
    assert expected.missing & found.keys() == set()

    works_by_librdkafka(config, topic)
    assert java("produce", config=config | {"compression.type": "gzip"}, topic=topic, tag="j", count=COUNT)
    reader = config | {"group.id": f"{topic}-java", "auto.offset.reset": "earliest"}
    assert len(java("consume", config=reader, topics=[topic], count=2 * COUNT, seconds=SECONDS)) == 2 * COUNT

    steps = [["try", rejections(topic)[step]] for step in expected.java]
    assert java("admin", config=config, steps=steps) == list(expected.java.values())
    admin = AdminClient({**config, "log_level": 0})
    for operation, code in expected.librdkafka.items():
        with pytest.raises(KafkaException) as raised:
            operation(admin, topic)
        assert raised.value.args[0].name() == code
    if name == "azure-event-hubs":
        event_hubs_limits(config, java, topic)


def works_by_librdkafka(config: dict[str, Any], topic: str) -> None:
    """An idempotent producer and a member of a group."""
    delivered = list[Any]()
    producer = Producer({**config, "enable.idempotence": True, "compression.type": "gzip"})
    for number in range(COUNT):
        producer.produce(topic, f"r-{number}", callback=lambda error, _: delivered.append(error))
    assert producer.flush(SECONDS) == 0
    assert delivered == [None] * COUNT
    consumer = Consumer({**config, "group.id": topic, "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([topic])
        assert len([one for one in consumer.consume(COUNT, SECONDS) if not one.error()]) == COUNT
    finally:
        consumer.close()


def event_hubs_limits(config: dict[str, Any], java: JavaProgram, topic: str) -> None:
    """Both clients receive the error of other codecs than gzip. One byte more than allowed closes the connection."""
    send = partial(java, "produce", topic=topic, tag="z", count=1, padding=5000)
    with pytest.raises(JavaError, match="UnsupportedCompressionTypeException"):
        send(config=config | {"compression.type": "lz4"})
    errors = list[Any]()
    producer = Producer({**config, "compression.type": "snappy"})
    producer.produce(topic, "z" * 5000, callback=lambda error, _: errors.append(error.name()))
    producer.flush(SECONDS)
    assert errors == ["UNSUPPORTED_COMPRESSION_TYPE"]
    for size, answered in ((LONGEST, True), (LONGEST + 1, False)):
        with RawClient(config["bootstrap.servers"]) as client:
            spare = size + 4 - len(client.request(PRODUCE, 7, written(topic, 0)))
            client.send(client.request(PRODUCE, 7, written(topic, spare)))
            if answered:
                assert client.frame()
            else:
                assert client.rest() == b""


def written(topic: str, size: int) -> dict[str, Any]:
    """Return a Produce request with so many bytes in the place of records."""
    data = [{"index": 0, "records": bytes(size)}]
    return {
        "transactional_id": None,
        "acks": -1,
        "timeout_ms": 1000,
        "topic_data": [{"name": topic, "partition_data": data}],
    }
