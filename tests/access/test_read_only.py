"""Topics that nobody changes, with a real broker: everything that would change them fails, and reading goes on."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from kproxy.testing.one_request import topics

PATIENCE = 30
PROD = {"topic": "prod*"}
RULES: dict[str, dict[str, Any]] = {
    "guest": {"kind": "read_only", "match": PROD},
    "strict": {"kind": "read_only", "match": PROD, "offsets": True},
    "looker": {"kind": "read_only"},
}


def altered(admin: AdminClient, topic: str) -> Any:
    entry = ConfigEntry("retention.ms", "1000", incremental_operation=AlterConfigOpType.SET)
    (done,) = admin.incremental_alter_configs(
        [ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])]
    ).values()
    return done.result(PATIENCE)


CHANGES: dict[str, Callable[[AdminClient, str], Any]] = {
    "delete": lambda admin, topic: admin.delete_topics([topic])[topic].result(PATIENCE),
    "grow": lambda admin, topic: admin.create_partitions([NewPartitions(topic, 5)])[topic].result(PATIENCE),
    "alter": altered,
    "empty": lambda admin, topic: next(iter(admin.delete_records([TopicPartition(topic, 0, 1)]).values())).result(9),
    "make": lambda admin, topic: admin.create_topics([NewTopic(f"{topic}-new", 1, 1)])[f"{topic}-new"].result(PATIENCE),
}


@pytest.mark.parametrize("client", ["guest", "looker"])
@pytest.mark.parametrize("change", CHANGES)
def test_an_administrator_cannot_change_it(guarded: Any, change: str, client: str) -> None:
    """Whatever it would change; the topic stays as it was."""
    (prod,) = guarded.create("prod")
    guarded.write("somebody", prod)
    admin = guarded.admin(client)
    with pytest.raises(KafkaException) as found:
        CHANGES[change](admin, prod)

    assert found.value.args[0].name() == "TOPIC_AUTHORIZATION_FAILED"
    assert topics(guarded.direct, [prod]) == {prod: 1}
    assert f"{prod}-new" not in topics(guarded.direct)


@pytest.mark.parametrize("change", CHANGES)
def test_others_topics_can_be_changed(guarded: Any, change: str) -> None:
    """The rule is about its topics only."""
    (test,) = guarded.create("test")
    guarded.write("somebody", test)

    CHANGES[change](guarded.admin("guest"), test)


def test_of_a_mixed_write_the_rest_is_stored(guarded: Any) -> None:
    """In one request of a producer."""
    prod, test = guarded.create("prod", "test")

    assert guarded.write("guest", prod, test) == {prod: "TOPIC_AUTHORIZATION_FAILED", test: None}
    assert (guarded.stored(prod), guarded.stored(test)) == (0, 1)


def committed(guarded: Any, group: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": guarded.direct, "group.id": group})
    (found,) = consumer.committed([TopicPartition(topic, 0)], PATIENCE)
    consumer.close()
    return int(found.offset)


@pytest.mark.parametrize(("client", "offset"), [("guest", 1), ("strict", -1001)])
def test_groups_read_it_and_commit_unless_offsets_are_protected(guarded: Any, client: str, offset: int) -> None:
    """Members join and get their records; their commits are no change of the topic."""
    (prod,) = guarded.create("prod")
    guarded.write("somebody", prod)
    group = f"g-{prod}"
    consumer = Consumer(guarded.config(client, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False))
    consumer.subscribe([prod])
    message, limit = None, time.monotonic() + PATIENCE
    while message is None and time.monotonic() < limit:
        message = consumer.poll(0.2)
    assert message is not None
    assert message.error() is None
    told = None
    try:
        consumer.commit(message, asynchronous=False)
    except KafkaException as error:
        told = error.args[0].name()
    consumer.close()

    assert told == (None if offset == 1 else "TOPIC_AUTHORIZATION_FAILED")
    assert committed(guarded, group, prod) == offset


def test_a_transaction_on_it_is_refused(guarded: Any) -> None:
    """When it begins to write."""
    (prod,) = guarded.create("prod")
    producer = Producer(guarded.config("guest", transactional_id=f"tx-{prod}"))
    producer.init_transactions(PATIENCE)
    producer.begin_transaction()
    producer.produce(prod, b"value")
    with pytest.raises(KafkaException) as found:
        producer.commit_transaction(PATIENCE)

    assert "TOPIC_AUTHORIZATION_FAILED" in str(found.value) or "authorization" in str(found.value).lower()
    assert guarded.stored(prod) == 0
