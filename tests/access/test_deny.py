"""What real clients see of what is forbidden."""

from __future__ import annotations

import time
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import ConfigResource, ResourceType

from tests.support.java_program import JavaError, JavaProgram

PATIENCE = 30
SECRET = {"topic": "secret*"}
RULES: dict[str, dict[str, Any]] = {
    "writer": {"kind": "deny", "match": {"api": "Produce", **SECRET}},
    "stranger": {"kind": "deny", "match": SECRET},
    "deleter": {"kind": "deny", "match": {"api": "DeleteTopics"}},
    "joiner": {"kind": "deny", "match": {"group": "secret*"}},
    "java": {"kind": "deny", "match": SECRET},
    "reader": {"kind": "deny", "match": {"api": "Fetch", **SECRET}},
    "polite": {"kind": "deny", "match": {"api": "Produce", **SECRET}, "error": "POLICY_VIOLATION"},
    "loose": {"kind": "deny", "match": {"api": "Produce", **SECRET}},
}


def code(error: pytest.ExceptionInfo[KafkaException]) -> int:
    return int(error.value.args[0].code())


def test_of_a_mixed_request_only_the_forbidden_topic_fails(guarded: Any) -> None:
    """The others are the broker's to answer, and it has them."""
    first, secret, last = guarded.create("a", "secret", "z")

    assert guarded.write("writer", first, secret, last) == {
        first: None, secret: "TOPIC_AUTHORIZATION_FAILED", last: None,
    }  # fmt: skip
    assert [guarded.stored(topic) for topic in (first, secret, last)] == [1, 0, 1]


def test_another_error_can_be_chosen(guarded: Any) -> None:
    """Which the user is told instead."""
    (secret,) = guarded.create("secret")

    assert guarded.write("polite", secret) == {secret: "POLICY_VIOLATION"}


def test_forbidden_topics_vanish_from_lists(guarded: Any) -> None:
    """But a topic that is asked for by name gets the error."""
    open_, secret = guarded.create("open", "secret")
    listed = guarded.admin("stranger").list_topics(timeout=PATIENCE).topics
    named = guarded.admin("stranger").list_topics(secret, timeout=PATIENCE).topics[secret]

    assert open_ in listed
    assert not [name for name in listed if name.startswith("secret")]
    assert named.error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert secret in guarded.admin("nobody-special").list_topics(timeout=PATIENCE).topics


def test_configs_of_a_forbidden_topic_cannot_be_read(guarded: Any) -> None:
    """A config resource that is the topic's counts as the topic."""
    (secret,) = guarded.create("secret")
    admin = guarded.admin("stranger")
    (asked,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, secret)]).values()
    with pytest.raises(KafkaException) as found:
        asked.result(PATIENCE)

    assert code(found) == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_nobody_deletes_topics(guarded: Any) -> None:
    """An API as a whole."""
    (topic,) = guarded.create("open")
    admin = guarded.admin("deleter")
    (deleted,) = admin.delete_topics([topic]).values()
    with pytest.raises(KafkaException) as found:
        deleted.result(PATIENCE)

    assert code(found) == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert topic in guarded.admin("nobody-special").list_topics(timeout=PATIENCE).topics


def first_error(consumer: Consumer) -> str:
    limit = time.monotonic() + PATIENCE
    while time.monotonic() < limit:
        message = consumer.poll(0.1)
        if message is not None and message.error() is not None:
            return str(message.error().name())
    return "none"


def test_a_forbidden_topic_cannot_be_fetched(guarded: Any) -> None:
    """Its consumer is told; what it reads besides comes."""
    open_, secret = guarded.create("open", "secret")
    guarded.write("nobody-special", open_, secret)
    consumer = Consumer(guarded.config("reader", group_id="g", auto_offset_reset="earliest"))
    consumer.assign([TopicPartition(secret, 0, 0), TopicPartition(open_, 0, 0)])
    told: set[str] = set()
    limit = time.monotonic() + PATIENCE
    while len(told) < 2 and time.monotonic() < limit:
        message = consumer.poll(0.1)
        if message is not None:
            told.add(message.error().name() if message.error() else str(message.topic()))
    consumer.close()

    assert told == {"TOPIC_AUTHORIZATION_FAILED", open_}


def test_a_forbidden_group_cannot_be_joined_or_seen(guarded: Any) -> None:
    """Not by its members, not in the list of groups, not by its offsets."""
    (topic,) = guarded.create("open")
    past = Consumer({"bootstrap.servers": guarded.direct, "group.id": "secret-group"})
    past.commit(offsets=[TopicPartition(topic, 0, 3)], asynchronous=False)
    other = Consumer({"bootstrap.servers": guarded.direct, "group.id": "open-group"})
    other.commit(offsets=[TopicPartition(topic, 0, 3)], asynchronous=False)
    past.close()
    other.close()
    member = Consumer(guarded.config("joiner", group_id="secret-group"))
    member.subscribe([topic])
    told = first_error(member)
    member.close()
    admin = guarded.admin("joiner")
    groups = {group.group_id for group in admin.list_consumer_groups().result(PATIENCE).valid}
    (offsets,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("secret-group")]).values()
    with pytest.raises(KafkaException) as found:
        offsets.result(PATIENCE)

    assert told == "GROUP_AUTHORIZATION_FAILED"
    assert "open-group" in groups and "secret-group" not in groups
    assert code(found) == KafkaError.GROUP_AUTHORIZATION_FAILED


def test_without_acks_the_connection_is_closed_and_nothing_is_stored(guarded: Any) -> None:
    """There is no answer to carry the error."""
    (secret,) = guarded.create("secret")

    assert guarded.write("loose", secret, acks=0) == {secret: None}
    assert guarded.stored(secret) == 0
    assert guarded.counts("loose")[1] >= 1


def test_javas_clients_raise_what_they_raise_with_a_broker(guarded: Any, java: JavaProgram) -> None:
    """TopicAuthorizationException, of a topic that is named by its id, too."""
    (secret,) = guarded.create("secret")
    settings = {"bootstrap.servers": guarded.bootstrap, "client.id": "java"}
    with pytest.raises(JavaError, match="TopicAuthorizationException"):
        java("produce", config=settings, topic=secret, tag="v", count=1)

    assert guarded.stored(secret) == 0
